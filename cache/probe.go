package cache

import (
	"sync/atomic"
	"time"
)

// Probe measures how long one change takes to the last of the clients that it concerns. It goes with the
// change, in its Source. Its methods may be called from any goroutine.
type Probe struct {
	Type TypeURL
	// At is when the change was received.
	At time.Time

	left atomic.Int64 // clients that are not done with the change
	last atomic.Int64 // how long the slowest of the others took, in ns; 0: there are none
	over atomic.Bool  // nobody waits for them any more
}

// Concerns sets how many clients the change concerns, before any of them can be done with it.
func (p *Probe) Concerns(clients int) { p.left.Store(int64(clients)) }

// After returns how long the change took to the last client; 0: all have left. done: all clients are done with it.
func (p *Probe) After() (after time.Duration, done bool) {
	done = p.left.Load() == 0
	return time.Duration(p.last.Load()), done
}

// GiveUp ends the measurement: clients that are not done need not remember it.
func (p *Probe) GiveUp() { p.over.Store(true) }

func (p *Probe) done(now time.Time) {
	after := max(int64(now.Sub(p.At)), 1)
	for last := p.last.Load(); after > last && !p.last.CompareAndSwap(last, after); last = p.last.Load() {
	}
	p.left.Add(-1)
}

// Probed is the source with a probe.
func (s *Source) Probed(p *Probe) *Source {
	with := *s
	with.probes = []*Probe{p}
	return &with
}

// Measured reports whether a probe goes with it. The source may be nil.
func (s *Source) Measured() bool { return s != nil && len(s.probes) > 0 }

// Done notes that a client is done with the changes: it has accepted or rejected them, has gone, or there was
// nothing to send to it. The source may be nil, and is not to be used for that client any more.
func (s *Source) Done(now time.Time) {
	if s != nil {
		for _, p := range s.probes {
			p.done(now)
		}
	}
}

// Leave notes that a client is left out of what is measured. The source may be nil, and is used for that client without
// its probes from now on.
func (s *Source) Leave() *Source {
	if s.Measured() {
		for _, p := range s.probes {
			p.left.Add(-1)
		}
	}
	return s.Unmeasured()
}

// Unmeasured is the source without probes. The source may be nil.
func (s *Source) Unmeasured() *Source {
	if !s.Measured() {
		return s
	}
	without := *s
	without.probes = nil
	return &without
}

// AddsProbe reports whether With adds a probe to s, which may be nil.
func (s *Source) AddsProbe(later *Source) bool {
	return later.Measured() && !(s.Measured() && s.probes[len(s.probes)-1] == later.probes[len(later.probes)-1])
}

// probesOf returns the probes of both that somebody waits for. There is one a second at most, and each is
// given up after some minutes, so they are bounded.
func probesOf(s, later *Source) []*Probe {
	both := make([]*Probe, 0, len(s.probes)+len(later.probes)) // each client that does not read keeps its own
	for _, of := range []*Source{s, later} {
		for _, p := range of.probes {
			if !p.over.Load() {
				both = append(both, p)
			}
		}
	}
	return both
}
