package upstream

import (
	"cmp"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/upstream/session"
)

// Names that became missing because the control plane said nothing of them (MISS-3). Their
// timers run out one request after the other, and there may be very many. So the first ones
// of a type on a stream are gathered into one line of the log, and of those that follow there
// is none: /resources has them all.

// gatherMissing is for how long they are gathered.
const gatherMissing = time.Second

// missing are the names of one type that became so on one stream.
type missing struct {
	missedType
	count int
	first string
	until time.Time // when it is told; zero: it has been
}

type missedType struct {
	stream session.StreamID
	typ    cache.TypeURL
}

// missed is what is known of them: for as long as the stream asks for the type, since clients
// can invent types.
type missed map[missedType]*missing

// add takes in names of a type that became missing on a stream.
func (m missed) add(id session.StreamID, t cache.TypeURL, count int, first string, now time.Time) {
	of := missedType{id, t}
	if one := m[of]; one != nil {
		one.count += count
		return
	}
	m[of] = &missing{of, count, first, now.Add(gatherMissing)}
}

// due are those that are to be told now, once, in order of type. What was told is forgotten
// when its stream does not ask for the type any more.
func (m missed) due(now time.Time, asks func(session.StreamID, cache.TypeURL) bool) (due []missing) {
	for of, one := range m {
		switch {
		case one.until.IsZero():
			if !asks(of.stream, of.typ) {
				delete(m, of)
			}
		case !one.until.After(now):
			one.until = time.Time{}
			due = append(due, *one)
		}
	}
	slices.SortFunc(due, func(a, b missing) int { return cmp.Compare(a.typ, b.typ) })
	return due
}

// deadline is when to look again, if that is before a time, or else that; zero means never.
func (m missed) deadline(at time.Time) time.Time {
	for _, one := range m {
		if !one.until.IsZero() && (at.IsZero() || one.until.Before(at)) {
			at = one.until
		}
	}
	return at
}

// over forgets a stream that has ended, and returns what was not told about it.
func (m missed) over(id session.StreamID) (untold []missing) {
	for of, one := range m {
		if of.stream != id {
			continue
		}
		if delete(m, of); !one.until.IsZero() {
			untold = append(untold, *one)
		}
	}
	slices.SortFunc(untold, func(a, b missing) int { return cmp.Compare(a.typ, b.typ) })
	return untold
}
