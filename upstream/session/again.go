package session

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// What is asked for once more for the sake of a body that is not kept (VALID-5).

// insistAfter is how long a subscription that was repeated may stay unanswered. Then
// it is given up and begun again: some servers answer nothing else (VALID-5).
const insistAfter = time.Second

// insist gives up subscriptions whose repetition was not answered, and begins them again.
func (l *laneState) insist(now time.Time) {
	if l.insistAt.IsZero() || l.insistAt.After(now) {
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

// answers takes note of the names that a response answers.
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

// keepAll has bodies kept that are not to be: a SotW server has no way to be asked
// for one again but to send all, and clients would wait for ever (VALID-5).
func (d *Response) keepAll() {
	for i, r := range d.Update.Set {
		d.Update.Set[i].Resource = r.Cacheable()
	}
}
