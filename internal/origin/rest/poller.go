package rest

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// poller asks for one type of a stream.
type poller struct {
	stream *stream
	typ    cache.TypeURL
	wake   chan struct{} // one slot: something is wanted that was not before

	mu   sync.Mutex
	news map[bool]bool // by wildcard: something is wanted that was not before, or was given up in between

	lanes map[bool]*asked // by wildcard; run's own
}

// wants has the poller ask for a lane at once, and for all of it.
func (p *poller) wants(lane fanout.Lane) {
	p.mu.Lock()
	p.news[lane.Wildcard] = true
	p.mu.Unlock()
	poke(p.wake)
}

// renews reports whether what was answered last on a lane does not count any more.
func (p *poller) renews(wildcard bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer delete(p.news, wildcard)
	return p.news[wildcard]
}

// asked is what was answered last on a lane.
type asked struct {
	names   []string
	version string
	sum     [sha256.Size]byte // of the body
}

// errNews ends a request whose answer is put off.
var errNews = errors.New("something else is wanted")

// run asks at once for what is new, and then again and again.
func (p *poller) run() {
	for {
		var again <-chan time.Time
		if after, polls := p.round(); polls {
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

// round asks for what is wanted of the type, by name and by the wildcard. It returns when to do so again; false: nothing
// is wanted, or the stream has ended.
func (p *poller) round() (after time.Duration, polls bool) {
	o := p.stream.source.o
	seen, ok := p.stream.memory.take(p.stream.ctx, p.typ)
	if !ok {
		return 0, false
	}
	defer seen.give()
	var wanted []fanout.Lane
	for _, wildcard := range []bool{true, false} {
		lane := fanout.Lane{Type: p.typ, Wildcard: wildcard}
		if len(p.stream.hub.On(lane).Names()) > 0 {
			wanted = append(wanted, lane)
		} else {
			delete(p.lanes, wildcard)
		}
	}
	after = time.Duration(float64(o.Poll) * (0.9 + 0.2*o.Random()))
	for _, lane := range wanted {
		wait := o.Wait
		if len(wanted) > 1 {
			wait = 0 // the other one would wait as long
		}
		began := time.Now()
		waited, ok := p.ask(lane, wait, seen)
		if !ok {
			return 0, false
		}
		if waited && time.Since(began) >= wait/2 {
			after = 0 // it was the control plane that waited
		}
	}
	return after, len(wanted) > 0
}

// ask asks for what is wanted on a lane, and gives the answer to the Hub. waited: the answer might be put off, and says
// that nothing has changed; false: the stream has ended.
func (p *poller) ask(lane fanout.Lane, wait time.Duration, seen *seen) (waited, ok bool) {
	st := p.stream
	if p.renews(lane.Wildcard) {
		delete(p.lanes, lane.Wildcard)
	}
	names := st.hub.On(lane).Names()
	st.hub.On(lane).Asked(names)
	q := &question{typ: p.typ, node: st.node, headers: st.headers}
	if !lane.Wildcard {
		q.names = names
	}
	before := p.lanes[lane.Wildcard]
	if before != nil && slices.Equal(before.names, names) {
		q.version, q.wait = before.version, wait
	} else {
		before = nil
	}
	if q.version == "" {
		q.wait = 0
	}
	ctx, done := p.untilNews(q)
	a, failure := st.source.client.ask(ctx, q)
	done()
	switch {
	case st.ctx.Err() != nil:
		return false, false
	case errors.Is(context.Cause(ctx), errNews):
		return false, true
	case failure != nil:
		st.fails(failure)
		return false, false
	}
	now := time.Now()
	sum := sha256.Sum256(a.body)
	if a.body == nil || before != nil && before.sum == sum {
		seen.touch(lane.Wildcard, names, now)
		return q.wait > 0, true
	}
	d, err := st.source.o.decode(p.typ, a.body)
	if err != nil {
		st.fails(refused("POST %s: the answer %v", st.source.o.urlOf(p.typ), err))
		return false, false
	}
	p.lanes[lane.Wildcard] = &asked{names, d.version, sum}
	st.hub.Apply(lane, st.source.o.update(lane, names, d.resources, seen, now))
	return false, true
}

// untilNews is how long a request may take: if its answer may be put off, until something else is wanted.
func (p *poller) untilNews(q *question) (_ context.Context, done func()) {
	if q.wait == 0 {
		return p.stream.ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(p.stream.ctx)
	stop, over := make(chan struct{}), make(chan struct{})
	p.stream.source.work.Go(func() {
		defer close(over)
		select {
		case <-p.wake:
			poke(p.wake)
			cancel(errNews)
		case <-stop:
		}
	})
	return ctx, func() {
		close(stop)
		<-over
		cancel(nil)
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
	}
	for _, name := range names {
		if of, ok := known[name]; ok {
			known[name] = sighting{of.Resource, now}
		}
	}
}
