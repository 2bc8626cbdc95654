package session

import (
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
	for name, written := range l.again {
		switch {
		case written.IsZero():
		case now.Before(written.Add(insistAfter)):
			l.insistAt = earlier(l.insistAt, written.Add(insistAfter))
		default:
			l.drop.add(name)
			l.want.add(name)
			delete(l.again, name)
			l.insisted.begin(name, now)
		}
	}
}

// answers deletes the names that a response answers.
func (l *laneState) answers(u *cache.Update) {
	if len(l.again) == 0 {
		return
	}
	for _, r := range u.Set {
		delete(l.again, r.Name)
		for _, alias := range r.Aliases {
			delete(l.again, alias)
		}
		if r.DoNotCache && l.lane.Wildcard {
			delete(l.again, fanout.Wildcard)
		}
	}
	for _, name := range u.Removed {
		delete(l.again, name)
	}
	for _, e := range u.Errors {
		delete(l.again, e.Name)
	}
}

// keepAll makes all bodies cacheable. A SotW server cannot be asked for a single one of them
// again, and clients would wait for it for ever (VALID-5).
func (d *Response) keepAll() {
	for i, r := range d.Update.Set {
		d.Update.Set[i].Resource = r.Cacheable()
	}
}
