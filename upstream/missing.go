package upstream

import (
	"cmp"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/upstream/session"
)

// This file logs names that became missing because the control plane did not answer them
// (MISS-3). Their timers run out request by request, and there may be very many names. So the
// first ones of a type on a stream are gathered into one line of the log, and later ones are not
// logged. /resources has them all.

// gatherMissing is how long they are gathered.
const gatherMissing = time.Second

// missing are the names of one type that became so on one stream.
type missing struct {
	missedType
	count int
	first string
	until time.Time // when to log it; zero: it was logged
}

type missedType struct {
	stream session.StreamID
	typ    cache.TypeURL
}

// missed has the missing names by stream and type. It forgets a type that its stream does not
// ask for any more, since clients can invent types.
type missed map[missedType]*missing

// add counts names of a type that became missing on a stream.
func (m missed) add(id session.StreamID, t cache.TypeURL, count int, first string, now time.Time) {
	of := missedType{id, t}
	if one := m[of]; one != nil {
		one.count += count
		return
	}
	m[of] = &missing{of, count, first, now.Add(gatherMissing)}
}

// due returns, once, what is to be logged now, in order of type: what was gathered for long enough,
// and what is not asked for on the stream any more.
func (m missed) due(now time.Time, asks func(session.StreamID, cache.TypeURL) bool) (due []missing) {
	for of, one := range m {
		asked := asks(of.stream, of.typ)
		if !one.until.IsZero() && (!asked || !one.until.After(now)) {
			one.until = time.Time{}
			due = append(due, *one)
		}
		if !asked {
			delete(m, of)
		}
	}
	slices.SortFunc(due, func(a, b missing) int { return cmp.Compare(a.typ, b.typ) })
	return due
}

// deadline is the earlier of at and the time when due has something to return; zero means never.
func (m missed) deadline(at time.Time) time.Time {
	for _, one := range m {
		if !one.until.IsZero() && (at.IsZero() || one.until.Before(at)) {
			at = one.until
		}
	}
	return at
}
