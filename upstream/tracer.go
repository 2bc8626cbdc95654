package upstream

import (
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/upstream/session"
)

// Tracer follows what the control plane sends to the clients whom it concerns. Its methods
// are called from several goroutines, and must not block: some are called under the lock
// that keeps the Hub's updates in order.
type Tracer interface {
	// Received: a response came. What it returns goes with the response to clients, and
	// back to the Tracer.
	Received(r Received) cache.Trace
	// Applied: the Hub has taken in an update of a response, and has woken so many clients.
	// Some may have been told before this is called.
	Applied(t cache.Trace, a Application)
	// Taken: all that a response brings is applied. nack is why it was rejected, or "".
	Taken(t cache.Trace, nack string)
}

// Received is a response of the control plane.
type Received struct {
	// Group is its name for people, empty for the default one.
	Group  string
	Stream Stream
	Type   cache.TypeURL
	// Nonce and Version are the control plane's.
	Nonce, Version string
	Set, Removed   int // resources, and names
	Bytes          int
	At             time.Time // before it was decoded
}

// Application is what the Hub did with an update.
type Application struct {
	Begins, Ends time.Time
	// Concerned is how many clients are to be told, each of which will be accounted for once.
	// Behind are others that are too many updates behind to be followed.
	Concerned, Behind int
}

// source is what goes with a response to those who are sent some of it.
func (c *Client) source(on *stream, resp proto.Message, d *session.Response, at time.Time) *cache.Source {
	if c.tracer == nil {
		return cache.NewSource(at, nil)
	}
	version := d.Version
	if delta, ok := resp.(*discovery.DeltaDiscoveryResponse); ok {
		version = delta.GetSystemVersionInfo()
	}
	return cache.NewSource(at, c.tracer.Received(Received{
		Group: c.hub.Name(), Stream: on.kind(), Type: d.TypeURL, Nonce: d.Nonce, Version: version,
		Set: len(d.Update.Set) + len(d.Bodyless), Removed: len(d.Update.Removed), Bytes: proto.Size(resp), At: at,
	}))
}

// follow tells the Tracer of an update that is a response's. Without a Tracer there are no traces.
func (c *Client) follow(e session.Learned, o fanout.Applied, begins time.Time) {
	for _, t := range e.Update.Source.List() {
		c.tracer.Applied(t, Application{Begins: begins, Ends: time.Now(), Concerned: o.Concerned, Behind: o.Behind})
	}
}
