package session

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// When a client needs a body that is not kept, the relay repeats the subscribe (VALID-5).

// insistAfter is how long a repeated subscribe may stay unanswered. After that the name is
// unsubscribed and subscribed again, since some servers answer nothing else (VALID-5).
const insistAfter = time.Second

// insist unsubscribes and subscribes again the names whose repeated subscribe is overdue.
func (l *laneState) insist(now time.Time) {
	if !due(l.insistAt, now) {
		return
	}
	l.insistAt = time.Time{}
	for name, written := range l.repeats {
		switch {
		case written.IsZero():
		case now.Before(written.Add(insistAfter)):
			l.insistAt = earlier(l.insistAt, written.Add(insistAfter))
		default:
			l.drop.add(name)
			l.want.add(name)
			delete(l.repeats, name)
			l.insisted.begin(name, now)
		}
	}
}

// answers deletes the names that a response answers.
func (l *laneState) answers(u *cache.Update) {
	if len(l.repeats) == 0 {
		return
	}
	for _, r := range u.Set {
		for name := range r.Names() {
			delete(l.repeats, name)
		}
		if r.DoNotCache && l.lane.Wildcard {
			delete(l.repeats, fanout.Wildcard)
		}
	}
	for _, name := range u.Removed {
		delete(l.repeats, name)
	}
	for _, e := range u.Errors {
		delete(l.repeats, e.Name)
	}
}

// insisted has the names of a lane that were unsubscribed and subscribed again to get a body
// (VALID-5). Some servers answer the unsubscribe with a removal, although the resource exists.
// Such a removal counts only if the subscribe has no other answer within insistAfter (UP-19).
type insisted struct {
	// until has the names, with the time from which a removal counts at once.
	until map[string]time.Time
	// removed has the resources that were removed before that, and when the removal counts.
	// If the wildcard was subscribed again, it can be any resource.
	removed map[string]time.Time
	// lookAt is when to call over, or zero.
	lookAt time.Time
}

// begin notes that a name is about to be unsubscribed and subscribed again.
func (i *insisted) begin(name string, now time.Time) {
	if i.until == nil {
		i.until, i.removed = make(map[string]time.Time), make(map[string]time.Time)
	}
	i.until[name] = now.Add(insistAfter)
	i.lookAt = earlier(i.lookAt, now.Add(insistAfter))
}

// answers deletes the names that a response answers, and holds back removals that may answer
// only the unsubscribe.
func (i *insisted) answers(u *cache.Update) {
	if len(i.until)+len(i.removed) == 0 {
		return
	}
	answered(u, func(name string) {
		delete(i.until, name)
		delete(i.removed, name)
	})
	u.Removed = slices.DeleteFunc(u.Removed, func(name string) bool {
		until, mayAnswerOld := i.until[name]
		if all, wildcard := i.until[fanout.Wildcard]; wildcard {
			until, mayAnswerOld = all, true
		}
		if mayAnswerOld {
			i.removed[name] = until
		}
		return mayAnswerOld
	})
}

// over returns the held removals that count now.
func (i *insisted) over(now time.Time) (removed []string) {
	if !due(i.lookAt, now) {
		return nil
	}
	i.lookAt = time.Time{}
	take := func(held map[string]time.Time) (over []string) {
		for name, at := range held {
			if at.After(now) {
				i.lookAt = earlier(i.lookAt, at)
				continue
			}
			over = append(over, name)
			delete(held, name)
		}
		return over
	}
	take(i.until)
	return slices.Sorted(slices.Values(take(i.removed)))
}
