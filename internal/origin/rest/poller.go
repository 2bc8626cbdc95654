package rest

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/origin"
)

// poller asks for one lane of a stream.
type poller struct {
	stream *stream
	lane   fanout.Lane
	wake   chan struct{} // one slot: see news
	news   atomic.Bool   // something is wanted that was not before, or was given up in between

	last *asked // run's own; nil: what was answered does not count any more
}

// asked is what was answered last.
type asked struct {
	names   []string
	version string
	sum     [sha256.Size]byte // of the body
}

// wants has the poller ask at once, and for all of its lane.
func (p *poller) wants() {
	p.news.Store(true)
	poke(p.wake)
}

// run asks at once for what is new, and then again and again.
func (p *poller) run() {
	for {
		var again <-chan time.Time
		if after, polls := p.poll(); polls {
			again = time.After(after)
		}
		select {
		case <-p.stream.ctx.Done():
			return
		case <-p.wake:
		case <-again:
		}
	}
}

// poll asks for what is wanted, and gives the answer to the Hub. It returns when to do so again; false: nothing is wanted,
// or the stream has ended.
func (p *poller) poll() (after time.Duration, polls bool) {
	st, o := p.stream, p.stream.source.o
	seen, ok := st.memory.take(st.ctx, p.lane.Type)
	if !ok {
		return 0, false
	}
	defer seen.turn.give()
	if p.news.Swap(false) {
		p.last = nil
	}
	names := st.hub.On(p.lane).Names()
	if len(names) == 0 {
		p.last = nil
		return 0, false
	}
	st.hub.On(p.lane).Asked(names)
	if p.last != nil && !slices.Equal(p.last.names, names) {
		p.last = nil
	}
	q := p.question(names)
	began := time.Now()
	ctx, done := p.untilNews(q, seen)
	a, failure := st.source.client.ask(ctx, q)
	done()
	after = time.Duration(float64(o.Poll) * (0.9 + 0.2*o.Random()))
	switch {
	case st.ctx.Err() != nil:
		return 0, false
	case errors.Is(context.Cause(ctx), errNews):
		return after, true
	case failure != nil:
		st.fails(failure)
		return 0, false
	}
	now := time.Now()
	sum := sha256.Sum256(a.body)
	if a.body == nil || p.last != nil && p.last.sum == sum {
		seen.touch(p.lane.Wildcard, names, now)
		if q.wait > 0 && now.Sub(began) >= q.wait/2 {
			after = 0 // it was the control plane that waited
		}
		return after, true
	}
	d, err := o.decode(p.lane.Type, a.body)
	if err != nil {
		st.fails(refused("POST %s: the answer %v", o.urlOf(p.lane.Type), err))
		return 0, false
	}
	p.last = &asked{names, d.version, sum}
	st.hub.Apply(p.lane, o.update(p.lane, names, d.resources, seen, now))
	return after, true
}

// question is the next request. If the control plane is shown what it answered last, it may put off its answer.
func (p *poller) question(names []string) *question {
	st := p.stream
	q := &question{typ: p.lane.Type, node: st.node, headers: st.headers}
	if !p.lane.Wildcard {
		q.names = names
	}
	if p.last != nil && p.last.version != "" {
		q.version, q.wait = p.last.version, st.source.o.Wait
	}
	return q
}

// errNews ends a request whose answer is put off.
var errNews = errors.New("something else is wanted")

// untilNews is how long a request may take: if its answer may be put off, until something else is wanted, also by another
// poller of the type. It is not put off if that is so now, or if too few connections were left for others.
func (p *poller) untilNews(q *question, seen *seen) (_ context.Context, done func()) {
	st := p.stream
	if q.wait == 0 || seen.sought() || !st.source.waits.take() {
		q.wait = 0
		return st.ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(st.ctx)
	stop, over := make(chan struct{}), make(chan struct{})
	st.source.work.Go(func() {
		defer close(over)
		select {
		case <-p.wake:
			poke(p.wake)
			cancel(errNews)
		case <-seen.knock:
			cancel(errNews)
		case <-stop:
		}
	})
	return ctx, func() {
		close(stop)
		<-over
		cancel(nil)
		st.source.waits.give()
	}
}

// oneStream is the number of the one stream on which everything comes, as far as a Hub knows.
const oneStream = 1

// update is what an answer says (REST-12): it is the answer to this request, so what it lacks and was never there does not
// exist. What was there stays, as Envoy has it, unless the type lists its whole state, or what is absent is to be removed.
func (o *Options) update(lane fanout.Lane, names []string, resources map[string]*cache.Resource, seen *seen, now time.Time) *cache.Update {
	u := &cache.Update{At: now, Stream: oneStream, First: true, Synced: lane.Wildcard}
	known := seen.lanes[lane.Wildcard]
	if lane.Wildcard {
		names = slices.Sorted(maps.Keys(resources))
		for name := range known {
			if resources[name] == nil {
				names = append(names, name)
			}
		}
		slices.Sort(names)
	} else {
		names = origin.Covered(names, maps.Values(resources), sighted(known))
	}
	keeps := !o.Remove && !o.Session.Types.Of(lane.Type).FullState
	for _, name := range names {
		r := resources[name]
		if r == nil && keeps {
			r = known[name].Resource
		}
		if r == nil {
			u.Removed = append(u.Removed, name)
			delete(known, name)
			continue
		}
		u.Set = append(u.Set, cache.Received{Resource: r, Upstream: r.Version})
		known[name] = sighting{r, now}
	}
	seen.forget(lane.Wildcard, now)
	return u
}

// touch notes that names were asked for, and that nothing has changed.
func (s *seen) touch(wildcard bool, names []string, now time.Time) {
	known := s.lanes[wildcard]
	if wildcard {
		names = slices.Collect(maps.Keys(known))
	} else {
		names = origin.Covered(names, sighted(known))
	}
	for _, name := range names {
		if of, ok := known[name]; ok {
			known[name] = sighting{of.Resource, now}
		}
	}
}
