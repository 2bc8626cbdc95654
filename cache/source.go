package cache

import (
	"slices"
	"time"
)

// Source is the update that a change came with, or several updates whose changes go out in one
// response. It never changes once made, so that all clients that an update concerns share one.
type Source struct {
	// At is when the oldest of the updates was received.
	At time.Time
	// Traces follow the updates, oldest first; none: nobody traces.
	Traces []Trace
	// Left counts the updates that are not among Traces for want of room.
	Left int

	latest Trace    // the last to be added, be it listed or not
	probes []*Probe // measure how long the updates take, oldest first
}

// Trace is a tracer's own record of one update. Nobody else looks into it.
type Trace any

// maxTraces bounds the updates that are listed in a Source: a client that does not read
// may be behind any number of them.
const maxTraces = 32

// NewSource is the source of what one update changes. trace is nil if nobody traces.
func NewSource(at time.Time, trace Trace) *Source {
	s := &Source{At: at, latest: trace}
	if trace != nil {
		s.Traces = []Trace{trace}
	}
	return s
}

// List are the traces that follow it, oldest first. The source may be nil.
func (s *Source) List() []Trace {
	if s == nil {
		return nil
	}
	return s.Traces
}

// Traced reports whether anybody traces it.
func (s *Source) Traced() bool { return s != nil && len(s.Traces) > 0 }

// Adds reports whether With makes another source of s: whether a later one, of one
// update, says something that s does not.
func (s *Source) Adds(later *Source) bool {
	if s == nil || later == nil {
		return later != nil
	}
	return s.AddsTrace(later) || s.AddsProbe(later)
}

// AddsTrace reports whether a later source has a trace that s, which may be nil, has not.
func (s *Source) AddsTrace(later *Source) bool {
	last := later.last()
	return last != nil && last != s.last()
}

// last returns the latest trace of s, which may be nil.
func (s *Source) last() Trace {
	if s == nil {
		return nil
	}
	return s.latest
}

// Fits reports whether there is room for the traces of a later source.
func (s *Source) Fits(later *Source) bool {
	return len(s.List())+len(later.List()) <= maxTraces
}

// With joins s and a later source. Either may be nil. If the later one does not fit, its
// traces are only counted.
func (s *Source) With(later *Source) *Source {
	switch {
	case s == nil:
		return later
	case !s.Adds(later):
		return s
	}
	both := *s
	if s.AddsProbe(later) {
		both.probes = probesOf(s, later)
	}
	if !s.AddsTrace(later) {
		return &both
	}
	both.latest, both.Left = later.latest, s.Left+later.Left
	if s.Fits(later) {
		both.Traces = slices.Concat(s.Traces, later.Traces)
	} else {
		both.Left += len(later.Traces)
	}
	return &both
}
