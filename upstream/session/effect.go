package session

import (
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Effect is something that Core has learned: one of the structs of this file, or a [Silence], [Answered], [Excess]
// or [Refusal]. The caller carries out Effects in order, outside of the lock of Core, and before it reports the
// next event of a stream.
type Effect interface {
	// Apply changes the Hub, if the Effect is about it.
	Apply(hub *fanout.Hub) Outcome
}

// Outcome is what an Effect has done to the Hub, as far as it is reported.
type Outcome struct {
	fanout.Applied
	Lapses map[cache.TypeURL]fanout.Lapse
}

// toEdge is embedded in the Effects that leave the Hub as it is: they are for the log, for a counter, or
// something to do.
type toEdge struct{}

// Apply does nothing.
func (toEdge) Apply(*fanout.Hub) (o Outcome) { return o }

// Learned is an update of a lane, for the Hub.
type Learned struct {
	Lane   fanout.Lane
	Update *cache.Update
	// Prefetch are the types of which names that the resources mention are asked for before a client does (UP-28).
	Prefetch []cache.TypeURL
}

// Apply gives the update to the Hub.
func (e Learned) Apply(hub *fanout.Hub) Outcome {
	return Outcome{Applied: hub.Apply(e.Lane, e.Update, e.Prefetch...)}
}

// Early says that what has come of a wildcard's set may be sent (RECON-16).
type Early struct{ Lane fanout.Lane }

// Apply has the Hub send it.
func (e Early) Apply(hub *fanout.Hub) (o Outcome) {
	hub.On(e.Lane).SendEarly()
	return o
}

// Filled is an update of a lane by the last resort (UP-26).
type Filled struct {
	Lane   fanout.Lane
	Update *cache.Update
}

// Apply has the Hub fill what it lacks.
func (e Filled) Apply(hub *fanout.Hub) (o Outcome) {
	hub.Fill(e.Lane, e.Update)
	return o
}

// Elapsed has the Hub look at the TTLs and the held removals that have run out by a time (TTL-2, H-22).
type Elapsed struct{ Now time.Time }

// Apply carries out what has run out.
func (e Elapsed) Apply(hub *fanout.Hub) Outcome { return Outcome{Lapses: hub.Lapse(e.Now)} }

// Availability is whether clients of a lane get an error in place of what is missing (ERR-7).
type Availability struct {
	Lane   fanout.Lane
	Status *statuspb.Status // nil: the lane is available
}

// Apply tells the clients of the lane.
func (e Availability) Apply(hub *fanout.Hub) (o Outcome) {
	hub.On(e.Lane).SetUnavailable(e.Status)
	return o
}

// Resolution says that a type was convicted, so that it is asked for alone, or acquitted (H-39).
type Resolution struct {
	Type      cache.TypeURL
	Convicted bool
}

// Apply notes in the Hub whether the type is a suspect.
func (e Resolution) Apply(hub *fanout.Hub) (o Outcome) {
	hub.Of(e.Type).SetSuspect(e.Convicted)
	return o
}

// Identified is the control plane's new identifier.
type Identified struct{ Identifier string }

// Apply notes the identifier in the Hub.
func (e Identified) Apply(hub *fanout.Hub) (o Outcome) {
	hub.SetIdentifier(e.Identifier)
	return o
}

// Liveness says that the main stream is alive since a time, or is not (H-22).
type Liveness struct {
	Alive bool
	Since time.Time
}

// Apply has the time for which removals are held run, or stand still.
func (e Liveness) Apply(hub *fanout.Hub) (o Outcome) {
	hub.Alive(e.Alive, e.Since)
	return o
}

// Over is a stream that has ended.
type Over struct{ Stream StreamID }

// Apply has the Hub forget the stream.
func (e Over) Apply(hub *fanout.Hub) (o Outcome) {
	hub.Over(uint64(e.Stream))
	return o
}

// CheckDue is a stream whose connection is to be checked, for at most Timeout (MISS-3).
type CheckDue struct {
	toEdge
	Stream  StreamID
	Timeout time.Duration
}

// Dropped is the reason for which a response, or a part of it, was not used, for a counter.
type Dropped struct {
	toEdge
	Reason string
}

// Uncertain says that clients keep what they have, since the control plane announced resources that cannot
// be used (ERR-10).
type Uncertain struct {
	toEdge
	fanout.Uncertainty
	Lane  fanout.Lane
	Entry string
}

// LeftOut says that so many more names of a lane were left out of its list, and whether none was before (UP-17).
type LeftOut struct {
	toEdge
	Lane  fanout.Lane
	Entry string
	Names int
	First bool
}

// Notice is a fact about an Entry that the log says once.
type Notice struct {
	toEdge
	Entry, Text string
}

// Stopped says that an Entry has stopped answering, though its connection is open.
type Stopped struct {
	toEdge
	Entry string
}

// Switch says from which entry the relay switches to which, by their indexes, and why.
type Switch struct {
	toEdge
	From, To int
	Why      Cause
}

// emit adds to what Core has learned.
func (c *Core) emit(e Effect) { c.effects = append(c.effects, e) }

// notice has the log say a fact about an entry, once.
func (c *Core) notice(e *entry, text string) { c.emit(Notice{Entry: e.Name, Text: text}) }
