package session

import "time"

const (
	// retryFirst is how long after a name became Absent the relay asks for it again. The
	// interval doubles each time, up to retryMax (UP-19).
	retryFirst = 5 * time.Second
	retryMax   = 5 * time.Minute
	// retrySteps is how many intervals there are.
	retrySteps = 7
)

// retries says which of the absent names is to be asked for again next. Names wait in a queue for each interval, so
// that each queue is in order of time. The zero value is empty.
type retries struct {
	at     map[string]time.Time
	queues [retrySteps][]retry
}

// retry is when to ask again for some names. It is out of date for those that are not at this time any more.
type retry struct {
	at    time.Time
	names []string
}

// add begins with names that became Absent at a time, which is not before that of any other.
func (r *retries) add(names []string, absent time.Time) { r.set(0, names, absent.Add(retryFirst)) }

func (r *retries) set(step int, names []string, at time.Time) {
	if len(names) == 0 {
		return
	}
	if r.at == nil {
		r.at = make(map[string]time.Time)
	}
	for _, name := range names {
		r.at[name] = at
	}
	r.queues[step] = append(r.queues[step], retry{at, names})
}

// remove takes a name out that is not absent any more.
func (r *retries) remove(name string) { delete(r.at, name) }

// next returns when a name is to be asked for, and in which queue it is the first; zero: there is none.
func (r *retries) next() (at time.Time, step int) {
	for k := range r.queues {
		if head := r.head(k); head != nil && (at.IsZero() || head.at.Before(at)) {
			at, step = head.at, k
		}
	}
	return at, step
}

// head returns the first of a queue, whose first name is not out of date; nil: there is none.
func (r *retries) head(step int) *retry {
	for q := &r.queues[step]; len(*q) > 0; *q = (*q)[1:] {
		head := &(*q)[0]
		for ; len(head.names) > 0; head.names = head.names[1:] {
			if r.at[head.names[0]].Equal(head.at) {
				return head
			}
		}
	}
	return nil
}

// take returns up to most names that are to be asked for by now, and has them wait for longer.
func (r *retries) take(most int, now time.Time) (names []string) {
	var again [retrySteps][]string
	for len(names) < most {
		at, step := r.next()
		if !due(at, now) {
			break
		}
		head := r.head(step)
		name := head.names[0]
		head.names = head.names[1:]
		step = min(step+1, retrySteps-1)
		names, again[step] = append(names, name), append(again[step], name)
	}
	for step, names := range again {
		r.set(step, names, now.Add(min(retryFirst<<step, retryMax)))
	}
	return names
}
