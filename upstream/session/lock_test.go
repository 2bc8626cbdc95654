package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/test/scaling"
)

// BenchmarkUnderLock is what it costs the other types and clients of a group that there are very
// many names, or types that clients have invented (VALID-9): the Core takes it in under the lock
// of the Client.
func BenchmarkUnderLock(b *testing.B) {
	config := Config{Coalesce: time.Millisecond, Entries: []Entry{{Name: "up", Mode: ModeDelta}}}
	open := func() *desk {
		d := newDesk(b, config)
		d.hub.Reconfigure(fanout.Config{Linger: time.Hour, MaxLinger: 1 << 20})
		d.settle()
		return d
	}
	turn := func(d *desk) {
		d.core.Effects()
		d.now = d.now.Add(time.Second)
		d.settle()
	}
	b.Run("names are back", func(b *testing.B) {
		scaling.Run(b, 40_000, func(n int) func() {
			d := open()
			s := d.hub.Subscribe(cache.Endpoint, fanout.NewSubscriber(func() {}))
			names := make([]string, n)
			for i := range names {
				names[i] = fmt.Sprint("name-", i)
			}
			s.Delta(names, nil, d.now)
			turn(d)
			s.Delta(nil, names, d.now)
			turn(d)
			s.Delta(names, nil, d.now)
			d.now = d.now.Add(time.Second)
			d.core.Interest(d.now)
			return func() { d.core.Tick(d.now) }
		})
	})
	b.Run("names go", func(b *testing.B) {
		scaling.Run(b, 40_000, func(n int) func() {
			d := open()
			d.hub.Reconfigure(fanout.Config{MaxLinger: 1})
			s := d.hub.Subscribe(cache.Endpoint, fanout.NewSubscriber(func() {}))
			names := make([]string, n)
			for i := range names {
				names[i] = fmt.Sprint("name-", i)
			}
			s.Delta(names, nil, d.now)
			turn(d)
			s.Delta(nil, names, d.now)
			d.now = d.now.Add(time.Second)
			d.core.Interest(d.now)
			return func() { d.core.Tick(d.now); d.core.Next(d.id, d.now) }
		})
	})
	b.Run("invented types", func(b *testing.B) {
		scaling.Run(b, 2000, func(n int) func() {
			d := open()
			for i := range n {
				s := d.hub.Subscribe(cache.TypeURL(fmt.Sprint("invented.", i)), fanout.NewSubscriber(func() {}))
				s.Delta([]string{"a", fanout.Wildcard}, nil, d.now)
			}
			d.core.Interest(d.now)
			return func() { d.core.Tick(d.now) }
		})
	})
}
