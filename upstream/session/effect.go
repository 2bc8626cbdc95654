package session

import (
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Effect is something that Core has learned. The caller carries out Effects in order, outside of
// the lock of Core, and before it reports the next event of a stream.
type Effect struct {
	Lane fanout.Lane
	// Update is applied to the Hub.
	Update *cache.Update
	// Lapse is the time up to which TTLs and held removals have run out; zero means that they
	// are not looked at (TTL-2, H-22).
	Lapse time.Time
	// Availability means that the Hub gets Status, which is nil if the lane is available (ERR-7).
	Availability bool
	Status       *statuspb.Status
	// Conviction means that the type was convicted, if Suspect is set, or acquitted.
	Conviction bool
	Suspect    bool
	// Identifier is that of the control plane, if it has changed.
	Identifier string
	// Drop is the reason for which a response was not used, for a counter.
	Drop string
	// Alive is the time since when the main stream is alive or, if Away is set, is not (H-22);
	// zero means no change.
	Alive time.Time
	Away  bool
	// Over is a stream that has ended.
	Over StreamID
	// Check is a stream whose connection is to be checked, for at most Timeout.
	Check   StreamID
	Timeout time.Duration
	// Silence is for the log, about a Lane and an Entry.
	Silence *Silence
	// Uncertain is for the log, about a Lane and an Entry.
	Uncertain *fanout.Uncertainty
	// Excess is for the log, about a Lane and an Entry.
	Excess *Excess
	// Notice is for the log, about an Entry. So is Stopped: the Entry has stopped answering, though
	// its connection is open.
	Notice, Entry string
	Stopped       bool
	// LeftOut is how many names the Update leaves out, and First means that none was left out before;
	// for the log and a counter, about a Lane and an Entry.
	LeftOut int
	First   bool
	// Refused is a claim because of which an Entry refuses streams: the clients that make it are to be ended.
	Refused *Refusal
	// Switch means that the relay switches to another entry.
	Switch *Switch
}

// Switch says from which entry the relay switches to which, by their indexes, and why.
type Switch struct {
	From, To int
	Why      Cause
}

// Outcome is what an Effect has done to the Hub, as far as it is reported.
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
