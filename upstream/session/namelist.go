package session

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// A SotW request lists all names of its type, and cannot be split. If the list does not fit into the
// limit, it leaves out the names that were asked for last, so that a client that asks for very many
// costs nobody else an answer (UP-17, UP-21). What is left out waits, and goes on the list in its
// turn when others are given up.

// nameList is the list of the names of one SotW lane. It outlives streams, so that nobody's names are
// displaced by those of a newcomer.
type nameList struct {
	places map[string]place
	turns  uint64 // how many names have been given a place
	// waiting are the names that are left out, in order. Those whose place is another one by now have
	// been given up since.
	waiting []turn
	out     int // names that are left out
	used    int // bytes of the names on the list
	room    int // bytes that they may take
	// news are names that were left out since the Hub was last told, and may not be any more.
	news []string
	told bool // the log has said that names are left out
}

// place is a name's place in the order in which names were asked for.
type place struct {
	turn uint64
	out  bool // it is left out
}

type turn struct {
	name string
	turn uint64
}

// reserve is the part of a request that is kept free for what else is in it: a version, a nonce, and
// an error.
const reserve = 16

// few is how many names may wait that were given up, beside as many as still wait.
const few = 16

// roomFor is how many bytes the names of a type may take in a SotW request.
func (s *streamState) roomFor(t cache.TypeURL) int {
	if s.limit == math.MaxInt {
		return s.limit
	}
	return s.limit - s.limit/reserve - proto.Size(&discovery.DiscoveryRequest{Node: s.config.Node, TypeUrl: string(t)})
}

// nameListOf returns the list for a lane; nil: the lane needs none.
func (s *streamState) nameListOf(lane fanout.Lane) *nameList {
	if s.nameLists == nil || lane.Wildcard {
		return nil
	}
	r := s.nameLists[lane]
	if r == nil {
		r = &nameList{places: make(map[string]place)}
		s.nameLists[lane] = r
	}
	return r
}

// begin makes the list for a new stream, on which there may be more room or less than on the last
// one, from the whole interest. It returns the names on it, in order.
func (r *nameList) begin(names []string, room int) (listed []string) {
	wanted := make(map[string]struct{}, len(names))
	for _, name := range names {
		wanted[name] = struct{}{}
		if _, has := r.places[name]; !has {
			r.turns++
			r.places[name] = place{turn: r.turns}
		}
	}
	maps.DeleteFunc(r.places, func(name string, _ place) bool { _, ok := wanted[name]; return !ok })
	r.waiting, r.out, r.used, r.room, r.news = r.waiting[:0], len(r.places), 0, room, nil
	for name, p := range r.places {
		r.places[name] = place{p.turn, true}
		r.waiting = append(r.waiting, turn{name, p.turn})
	}
	slices.SortFunc(r.waiting, func(a, b turn) int { return cmp.Compare(a.turn, b.turn) })
	listed = r.fill()
	for _, w := range r.waiting {
		r.news = append(r.news, w.name)
	}
	slices.Sort(listed)
	return listed
}

// change gives up some names, and asks for others. It returns the names that go on the list: those
// for which there is room, in the order in which they were asked for.
func (r *nameList) change(want, drop []string) (listed []string) {
	for _, name := range drop {
		r.drop(name)
	}
	fresh := r.turns
	for _, name := range want {
		switch p, has := r.places[name]; {
		case has && !p.out:
			listed = append(listed, name) // it is asked for again
		case !has:
			r.turns++
			r.places[name] = place{r.turns, true}
			r.waiting, r.out = append(r.waiting, turn{name, r.turns}), r.out+1
		}
	}
	listed = append(listed, r.fill()...)
	for i := len(r.waiting) - 1; i >= 0 && r.waiting[i].turn > fresh; i-- {
		r.news = append(r.news, r.waiting[i].name)
	}
	return listed
}

func (r *nameList) drop(name string) {
	p, has := r.places[name]
	if !has {
		return
	}
	delete(r.places, name)
	if p.out {
		r.out--
		return
	}
	r.used -= nameSize(name)
}

// fill puts names on the list that are left out, for as long as the next one fits. The first name always does.
func (r *nameList) fill() (listed []string) {
	at := 0
	for ; at < len(r.waiting); at++ {
		w := r.waiting[at]
		if p, has := r.places[w.name]; !has || p.turn != w.turn {
			continue // it was given up
		}
		size := nameSize(w.name)
		if r.used > 0 && size > r.room-r.used {
			break
		}
		r.used, r.out = r.used+size, r.out-1
		r.places[w.name] = place{turn: w.turn}
		listed = append(listed, w.name)
	}
	r.waiting = r.waiting[at:]
	if len(r.waiting) > 2*r.out+few { // most were given up while they waited
		r.waiting = slices.DeleteFunc(r.waiting, func(w turn) bool { return r.places[w.name].turn != w.turn })
	}
	return listed
}

// leavesOut reports whether a name is left out.
func (r *nameList) leavesOut(name string) bool { return r != nil && r.places[name].out }

// tellLeftOut has the Hub tell the clients of names that were left out.
func (c *Core) tellLeftOut(s *slot, l *laneState, now time.Time) {
	r := s.stream.nameLists[l.lane]
	if r == nil || len(r.news) == 0 {
		return
	}
	left := slices.DeleteFunc(r.news, func(name string) bool { return !r.leavesOut(name) })
	r.news = nil
	if len(left) > 0 {
		slices.Sort(left)
		c.emit(Learned{Lane: l.lane, Update: &cache.Update{LeftOut: left, At: now, Stream: uint64(s.id)}})
		c.emit(LeftOut{Lane: l.lane, Entry: c.entryOf(s).Name, Names: len(left), First: !r.told})
	}
	r.told = r.out > 0
}
