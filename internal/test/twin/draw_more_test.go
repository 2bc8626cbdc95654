package twin

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// drawMore adds to a game what was added to the games later. It draws last, so that of
// games of the same number the rest is what it was.
func (s *Script) drawMore(r *rand.Rand) {
	many := slices.ContainsFunc(s.Ops, func(o Op) bool { return o.Verb == "many" })
	special := s.Settings.Server != "" || r.IntN(2) == 0
	s.drawLengths(r, special, many)
	if !many && r.IntN(3) == 0 {
		s.drawTTLs(r)
	}
	if r.IntN(6) == 0 {
		s.drawRefused(r)
	}
	if r.IntN(6) == 0 {
		s.drawCrowded(r)
	}
}

// drawLast adds what was added after that, for the same reason.
func (s *Script) drawLast(r *rand.Rand) {
	bounds := split(s.Settings.Bounds)
	for _, bound := range lastBounds {
		if r.IntN(2) == 0 {
			bounds = append(bounds, bound)
		}
	}
	verbs := func(verb string) bool { return slices.ContainsFunc(s.Ops, func(o Op) bool { return o.Verb == verb }) }
	if s.Settings.Large = r.IntN(4) == 0 && !verbs("ttl") && !verbs("many"); s.Settings.Large {
		bounds = slices.DeleteFunc(bounds, func(b string) bool { return b == boundUnasked || b == boundResponse })
		bounds = append(bounds, boundResponse)
	}
	s.Settings.Bounds = strings.Join(bounds, ",")
}

// drawLengths draws what is split: bounds, each half of the time, a server that refuses long
// requests, and one that answers in parts and says so.
func (s *Script) drawLengths(r *rand.Rand, special, many bool) {
	bounds, servers := split(s.Settings.Bounds), split(s.Settings.Server)
	often := oneOf(r, 0, 4, 4, 4, 4, 4, 4, 8)
	for _, bound := range laterBounds {
		if slow := many && bound != boundStreams; r.IntN(8) < often && !slow {
			bounds = append(bounds, bound)
		}
	}
	if special && r.IntN(3) == 0 {
		servers = append(servers, short)
		if !many && !slices.Contains(bounds, boundLeast) {
			bounds = append(bounds, boundLeast)
		}
	}
	if special && r.IntN(3) == 0 {
		servers = append(servers, marks)
	}
	s.Settings.Bounds, s.Settings.Server = strings.Join(bounds, ","), strings.Join(servers, ",")
}

// split are the words of a list; none of an empty one.
func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

// drawTTLs gives resources TTLs here and there, and renews some.
func (s *Script) drawTTLs(r *rand.Rand) {
	var used []string // kinds that the game is about
	for _, o := range s.Ops {
		if o.Kind != "" && !slices.Contains(used, o.Kind) {
			used = append(used, o.Kind)
		}
	}
	if len(used) == 0 {
		return
	}
	for range 1 + len(s.Ops)/6 {
		o := Op{Verb: oneOf(r, "ttl", "beat"), Who: r.IntN(2), Kind: oneOf(r, used...), Add: someNames(r, 2)}
		switch {
		case o.Verb == "ttl":
			o.N = oneOf(r, 0, 700, 3000, 6000, 12000, 20000, 45000)
		case r.IntN(8) == 0:
			o.N = 1
		}
		s.Ops = slices.Insert(s.Ops, r.IntN(len(s.Ops)+1), o)
	}
}

// drawRefused has clients ask, among other things, for a type that they may not have.
func (s *Script) drawRefused(r *rand.Rand) {
	for range 1 + r.IntN(6) {
		o := Op{Verb: "refused", Who: r.IntN(4), Add: someNames(r, 3), Drop: someNames(r, 4)}
		switch r.IntN(6) {
		case 0:
			o.Add = append(o.Add, wildcard)
		case 1:
			o.Drop = append(o.Drop, wildcard)
		}
		s.Ops = slices.Insert(s.Ops, r.IntN(len(s.Ops)+1), o)
	}
}

// drawCrowded has clients ask for types for which there is no room, and makes some, mostly.
func (s *Script) drawCrowded(r *rand.Rand) {
	for range 1 + r.IntN(6) {
		o := Op{Verb: "crowded", Who: r.IntN(4), Add: someNames(r, 3), Drop: someNames(r, 4), N: r.IntN(4)}
		switch r.IntN(8) {
		case 0:
			o.Add = append(o.Add, wildcard)
		case 1:
			o.Drop = append(o.Drop, wildcard)
		}
		s.Ops = slices.Insert(s.Ops, r.IntN(len(s.Ops)+1), o)
	}
	for _, n := range oneOf(r, []int{1}, []int{1}, []int{1, 0}, []int{1, 0, 1}) {
		s.Ops = slices.Insert(s.Ops, r.IntN(len(s.Ops)+1), Op{Verb: "room", N: n})
	}
}
