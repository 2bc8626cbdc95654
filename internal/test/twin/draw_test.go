package twin

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"
)

// Random scripts.

// draw is a random game. What an operation is does not depend on those before
// it.
func draw(r *rand.Rand) Script {
	s := drawFirst(r)
	s.drawMore(r)
	s.drawLast(r)
	return s
}

// drawFirst is a game without what drawMore and drawLast add.
func drawFirst(r *rand.Rand) Script {
	s := Script{Settings: drawSettings(r)}
	few := drawKinds(r)
	world := cast{kinds: few, aliases: oneOf(r, true, false)}
	if r.IntN(100) == 0 {
		return drawMany(r, s, world)
	}
	for range 1 + r.IntN(2*perGame) {
		s.Ops = append(s.Ops, world.op(r))
	}
	s.surround(r)
	if r.IntN(8) == 0 {
		s.cold(r, few)
	}
	return s
}

func drawSettings(r *rand.Rand) Settings {
	return Settings{
		Settle:   oneOf(r, 0, 100*time.Millisecond),
		Linger:   oneOf(r, 30*time.Second, 0),
		Coalesce: oneOf(r, 0, 10*time.Millisecond),
		Snapshot: oneOf(r, true, false),
	}
}

func drawKinds(r *rand.Rand) []kind {
	return oneOf(r, plain, plain[:1], plain[:2], plain[3:], plain[1:2])
}

// surround makes of a game with one plain control plane, half of the time, one with
// another: of another kind, or one that hangs, or two of them.
func (s *Script) surround(r *rand.Rand) {
	s.Settings.Bounds = strings.Join(drawBounds(r), ",")
	if r.IntN(2) == 0 {
		return
	}
	var server []string
	for _, kind := range []string{remembers, ignores, renumbers} {
		if r.IntN(3) == 0 {
			server = append(server, kind)
		}
	}
	if r.IntN(8) == 0 {
		server = append(server, picky)
	}
	s.Settings.Server = strings.Join(server, ",")
	if r.IntN(3) == 0 {
		s.Settings.Second, s.Settings.Snapshot = oneOf(r, "same", "other"), true
		s.share(r)
	}
	if r.IntN(3) == 0 {
		for range 1 + r.IntN(3) {
			s.hang(r)
		}
	}
}

// drawMany is a game of many names, 10,000 in a long run: what concerns many at once, among
// a few other things.
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
			o = Op{Verb: oneOf(r, "many", "few", "unsubs", "subs", "restart", "reconnect", "down", "up", "end", "wait"), Who: r.IntN(2), Kind: k, N: oneOf(r, most, most/2, 100)}
		}
		switch o.Verb {
		case "down", "end", "up":
			o.Who, o.N = 0, r.IntN(3)
		case "restart", "reconnect":
			o.N = r.IntN(2)
		case "habit":
			continue
		}
		s.Ops = append(s.Ops, o)
	}
	s.surround(r)
	s.Settings.Second = "" // what goes at once may be doubted then (UP-14)
	slow := func(bound string) bool { return bound == boundRequest || bound == boundPair || bound == "" }
	s.Settings.Bounds = strings.Join(slices.DeleteFunc(strings.Split(s.Settings.Bounds, ","), slow), ",")
	return s
}

// drawBounds takes each bound half of the time, and in one game of eight none, and in one
// all of them.
func drawBounds(r *rand.Rand) (bounds []string) {
	often := oneOf(r, 0, 4, 4, 4, 4, 4, 4, 8)
	for _, bound := range allBounds {
		if r.IntN(8) < often {
			bounds = append(bounds, bound)
		}
	}
	return bounds
}

// share gives some of what is done to the control plane to the second.
func (s *Script) share(r *rand.Rand) {
	for i := range s.Ops {
		switch o := &s.Ops[i]; o.Verb {
		case "set", "remove", "version", "wipe", "up":
			o.Who = r.IntN(2)
		case "down":
			o.Who = r.IntN(4) / 3
		}
	}
}

// cold lets the relay begin without a snapshot while clients come back with what they have,
// and the control plane's first answers to it are faulty, or errors.
func (s *Script) cold(r *rand.Rand, kinds []kind) {
	s.Settings.Snapshot = false
	ops := []Op{{Verb: "restart"}}
	for range 1 + r.IntN(3) {
		ops = append(ops, Op{Verb: "reconnect", Who: r.IntN(4), N: oneOf(r, 0, 0, 1, 2)})
	}
	ops = append(ops, Op{Verb: "wait", N: oneOf(r, 5, 50, 1000)})
	for range 1 + r.IntN(3) {
		o := Op{Verb: oneOf(r, "fault", "fault", "push", "error"), Who: r.IntN(3), Kind: oneOf(r, kinds...).name}
		switch o.Verb {
		case "fault":
			o.N = r.IntN(faultKinds) << 6
		case "error":
			o.Add = someNames(r, 3)
		}
		ops = append(ops, o)
	}
	ops = append(ops, Op{Verb: "wait", N: oneOf(r, 100, 16000, 31000)})
	s.Ops = slices.Insert(s.Ops, r.IntN(len(s.Ops)+1), ops...)
}

// hang lets a control plane hang for some operations, or for good.
func (s *Script) hang(r *rand.Rand) {
	begin := r.IntN(len(s.Ops) + 1)
	who := r.IntN(4) / 3
	s.Ops = slices.Insert(s.Ops, begin, Op{Verb: "hang", Who: who})
	if end := begin + 1 + r.IntN(20); end <= len(s.Ops) {
		s.Ops = slices.Insert(s.Ops, end, Op{Verb: "wake", Who: who})
	}
}

func oneOf[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// cast is what a game is about.
type cast struct {
	kinds   []kind
	aliases bool // resources have some
	// verbs are what is played, each as often as it is there; nil: weights.
	verbs []string
}

// weights are how often each verb is played.
var weights = weighted(howOften)

var howOften = map[string]int{
	"set": 12, "remove": 5, "version": 2, "wipe": 1,
	"habit": 3, "push": 20, "again": 2, "bad": 1, "fault": 2, "error": 2, "extra": 1, "end": 2, "down": 1, "up": 2,
	"open": 3, "sub": 14, "ack": 8, "nack": 2, "acks": 6, "close": 2, "reconnect": 4, "deaf": 2,
	"wait": 6, "save": 1, "restart": 1, "hold": 2, "go": 4,
}

func weighted(m map[string]int) (all []string) {
	for verb := range verbs {
		for range m[verb] {
			all = append(all, verb)
		}
	}
	slices.Sort(all)
	return all
}

var waits = []int{5, 50, 100, 1000, 4000, 11000, 16000, 31000}

func (c cast) op(r *rand.Rand) Op {
	kinds := c.kinds
	played := weights
	if c.verbs != nil {
		played = c.verbs
	}
	o := Op{Verb: played[r.IntN(len(played))]}
	switch o.Verb {
	case "set", "remove", "version", "wipe", "push", "again", "bad", "fault", "error", "extra", "sub", "ack", "nack":
		o.Kind = kinds[r.IntN(len(kinds))].name
	}
	switch o.Verb {
	case "set":
		o.Add = []string{poolNames[r.IntN(len(poolNames)-len(poolAliases))]}
		for _, alias := range poolAliases {
			if !c.aliases {
				break
			}
			if o.Kind == "FOO" && r.IntN(3) == 0 || r.IntN(12) == 0 {
				o.Add = append(o.Add, alias)
			}
		}
	case "remove", "version", "error", "extra":
		o.Add = someNames(r, 3)
	case "push", "bad", "fault":
		o.Who = r.IntN(3)
		if r.IntN(3) == 0 {
			o.N = r.IntN(64)
		}
		if o.Verb == "fault" {
			o.N |= r.IntN(faultKinds) << 6
		}
	case "again":
		o.Who = r.IntN(3)
	case "end":
		o.Who, o.N = r.IntN(3), r.IntN(3)
	case "habit":
		o.N = r.IntN(allHabits + 1)
	case "open":
		o.Who, o.N = r.IntN(4), r.IntN(4)
	case "sub":
		o.Who, o.Add, o.Drop = r.IntN(4), someNames(r, 3), someNames(r, 4)
		switch r.IntN(6) {
		case 0:
			o.Add = append(o.Add, wildcard)
		case 1:
			o.Drop = append(o.Drop, wildcard)
		case 2:
			o.Add = nil
		}
	case "ack", "nack", "acks", "close":
		o.Who = r.IntN(4)
	case "reconnect":
		o.Who, o.N = r.IntN(4), r.IntN(4)
	case "deaf":
		o.Who, o.N = r.IntN(4), r.IntN(2)
	case "wait":
		o.N = waits[r.IntN(len(waits))]
	case "restart":
		o.N = r.IntN(2)
	case "go":
		o.N = r.IntN(8)
	}
	return o
}

// someNames are about one in n of them.
func someNames(r *rand.Rand, n int) (names []string) {
	for _, name := range poolNames {
		if r.IntN(n) == 0 {
			names = append(names, name)
		}
	}
	return names
}
