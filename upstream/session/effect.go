package session

import (
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Effect is something learned, to be carried out in order, before anything else is
// learned, and outside of the lock of Core.
type Effect struct {
	Lane fanout.Lane
	// Update is to be applied to the Hub.
	Update *cache.Update
	// Lapse is the time up to which TTLs run out, and removals are held back; zero: no
	// look is taken at them (TTL-2, H-22).
	Lapse time.Time
	// Availability: the Hub is to be told Status, nil for available (ERR-7).
	Availability bool
	Status       *statuspb.Status
	// Suspect: the type was convicted or, if false, acquitted.
	Conviction bool
	Suspect    bool
	// Identifier of the control plane, if it is news.
	Identifier string
	// Drop names a response or resource that was not used, for a counter.
	Drop string
	// Alive is the time from which a stream to the control plane is alive, or, if Away,
	// none is (H-22); zero: no news.
	Alive time.Time
	Away  bool
	// Over is a stream that has ended.
	Over StreamID
	// Check asks whether anybody is at the other end of a stream's connection, and
	// waits for so long.
	Check   StreamID
	Timeout time.Duration
	// Silence is for the log, about a Lane and an Entry.
	Silence *Silence
	// Uncertain is for the log, about a Lane and an Entry.
	Uncertain *fanout.Uncertainty
	// Notice is for the log, about an Entry, and so is Stopped: it does not answer any more.
	Notice, Stopped, Entry string
	// Switch: another entry is put to use.
	Switch *Switch
}

// Switch says which entry is put to use instead of which, by their indexes, and why.
type Switch struct {
	From, To int
	Why      Cause
}

// Outcome is what came of an Effect that people should know.
type Outcome struct {
	fanout.Applied
	Lapses map[cache.TypeURL]fanout.Lapse
}

// Apply carries an effect out.
func (e Effect) Apply(hub *fanout.Hub) (o Outcome) {
	switch {
	case e.Update != nil:
		o.Applied = hub.Apply(e.Lane, e.Update)
	case !e.Lapse.IsZero():
		o.Lapses = hub.Lapse(e.Lapse)
	case !e.Alive.IsZero():
		hub.Alive(!e.Away, e.Alive)
	case e.Over != 0:
		hub.Over(uint64(e.Over))
	case e.Availability:
		hub.On(e.Lane).SetUnavailable(e.Status)
	case e.Conviction:
		hub.Of(e.Lane.Type).SetSuspect(e.Suspect)
	case e.Identifier != "":
		hub.SetIdentifier(e.Identifier)
	}
	return o
}
