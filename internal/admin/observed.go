package admin

import (
	"sync/atomic"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// observed is what the page shows beside the relay's state, and what tells it that there is something new.
type observed struct {
	moves   atomic.Uint64 // grows with whatever may change a view
	bytesIn atomic.Int64  // from control planes
	types   byType[observedType]
}

// observedType is what was seen of a type.
type observedType struct {
	short       string
	propagation recent // from the control plane's response to each client,
	convergence recent // and to the last one

	answered   atomic.Int64 // when the control plane sent its last response, in ns since 1970
	in, out    atomic.Int64 // resources and removals, from the control plane and to clients
	bytes      atomic.Int64 // to clients
	deliveries atomic.Int64
}

func newObserved() *observed {
	o := new(observed)
	o.types = newByType(func(short string) *observedType { return &observedType{short: short} })
	return o
}

func (o *observed) move() { o.moves.Add(1) }

// received notes a response of the control plane.
func (o *observed) received(t cache.TypeURL, resources int, now time.Time) {
	of := o.types.of(t)
	of.answered.Store(now.UnixNano())
	of.in.Add(int64(resources))
	o.move()
}

// sent notes a response to a client.
func (o *observed) sent(t cache.TypeURL, resources, bytes int) {
	of := o.types.of(t)
	of.out.Add(int64(resources))
	of.bytes.Add(int64(bytes))
	of.deliveries.Add(1)
	o.move()
}

// all are the types, each once.
func (o *observed) all() (types []*observedType) {
	for _, t := range cache.WellKnown() {
		types = append(types, o.types.known[t])
	}
	return append(types, o.types.other)
}
