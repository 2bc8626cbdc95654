package twin

import (
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"
)

// Random scripts.

// perGame is how many operations a game has on average, beside its end.
const perGame = 60

// draw is a random game. What an operation is does not depend on those before it.
func draw(r *rand.Rand) Script {
	s, often := drawSettings(r)
	world := cast{kinds: drawKinds(r), names: poolNames[:4], asked: poolNames, aliases: oneOf(r, poolAliases, nil), rarely: 12, clients: 4, verbs: weighted(often)}
	if r.IntN(100) == 0 {
		return drawMany(r, s, world)
	}
	return s.about(r, world, 1)
}

// about adds so many operations or more.
func (s Script) about(r *rand.Rand, world cast, least int) Script {
	for range least + r.IntN(2*perGame) {
		s.Ops = append(s.Ops, world.op(r))
	}
	if r.IntN(8) == 0 {
		s.cold(r, world)
	}
	return s
}

// drawSwarm is a random game about a few things, and those the more often: some verbs, names and clients are left out,
// and others come in their place. Such games reach rare combinations sooner (swarm testing: Groce et al., ISSTA 2012).
func drawSwarm(r *rand.Rand) Script {
	s, often := drawSettings(r)
	for _, verb := range slices.Sorted(maps.Keys(often)) {
		if n := often[verb] * oneOf(r, 0, 1, 1, 2, 2, 4); n > 0 || !slices.Contains([]string{"set", "open", "sub", "push"}, verb) {
			often[verb] = n
		}
	}
	names := oneOf(r, []string{"a"}, []string{"a", "b"}, []string{"a", "d"}, []string{"a", "b", "c", "d"})
	aliases := oneOf(r, nil, poolAliases[:1], poolAliases, poolAliases)
	world := cast{kinds: drawKinds(r), names: names, asked: slices.Concat(names, aliases), aliases: aliases, rarely: 2 + r.IntN(4), clients: 1 + r.IntN(4), verbs: weighted(often)}
	s.Ops = append(s.Ops, Op{Verb: "habit", N: r.IntN(allHabits + 1)})
	for client := range world.clients {
		s.Ops = append(s.Ops, Op{Verb: "open", Who: client, N: r.IntN(4)})
	}
	return s.about(r, world, 8)
}

// drawSettings is a game without operations, and how often each of its verbs is played. Half of the time the control
// plane is a plain one, and else of another kind, or one that hangs, or there are two of them.
func drawSettings(r *rand.Rand) (s Script, often map[string]int) {
	often = maps.Clone(howOften)
	s.Settings = Settings{
		Settle:   oneOf(r, 0, 100*time.Millisecond),
		Linger:   oneOf(r, 30*time.Second, 0),
		Coalesce: oneOf(r, 0, 10*time.Millisecond),
		Snapshot: oneOf(r, true, false),
	}
	bounds, server := drawBounds(r), []string(nil)
	if r.IntN(2) == 0 {
		for _, kind := range []string{remembers, ignores, renumbers, short, marks} {
			if r.IntN(3) == 0 {
				server = append(server, kind)
			}
		}
		if r.IntN(8) == 0 {
			server = append(server, picky)
		}
		if r.IntN(3) == 0 {
			s.Settings.Second, s.Settings.Snapshot = oneOf(r, "same", "other"), true
		}
		if r.IntN(3) == 0 {
			often["hang"], often["wake"] = 3, 4
		}
	}
	if slices.Contains(server, short) {
		bounds = append(bounds, "least")
	}
	if r.IntN(3) == 0 {
		often["ttl"], often["beat"] = 9, 9
	} else if r.IntN(4) == 0 {
		s.Settings.Large = true
		bounds = append(slices.DeleteFunc(bounds, func(b string) bool { return b == "unasked" }), "response")
	}
	if r.IntN(6) == 0 {
		often["refused"] = 6
	}
	if r.IntN(6) == 0 {
		often["crowded"], often["room"] = 6, 3
	}
	s.Settings.Bounds, s.Settings.Server = strings.Join(bounds, ","), strings.Join(server, ",")
	return s, often
}

func drawKinds(r *rand.Rand) []kind {
	return oneOf(r, plain, plain[:1], plain[:2], plain[3:], plain[1:2])
}

// drawMany is a game of many names, 10,000 in a long run: what concerns many at once, among a few other things. What
// would take too long is left out.
func drawMany(r *rand.Rand, s Script, world cast) Script {
	k, most := oneOf(r, world.kinds...).name, 300
	if os.Getenv("TWIN_STEPS") != "" {
		most = 10000
	}
	s.Ops = []Op{{Verb: "many", Kind: k, N: most}, {Verb: "habit", N: int(oneOf(r, eager, eager|silent, eager|resends, eager|errs))}}
	for client := range 2 {
		s.Ops = append(s.Ops, Op{Verb: "open", Who: client, N: r.IntN(2) | 2})
		if r.IntN(3) == 0 {
			s.Ops = append(s.Ops, Op{Verb: "sub", Who: client, Kind: k, Add: []string{wildcard}})
		} else {
			s.Ops = append(s.Ops, Op{Verb: "subs", Who: client, Kind: k, N: oneOf(r, most, most-most/10, 100)})
		}
	}
	for range 12 {
		o := world.op(r)
		if r.IntN(2) == 0 {
			verb := oneOf(r, "many", "few", "unsubs", "subs", "restart", "reconnect", "down", "up", "end", "wait")
			o = Op{Verb: verb, Who: r.IntN(2), Kind: k, N: oneOf(r, most, most/2, 100) + r.IntN(2)}
		}
		if !slices.Contains([]string{"habit", "ttl", "beat"}, o.Verb) {
			s.Ops = append(s.Ops, o)
		}
	}
	slow := []string{"request", "pair", "least", "response"}
	bounds := slices.DeleteFunc(strings.Split(s.Settings.Bounds, ","), func(b string) bool { return slices.Contains(slow, b) })
	s.Settings.Bounds, s.Settings.Large = strings.Join(bounds, ","), false
	s.Settings.Second = "" // what goes at once may be doubted then (UP-14)
	return s
}

// cold lets the relay begin without a snapshot while clients come back with what they have,
// and the control plane's first answers to it are faulty, or errors.
func (s *Script) cold(r *rand.Rand, world cast) {
	s.Settings.Snapshot = false
	ops := []Op{{Verb: "restart"}}
	for range 1 + r.IntN(3) {
		ops = append(ops, Op{Verb: "reconnect", Who: r.IntN(4), N: r.IntN(3)})
	}
	ops = append(ops, Op{Verb: "wait", N: oneOf(r, 5, 50, 1000)})
	for range 1 + r.IntN(3) {
		world.verbs = []string{"fault", "fault", "push", "error"}
		ops = append(ops, world.op(r))
	}
	ops = append(ops, Op{Verb: "wait", N: oneOf(r, 100, 16000, 31000)})
	s.Ops = slices.Insert(s.Ops, r.IntN(len(s.Ops)+1), ops...)
}

func oneOf[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// cast is what a game is about.
type cast struct {
	kinds   []kind
	names   []string // of resources
	aliases []string // that they have, one in so many
	rarely  int
	asked   []string // all that is asked for
	clients int
	verbs   []string // what is played, each as often as it is there
}

// howOften is how often each verb is played in every game.
var howOften = map[string]int{
	"set": 12, "remove": 5, "version": 2, "wipe": 1,
	"habit": 3, "push": 20, "again": 2, "bad": 1, "fault": 2, "error": 2, "extra": 1, "end": 2, "down": 1, "up": 2,
	"open": 3, "sub": 14, "ack": 8, "nack": 2, "acks": 6, "close": 2, "reconnect": 4, "deaf": 2,
	"wait": 6, "save": 1, "restart": 1, "hold": 2, "go": 4,
}

func weighted(often map[string]int) (all []string) {
	for _, verb := range slices.Sorted(maps.Keys(often)) {
		all = append(all, slices.Repeat([]string{verb}, often[verb])...)
	}
	return all
}

var (
	// numbers are how many values N may have.
	numbers = map[string]int{"habit": allHabits + 1, "open": 4, "reconnect": 4, "deaf": 2, "end": 3, "restart": 2, "go": 8, "crowded": 4}
	waits   = []int{5, 50, 100, 1000, 4000, 11000, 16000, 31000}
	ttls    = []int{0, 700, 3000, 6000, 12000, 20000, 45000}
)

func (c cast) op(r *rand.Rand) Op {
	o := Op{Verb: oneOf(r, c.verbs...), Who: r.IntN(4)}
	switch o.Verb {
	case "set", "remove", "version", "wipe", "push", "again", "bad", "fault", "error", "extra", "ttl", "beat", "sub", "ack", "nack":
		o.Kind = oneOf(r, c.kinds...).name
	case "habit", "wait", "save", "restart", "room", "hold", "go":
		o.Who = 0
	}
	if slices.Contains([]string{"open", "sub", "ack", "nack", "acks", "close", "reconnect", "deaf", "refused", "crowded"}, o.Verb) {
		o.Who %= c.clients
	}
	if n := numbers[o.Verb]; n > 0 {
		o.N = r.IntN(n)
	}
	switch o.Verb {
	case "set":
		o.Add = []string{oneOf(r, c.names...)}
		for _, alias := range c.aliases {
			if o.Kind == "FOO" && r.IntN(3) == 0 || r.IntN(c.rarely) == 0 {
				o.Add = append(o.Add, alias)
			}
		}
	case "remove", "version", "error", "extra":
		o.Add = c.some(r, 3)
	case "push", "bad", "fault":
		if r.IntN(3) == 0 {
			o.N = r.IntN(64)
		}
		if o.Verb == "fault" {
			o.N |= r.IntN(faultKinds) << 6
		}
	case "ttl":
		o.Add, o.N = c.some(r, 2), oneOf(r, ttls...)
	case "beat":
		o.Add, o.N = c.some(r, 2), r.IntN(8)/7
	case "sub", "refused", "crowded":
		o.Add, o.Drop = c.some(r, 3), c.some(r, 4)
		switch r.IntN(6) {
		case 0:
			o.Add = append(o.Add, wildcard)
		case 1:
			o.Drop = append(o.Drop, wildcard)
		case 2:
			o.Add = nil
		}
	case "down", "hang", "wake":
		o.Who /= 3 // the first, mostly
	case "wait":
		o.N = oneOf(r, waits...)
	case "room":
		o.N = oneOf(r, 1, 1, 0)
	}
	return o
}

// some are about one in n of what is asked for.
func (c cast) some(r *rand.Rand, n int) (names []string) {
	for _, name := range c.asked {
		if r.IntN(n) == 0 {
			names = append(names, name)
		}
	}
	return names
}
