package session

import (
	"fmt"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// BenchmarkIdleTypes is what one type costs beside so many others to which nothing happens: all
// answered, or all left unanswered by the control plane (VALID-9). It must not depend on their number.
func BenchmarkIdleTypes(b *testing.B) {
	for _, answered := range []bool{true, false} {
		for _, n := range []int{10, 500, 5000} {
			b.Run(fmt.Sprintf("%s/%d", map[bool]string{true: "answered", false: "silent"}[answered], n), func(b *testing.B) {
				for name, once := range idleTypes {
					b.Run(name, func(b *testing.B) {
						d := idle(b, n, answered)
						i := 0
						for b.Loop() {
							i++
							once(d, i)
						}
					})
				}
			})
		}
	}
}

// idleTypes are what happens.
var idleTypes = map[string]func(d *desk, i int){
	"an update": func(d *desk, i int) { d.updates(i) },
	"a turn": func(d *desk, _ int) {
		d.core.Tick(d.now)
		d.core.Effects()
		d.core.Deadline(d.now)
	},
	"a change of interest": func(d *desk, i int) {
		d.now = d.now.Add(2 * time.Millisecond)
		s := d.hub.Subscribe(cache.Endpoint, fanout.NewSubscriber(func() {}))
		s.Delta([]string{fmt.Sprint("n", i)}, nil, d.now)
		d.settle()
		s.Close(d.now)
		d.settle()
		d.core.Deadline(d.now)
	},
}

// idle is a desk with a stream that carries Endpoints, and so many other types.
func idle(b *testing.B, n int, answered bool) *desk {
	d := newDesk(b, Config{Coalesce: time.Millisecond, Settle: 0, SettleCap: time.Second, UnavailableAfter: time.Second, Entries: []Entry{{Name: "up", Mode: ModeDelta}}})
	sub := fanout.NewSubscriber(func() {})
	d.hub.Subscribe(cache.Endpoint, sub).Delta([]string{"a"}, nil, d.now)
	d.settle()
	d.now = d.now.Add(2 * time.Millisecond)
	d.settle()
	d.updates(0)
	for i := range n {
		d.hub.Subscribe(typeOf(i), sub).Delta([]string{"x"}, nil, d.now)
	}
	d.settle()
	d.now = d.now.Add(2 * time.Millisecond)
	d.settle()
	for i := range n {
		if answered {
			d.take(typeOf(i), "x", "1")
		}
	}
	d.settle()
	d.now = d.now.Add(10 * time.Second)
	d.settle()
	d.core.Effects()
	return d
}

func typeOf(i int) cache.TypeURL { return cache.TypeURL(fmt.Sprint("idle.", i)) }

// updates has the control plane send the i-th version of the endpoints a.
func (d *desk) updates(i int) {
	d.take(cache.Endpoint, "a", fmt.Sprint(i))
	for d.core.Next(d.id, d.now) != nil {
		continue
	}
}

// take takes in a version of a resource, as the Client does.
func (d *desk) take(t cache.TypeURL, name, version string) {
	r := Decode(&discovery.DeltaDiscoveryResponse{TypeUrl: string(t), Nonce: "n", Resources: []*discovery.Resource{
		{Name: name, Version: version, Resource: &anypb.Any{TypeUrl: string(t), Value: []byte(name + version)}},
	}}, cache.Fingerprint{})
	d.core.Receive(d.id, r, d.now)
	for _, e := range d.core.Effects() {
		e.Apply(d.hub)
	}
	d.core.Applied(d.id, r, d.now)
}
