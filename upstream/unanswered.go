package upstream

import (
	"cmp"
	"maps"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
)

// Names to which upstream has not answered, or that it does not have, are asked for
// again: as an unsubscribe, and in the next request a subscribe (UP-19). Servers remember
// for each stream what they have sent. Some leave a later subscribe to it unanswered;
// some never again announce what they have removed, unless it is subscribed anew.

const (
	// retryFirst is how long after a name became Absent it is asked for again, at
	// intervals that double from there up to retryMax.
	retryFirst = 5 * time.Second
	retryMax   = 5 * time.Minute
	// pairEvery is how often a type is asked for again.
	pairEvery = time.Second
)

// maxPair is how many names one pair of requests has, and maxPairBytes how long they may
// be together.
var (
	maxPair      = 1000
	maxPairBytes = 64 << 10
)

// unanswered is what a lane of names asks for again on a Delta stream. It dies with the
// stream.
type unanswered struct {
	on bool // wildcards, SotW servers and relays are not asked again

	// silent are questions whose names are looked at when a third of the time that the
	// answer may take is over, in order of time.
	silent []nameTimer
	// absent are names that upstream does not have. They are looked up when something
	// may have become so: lookAt, because of what was learned at learned; zero: never.
	absent          map[string]*retry
	lookAt, learned time.Time

	// due are names to be asked for before their silence counts, anew those whose timer
	// begins then (WILD-11).
	due  []string
	anew map[string]struct{}
	// pair is what is being asked for again: not unsubscribed yet, or, if given, not yet
	// subscribed.
	pair     []string
	given    bool
	pairedAt time.Time
	// deaf are names that were unsubscribed for that, and not answered since: that they
	// are removed is no answer, since some servers say so to an unsubscribe.
	deaf map[string]struct{}
	// shown are names that upstream believes delivered on this stream: another one is
	// needed (refresh).
	shown []string
}

// retry is when a name that upstream does not have is asked for again.
type retry struct {
	at   time.Time
	wait time.Duration
}

// asks notes that names were asked for, and may stay unanswered.
func (u *unanswered) asks(q nameTimer) {
	if u.on {
		u.silent = append(u.silent, q)
	}
}

// mayLack notes that something of the type may have become Absent.
func (u *unanswered) mayLack(now time.Time) {
	if u.on && u.lookAt.IsZero() {
		u.learned, u.lookAt = now, now.Add(pairEvery) // at most as often as a pair goes out
	}
}

// answers takes note of what a response says, and takes out what is none: the removal of
// a name that was given up only to be asked for again.
func (u *unanswered) answers(up *cache.Update) {
	if len(u.deaf) > 0 {
		for _, r := range up.Set {
			delete(u.deaf, r.Name)
			for _, alias := range r.Aliases {
				delete(u.deaf, alias)
			}
		}
		for _, e := range up.Errors {
			delete(u.deaf, e.Name)
		}
		up.Removed = slices.DeleteFunc(up.Removed, func(name string) bool {
			_, deaf := u.deaf[name]
			return deaf
		})
	}
	if len(up.Removed)+len(up.Errors) > 0 {
		u.mayLack(up.At)
	}
}

// refreshFor has names asked for on another stream.
func (u *unanswered) refreshFor(names []string) {
	if u.on {
		u.shown = append(u.shown, names...)
	}
}

// begin has a name asked for as if it had not been.
func (u *unanswered) begin(name string) {
	if !u.on {
		return
	}
	if u.anew == nil {
		u.anew = make(map[string]struct{})
	}
	u.anew[name] = struct{}{}
	u.due = append(u.due, name)
}

// forget takes out a name that is given up. unsubscribed: it is already.
func (u *unanswered) forget(name string) (unsubscribed bool) {
	delete(u.deaf, name)
	delete(u.absent, name)
	delete(u.anew, name)
	if i := slices.Index(u.pair, name); i >= 0 {
		u.pair, unsubscribed = slices.Delete(u.pair, i, i+1), u.given
	}
	return unsubscribed
}

// tick decides what is to be asked for again. silent are those of some names that nothing
// was said of, and of these the ones that were shown on this stream.
func (u *unanswered) tick(patience time.Duration, now time.Time,
	silent func([]string) (silent, shown []string), absentees func() []string) {
	for len(u.silent) > 0 && !u.silent[0].written.Add(patience).After(now) {
		names, shown := silent(u.silent[0].current())
		u.due, u.shown = append(u.due, names...), append(u.shown, shown...)
		u.silent = u.silent[1:]
	}
	if !u.lookAt.IsZero() && !u.lookAt.After(now) {
		u.look(absentees())
	}
	if u.pair != nil || now.Before(u.pairedAt.Add(pairEvery)) {
		return
	}
	if len(u.due) == 0 && u.retryAt().After(now) {
		return
	}
	u.choose(now)
}

// look takes in which names are Absent by now.
func (u *unanswered) look(names []string) {
	absent := make(map[string]*retry, len(names))
	for _, name := range names {
		if absent[name] = u.absent[name]; absent[name] == nil {
			absent[name] = &retry{u.learned.Add(retryFirst), retryFirst}
		}
	}
	u.absent, u.lookAt = absent, time.Time{}
}

// retryAt is when a name that is Absent is to be asked for again; if none is, long after
// everything.
func (u *unanswered) retryAt() time.Time {
	at := time.Unix(1<<40, 0)
	for _, r := range u.absent {
		if r.at.Before(at) {
			at = r.at
		}
	}
	return at
}

// choose makes a pair of what is due: names whose silence is about to count first, then
// those that have not been asked for longest.
func (u *unanswered) choose(now time.Time) {
	bytes, chosen := 0, make(map[string]bool)
	add := func(name string) (fits bool) {
		if chosen[name] {
			return true
		}
		bytes += len(name) + 8
		if len(u.pair) == maxPair || len(u.pair) > 0 && bytes > maxPairBytes {
			return false
		}
		chosen[name] = true
		u.pair = append(u.pair, name)
		return true
	}
	for len(u.due) > 0 {
		if !add(u.due[0]) {
			return
		}
		u.due = u.due[1:]
	}
	late := slices.SortedFunc(maps.Keys(u.absent), func(a, b string) int {
		return cmp.Or(u.absent[a].at.Compare(u.absent[b].at), cmp.Compare(a, b))
	})
	for _, name := range late {
		r := u.absent[name]
		if r.at.After(now) || !add(name) {
			return
		}
		r.wait = min(2*r.wait, retryMax)
		r.at = now.Add(r.wait)
	}
}

// deadline is when to tick, or zero.
func (u *unanswered) deadline(patience time.Duration) (at time.Time) {
	if len(u.silent) > 0 {
		at = u.silent[0].written.Add(patience)
	}
	at = earlier(at, u.lookAt)
	if u.pair != nil {
		return at
	}
	next := u.pairedAt.Add(pairEvery)
	if len(u.due) > 0 {
		return earlier(at, next)
	}
	if len(u.absent) > 0 {
		at = earlier(at, latest(next, u.retryAt()))
	}
	return at
}

// askAgain is the next request that asks again, or nil. What there is no room for is due
// still (UP-17).
func (s *streamState) askAgain(l *laneState, r *room, now time.Time) *discovery.DeltaDiscoveryRequest {
	u := &l.unanswered
	u.pair = slices.DeleteFunc(u.pair, func(name string) bool { return !l.subscribed(name) })
	if !u.given {
		u.pair = s.hub.Lacking(l.lane.Type, u.pair) // what was answered meanwhile is not given up
		for i, name := range u.pair {
			if !r.take(nameSize(name)) {
				u.pair, u.due = u.pair[:i], slices.Concat(u.pair[i:], u.due)
				break
			}
		}
	}
	if len(u.pair) == 0 {
		u.pair, u.given = nil, false
		return nil
	}
	names := slices.Sorted(slices.Values(u.pair))
	req := &discovery.DeltaDiscoveryRequest{TypeUrl: string(l.lane.Type)}
	if !u.given {
		if u.deaf == nil {
			u.deaf = make(map[string]struct{})
		}
		for _, name := range names {
			u.deaf[name] = struct{}{}
		}
		u.given, u.pairedAt = true, now
		req.ResourceNamesUnsubscribe = names
		return req
	}
	u.pair, u.given = nil, false
	req.ResourceNamesSubscribe = names
	s.beginAnew(l, names, now)
	return req
}

// beginAnew lets the timers of those names begin of which only silence from now on
// counts. Those of the others go on from their first subscribe.
func (s *streamState) beginAnew(l *laneState, names []string, now time.Time) {
	var anew []string
	for _, name := range names {
		if _, is := l.unanswered.anew[name]; is {
			delete(l.unanswered.anew, name)
			anew = append(anew, name)
		}
	}
	if len(anew) > 0 {
		s.subscribed(l, anew, now)
	}
}
