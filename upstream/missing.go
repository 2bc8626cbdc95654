package upstream

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// Names that became missing because the control plane said nothing of them (MISS-3). Their
// timers run out one request after the other, and there may be very many. So the first ones
// of a type on a stream are gathered into one line of the log, and of those that follow there
// is none: /resources has them all.

// gatherMissing is for how long they are gathered.
const gatherMissing = time.Second

// missing are the names of one type that became so on one stream.
type missing struct {
	stream StreamID
	typ    cache.TypeURL
	count  int
	first  string
	until  time.Time // when it is told; zero: it has been
}

// missed is what is known of them. It has few entries: one for each type of a stream.
type missed []*missing

// add takes in names of a type that became missing on a stream.
func (m *missed) add(id StreamID, t cache.TypeURL, count int, first string, now time.Time) {
	for _, one := range *m {
		if one.stream == id && one.typ == t {
			one.count += count
			return
		}
	}
	*m = append(*m, &missing{id, t, count, first, now.Add(gatherMissing)})
}

// due are those that are to be told now, once.
func (m *missed) due(now time.Time) (due []missing) {
	for _, one := range *m {
		if !one.until.IsZero() && !one.until.After(now) {
			one.until = time.Time{}
			due = append(due, *one)
		}
	}
	return due
}

// deadline is when to look again, or zero.
func (m *missed) deadline() (at time.Time) {
	for _, one := range *m {
		at = earlier(at, one.until)
	}
	return at
}

// over forgets a stream that has ended, and returns what was not told about it.
func (m *missed) over(id StreamID) (untold []missing) {
	var rest missed
	for _, one := range *m {
		switch {
		case one.stream != id:
			rest = append(rest, one)
		case !one.until.IsZero():
			untold = append(untold, *one)
		}
	}
	*m = rest
	return untold
}
