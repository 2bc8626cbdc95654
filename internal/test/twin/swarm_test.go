package twin

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSwarm plays games that are each about a few things, and those the more often: some verbs, names and
// clients are left out, and others come in their place. Such games reach rare combinations sooner (swarm
// testing: Groce et al., ISSTA 2012).
func TestSwarm(t *testing.T) { newRun(10000, fixed, drawSwarm).playAll(t) }

// drawSwarm is a random game with weights of its own.
func drawSwarm(r *rand.Rand) Script {
	s := Script{Settings: drawSettings(r)}
	kinds := drawKinds(r)
	world := cast{kinds: kinds, aliases: true, verbs: drawVerbs(r)}
	names := oneOf(r, []string{"a"}, []string{"a", "b"}, []string{"a", "d"}, []string{"a", "b", "c", "d"})
	aliases := oneOf(r, nil, poolAliases[:1], poolAliases, poolAliases)
	clients, rarely := 1+r.IntN(4), 2+r.IntN(4)
	s.Ops = append(s.Ops, Op{Verb: "habit", N: r.IntN(allHabits + 1)})
	for client := range clients {
		s.Ops = append(s.Ops, Op{Verb: "open", Who: client, N: r.IntN(4)})
	}
	for range 8 + r.IntN(2*perGame) {
		o := world.op(r)
		switch o.Verb {
		case "set":
			o.Add = []string{oneOf(r, names...)}
			for _, alias := range aliases {
				if r.IntN(rarely) == 0 {
					o.Add = append(o.Add, alias)
				}
			}
		case "open", "sub", "ack", "nack", "acks", "close", "reconnect", "deaf":
			o.Who %= clients
			fallthrough
		default:
			leave := func(name string) bool {
				return name != wildcard && !slices.Contains(names, name) && !slices.Contains(aliases, name)
			}
			o.Add, o.Drop = slices.DeleteFunc(o.Add, leave), slices.DeleteFunc(o.Drop, leave)
		}
		s.Ops = append(s.Ops, o)
	}
	s.surround(r)
	if r.IntN(3) == 0 {
		s.Settings.Bounds = ""
	}
	if r.IntN(8) == 0 {
		s.cold(r, kinds)
	}
	s.drawMore(r)
	s.drawLast(r)
	return s
}

// drawVerbs takes each verb up to four times as often as other games do, or never.
func drawVerbs(r *rand.Rand) []string {
	drawn := maps.Clone(howOften)
	for _, verb := range slices.Sorted(maps.Keys(howOften)) {
		if n := howOften[verb] * oneOf(r, 0, 1, 1, 2, 2, 4); n > 0 || !slices.Contains([]string{"set", "open", "sub", "push"}, verb) {
			drawn[verb] = n
		}
	}
	return weighted(drawn)
}
