package tracing

import (
	"container/list"
	"sync"
	"time"

	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/upstream"
)

// update is what is kept of one response of the control plane.
type update struct {
	// Set once. place is guarded by the Tracer's mutex.
	tracer *Tracer
	rootID
	in     upstream.Received
	chosen bool // by the ratio
	place  *list.Element

	// After mu comes no lock but the Tracer's.
	mu      sync.Mutex
	over    bool // nothing changes any more
	decided bool // kept says whether it is exported although it is not chosen
	kept    bool

	// What the Hub did with it.
	begins, ends time.Time
	whole        bool // it has done so
	nack         string

	// The clients that it concerns, and their verdicts.
	counts  counts
	waiting map[*downstream.Push]struct{} // for their verdict
	slowest []outcome                     // with a verdict, in no order
	nacks   []outcome
	last    time.Time // of the verdicts
	ended   time.Time
}

// counts are numbers of clients.
type counts struct {
	concerned                                     int
	acked, nacked, replaced, gone, untold, behind int
}

// settled are the clients whose part in the update is over.
func (c counts) settled() int { return c.acked + c.nacked + c.replaced + c.gone + c.untold + c.behind }

// outcome is a response to a client and what became of it; waits: nothing, yet.
type outcome struct {
	*downstream.Push
	downstream.Judgement
	waits bool
}

// change makes a change unless the update is over, and ends it if that was all.
func (u *update) change(f func()) (made bool) {
	u.mu.Lock()
	if u.over {
		u.mu.Unlock()
		return false
	}
	f()
	complete := u.whole && u.counts.settled() >= u.counts.concerned
	u.mu.Unlock()
	if complete {
		u.tracer.leave(u)
		u.end(time.Now())
	}
	return true
}

func (u *update) applied(a upstream.Application) {
	u.change(func() {
		if u.begins.IsZero() {
			u.begins = a.Begins
		}
		u.ends = a.Ends
		u.counts.concerned += a.Concerned + a.Behind
		u.counts.behind += a.Behind
	})
}

func (u *update) taken(nack string) {
	u.change(func() { u.whole, u.nack = true, nack })
}

func (u *update) pushed(p *downstream.Push) {
	u.change(func() {
		if u.waiting == nil {
			u.waiting = make(map[*downstream.Push]struct{})
		}
		u.waiting[p] = struct{}{}
	})
}

func (u *update) untold(behind bool) {
	u.change(func() {
		if behind {
			u.counts.behind++
		} else {
			u.counts.untold++
		}
	})
}

// judged takes in a verdict. A rejection that comes after the update is over is exported by
// itself.
func (u *update) judged(p *downstream.Push, j downstream.Judgement) {
	taken := u.change(func() {
		delete(u.waiting, p)
		this := outcome{Push: p, Judgement: j}
		if j.End == downstream.PushNacked && len(u.nacks) < u.tracer.limits.Nacks {
			u.nacks = append(u.nacks, this)
		} else {
			u.rank(this)
		}
		if j.End == downstream.PushAcked || j.End == downstream.PushNacked {
			u.last = latest(u.last, j.At)
		}
		if p.Partial {
			return // the last part settles
		}
		switch j.End {
		case downstream.PushAcked:
			u.counts.acked++
		case downstream.PushNacked:
			u.counts.nacked++
		case downstream.PushReplaced:
			u.counts.replaced++
		case downstream.PushGone:
			u.counts.gone++
		}
	})
	if !taken && j.End == downstream.PushNacked && u.tracer.options.Nacks && u.tracer.always.Allow() {
		u.tracer.put(&lateNack{newRootID(), outcome{Push: p, Judgement: j}})
	}
}

// rank keeps a response if it is among the slowest.
func (u *update) rank(p outcome) {
	if len(u.slowest) < u.tracer.limits.Slowest {
		u.slowest = append(u.slowest, p)
		return
	}
	first := 0
	for i := range u.slowest {
		if u.slowest[i].At.Before(u.slowest[first].At) {
			first = i
		}
	}
	if p.At.After(u.slowest[first].At) {
		u.slowest[first] = p
	}
}

// keep decides, once, whether it is exported though the ratio has not chosen it.
func (u *update) keep() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.keepLocked()
}

func (u *update) keepLocked() bool {
	if !u.decided && !u.over {
		u.decided, u.kept = true, u.tracer.always.Allow()
	}
	return u.kept
}

// end decides what becomes of it. It is not on the Tracer's list any more.
func (u *update) end(now time.Time) {
	u.mu.Lock()
	if u.over {
		u.mu.Unlock()
		return
	}
	u.ended = now
	wanted := u.chosen || u.kept || u.remarkable() && u.keepLocked()
	u.over = true
	u.mu.Unlock()
	if !wanted || !u.tracer.put(u) {
		u.clear()
	}
}

// clear releases the large fields: clients that lag keep the update itself alive.
func (u *update) clear() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.waiting, u.slowest, u.nacks = nil, nil, nil
}

// remarkable: it is exported whatever the ratio.
func (u *update) remarkable() bool {
	o := u.tracer.options
	last := u.last
	if u.counts.settled() < u.counts.concerned {
		last = u.ended // somebody still has not answered
	}
	return o.Nacks && u.counts.nacked+len(u.nacks) > 0 || o.Slow && last.Sub(u.in.At) >= o.SlowAfter
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
