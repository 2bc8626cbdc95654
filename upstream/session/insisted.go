package session

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

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
		until, doubtful := i.until[name]
		if all, wildcard := i.until[fanout.Wildcard]; wildcard {
			until, doubtful = all, true
		}
		if doubtful {
			i.removed[name] = until
		}
		return doubtful
	})
}

// over returns the held removals that count now.
func (i *insisted) over(now time.Time) (removed []string) {
	if !due(i.lookAt, now) {
		return nil
	}
	i.lookAt = time.Time{}
	for name, at := range i.removed {
		if !at.After(now) {
			removed = append(removed, name)
			delete(i.removed, name)
		} else {
			i.lookAt = earlier(i.lookAt, at)
		}
	}
	for name, at := range i.until {
		if !at.After(now) {
			delete(i.until, name)
		} else {
			i.lookAt = earlier(i.lookAt, at)
		}
	}
	slices.Sort(removed)
	return removed
}
