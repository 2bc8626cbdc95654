//go:build linux

package attack

import (
	"context"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xds-relay/xds-relay/cache"
)

// What broken control planes send on a stream, beside the beats.

// pause waits, and reports whether the stream still lives.
func (s *planeStream) pause(d time.Duration) bool {
	select {
	case <-s.done:
		return false
	case <-time.After(d):
		return true
	}
}

// overAndOver sends what make makes: so many each time.
func overAndOver(n int, wait time.Duration, make func(i int) *discovery.DeltaDiscoveryResponse) func(*planeStream) {
	return func(s *planeStream) {
		for i := 0; s.pause(wait); i++ {
			for j := range n {
				if s.send(make(n*i+j)) != nil {
					return
				}
			}
		}
	}
}

// endpoints is a response of the type of beat.
func endpoints(all ...*discovery.Resource) *discovery.DeltaDiscoveryResponse {
	return &discovery.DeltaDiscoveryResponse{TypeUrl: string(cache.Endpoint), Resources: all}
}

// endpointsOf is a resource of that type, with a text that no beat has.
func endpointsOf(name string, i int, aliases ...string) *discovery.Resource {
	return &discovery.Resource{Name: name, Version: strconv.Itoa(i), Aliases: aliases, Resource: assignment(name, "harm "+strconv.Itoa(i))}
}

func duplicates(i int) *discovery.DeltaDiscoveryResponse {
	return endpoints(endpointsOf("a", i), endpointsOf("a", i+1), endpointsOf(beat, i), endpointsOf(beat, i+1))
}

// wrongTypes says that beat is something else.
func wrongTypes(i int) *discovery.DeltaDiscoveryResponse {
	r := endpoints(&discovery.Resource{Name: beat, Version: strconv.Itoa(i), Resource: packed(&core.Node{})}, &discovery.Resource{Name: "a", Version: strconv.Itoa(i), Resource: &anypb.Any{}})
	if i%2 == 0 {
		r.TypeUrl = "no type"
	}
	return r
}

func aliasLoops(i int) *discovery.DeltaDiscoveryResponse {
	return endpoints(endpointsOf("a", i, "b", "a"), endpointsOf("b", i, "c"), endpointsOf("c", i, "a", "a"))
}

func oddNonces(s *planeStream) {
	nonces := []string{"", strings.Repeat("n", 1<<20), "\x00", "\r\n"}
	for i := 0; s.pause(10 * time.Millisecond); i++ {
		r := endpoints(endpointsOf("a", i))
		r.Nonce, r.SystemVersionInfo = nonces[i%len(nonces)], nonces[(i+1)%len(nonces)]
		if s.sendAsIs(r) != nil {
			return
		}
	}
}

func oddTTLs(i int) *discovery.DeltaDiscoveryResponse {
	r := endpoints(endpointsOf("a", i), endpointsOf("b", i), endpointsOf("c", i))
	r.Resources[0].Ttl = durationpb.New(-time.Second)
	r.Resources[1].Ttl = &durationpb.Duration{Seconds: math.MaxInt64, Nanos: math.MaxInt32}
	r.Resources[2].Ttl = &durationpb.Duration{Nanos: 1}
	return r
}

func changes(i int) *discovery.DeltaDiscoveryResponse { return endpoints(endpointsOf("a", i)) }

// large is a response of 50 MB.
func large(i int) *discovery.DeltaDiscoveryResponse {
	return endpoints(&discovery.Resource{Name: "a", Version: strconv.Itoa(i), Resource: assignment("a", strings.Repeat(strconv.Itoa(i%10), 50_000_000))})
}

// gone are the names of what was never there.
var gone = sync.OnceValue(func() []string { return names("gone", 500_000, 20) })

func unknownRemovals(int) *discovery.DeltaDiscoveryResponse {
	return &discovery.DeltaDiscoveryResponse{TypeUrl: string(cache.Endpoint), RemovedResources: gone()}
}

// endless adds a megabyte to a wildcard's set.
func endless(i int) *discovery.DeltaDiscoveryResponse {
	return &discovery.DeltaDiscoveryResponse{TypeUrl: string(cache.Cluster), Resources: []*discovery.Resource{{
		Name: "c" + strconv.Itoa(i), Version: "1", Resource: packed(&cluster.Cluster{Name: "c" + strconv.Itoa(i), AltStatName: strings.Repeat("x", 1<<20)})}}}
}

// wants is a client that would like to have all that such a control plane sends.
func wants(ctx context.Context, at *target) (string, error) {
	c, err := dial(at)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return c.again(ctx, subscribe(cache.Endpoint, "a", "b", "c"), subscribe(cache.Cluster, "*"))
}
