package upstream

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// What is asked for once more for the sake of a body that is not kept (VALID-5).

// insistAfter is how long a subscription that was repeated may stay unanswered. Then
// it is given up and begun anew: some servers answer nothing else (VALID-5).
const insistAfter = time.Second

// insistence is what a lane keeps of the subscriptions that it began anew. Some servers
// answer an unsubscribe with a removal: nobody is told of it unless the subscribe that
// follows has no other answer for as long.
type insistence struct {
	// until are the names, with the time at which a removal is one again.
	until map[string]time.Time
	// removed are those that were removed meanwhile, and when that counts. With the
	// wildcard it may be any.
	removed map[string]time.Time
	// at is when to look at them, at the latest when the first of them is over; zero: there
	// are none.
	at time.Time
}

// begin notes that a name is unsubscribed and subscribed.
func (i *insistence) begin(name string, now time.Time) {
	if i.until == nil {
		i.until, i.removed = make(map[string]time.Time), make(map[string]time.Time)
	}
	i.until[name] = now.Add(insistAfter)
	i.at = earlier(i.at, i.until[name])
}

// answered notes that upstream has said of a name what it is.
func (i *insistence) answered(name string) {
	delete(i.until, name)
	delete(i.removed, name)
}

// doubts takes note of a removal that may answer an unsubscribe.
func (i *insistence) doubts(name string) bool {
	until, doubts := i.until[name]
	if all, wildcard := i.until[fanout.Wildcard]; wildcard {
		until, doubts = all, true
	}
	if doubts {
		i.removed[name] = until
	}
	return doubts
}

// over are the removals that count by now.
func (i *insistence) over(now time.Time) (removed []string) {
	if i.at.IsZero() || i.at.After(now) {
		return nil
	}
	i.at = time.Time{}
	for name, at := range i.removed {
		if !at.After(now) {
			removed = append(removed, name)
			delete(i.removed, name)
		} else {
			i.at = earlier(i.at, at)
		}
	}
	for name, at := range i.until {
		if !at.After(now) {
			delete(i.until, name)
		} else {
			i.at = earlier(i.at, at)
		}
	}
	slices.Sort(removed)
	return removed
}

// insist begins subscriptions anew whose repetition was not answered. It returns the names
// that are removed after all.
func (l *laneState) insist(now time.Time) (removed []string) {
	if l.insistAt.IsZero() || l.insistAt.After(now) {
		return l.insisted.over(now)
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
	return l.insisted.over(now)
}

// answers takes note of the names that a response answers, and takes out removals that may be
// no answer.
func (l *laneState) answers(u *cache.Update) {
	if len(l.again)+len(l.insisted.until)+len(l.insisted.removed) == 0 {
		return
	}
	answered := func(name string) {
		delete(l.again, name)
		l.insisted.answered(name)
	}
	for _, r := range u.Set {
		answered(r.Name)
		for _, alias := range r.Aliases {
			answered(alias)
		}
		if r.DoNotCache && l.lane.Wildcard {
			delete(l.again, fanout.Wildcard)
		}
	}
	for _, e := range u.Errors {
		answered(e.Name)
	}
	for _, name := range u.Removed {
		delete(l.again, name)
	}
	u.Removed = slices.DeleteFunc(u.Removed, l.insisted.doubts)
}

// keepAll has bodies kept that are not to be: a SotW server has no way to be asked
// for one again but to send all, and clients would wait for ever (VALID-5).
func (d *Response) keepAll() {
	for i, r := range d.update.Set {
		d.update.Set[i].Resource = r.Cacheable()
	}
}
