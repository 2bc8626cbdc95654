package fanout

import (
	"sync"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// Convergence measures how long changes take from upstream to the last of the clients that they concern, in all
// groups that share it. It takes a sample: of each type of a group one response a second. The response's
// Source carries a probe to the clients, as it carries traces; so what is not in the sample costs nothing.
//
// A client is done with a change when it acknowledges or rejects a response that carries it, or something newer; when
// it turns out that there is nothing to send to it; and when it goes. Clients that subscribe later do not count.
// A client that has owed an ACK for longer than MaxConvergence does not count either: it would be the last one
// of every change.
type Convergence struct {
	mu      sync.Mutex
	open    []*cache.Probe
	skipped int
}

// MaxConvergence is how long a change is waited for.
const MaxConvergence = 5 * time.Minute

const (
	sampleEvery = time.Second
	// maxProbes bounds the changes that are waited for, over all groups.
	maxProbes = 1 << 14
)

// NewConvergence returns a Convergence that has measured nothing yet.
func NewConvergence() *Convergence { return new(Convergence) }

// Converged is a change that all its clients are done with, or was waited for in vain: After is MaxConvergence
// then.
type Converged struct {
	Type  cache.TypeURL
	After time.Duration
}

// Take returns the changes that have converged since it was called last, or were waited for in vain, and how many
// were not measured because too many others are waited for.
func (c *Convergence) Take(now time.Time) (over []Converged, skipped int) {
	c.mu.Lock()
	open := c.open
	c.open, skipped, c.skipped = nil, c.skipped, 0
	c.mu.Unlock()
	waits := open[:0]
	for _, p := range open {
		after, done := p.After()
		switch {
		case done && after == 0: // it concerned none but those who do not count
		case done:
			over = append(over, Converged{p.Type, min(after, MaxConvergence)})
		case now.Sub(p.At) > MaxConvergence:
			p.GiveUp()
			over = append(over, Converged{p.Type, MaxConvergence})
		default:
			waits = append(waits, p)
		}
	}
	clear(open[len(waits):])
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = append(waits, c.open...)
	return over, skipped
}

func (c *Convergence) add(p *cache.Probe) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) >= maxProbes {
		p.GiveUp()
		c.skipped++
		return
	}
	c.open = append(c.open, p)
}

// sample gives the source of an update a probe, if it is time for one; nil: it is not.
func (x *index) sample(source *cache.Source) (*cache.Source, *cache.Probe) {
	if x.hub.config.Convergence == nil || source == nil || source.At.Sub(x.sampled) < sampleEvery {
		return source, nil
	}
	p := &cache.Probe{Type: x.url, At: source.At}
	return source.Probed(p), p
}

// measure begins to wait for the clients for which the change of a probe is marked. None of them can have looked
// yet, since the index is locked.
func (x *index) measure(p *cache.Probe) {
	if p == nil || x.marks.measured == 0 {
		return
	}
	x.sampled = p.At
	p.Concerns(x.marks.measured)
	x.hub.config.Convergence.add(p)
}
