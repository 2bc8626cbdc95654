package twin

import (
	"math/rand/v2"
	"testing"
	"time"
)

// dice are random numbers that an input chooses, a byte each.
type dice []byte

func (d *dice) Uint64() uint64 {
	n := byte(1)
	if len(*d) > 0 {
		n, *d = (*d)[0], (*d)[1:]
	}
	return uint64(n) * 0x0101010101010101
}

// FuzzDownstreamActions plays what clients of both variants do, as the input draws it, against the pure cores and an
// eager control plane. The Checker judges as it does in a game.
func FuzzDownstreamActions(f *testing.F) {
	f.Add([]byte("open, and ask for what there is"))
	verbs := []string{"open", "sub", "sub", "ack", "nack", "acks", "reconnect", "set", "remove", "wait"}
	world := cast{kinds: plain, names: poolNames[:4], asked: poolNames, clients: 4, verbs: verbs}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := Script{Settings: Settings{Linger: time.Second, Bounds: "prune"}, Ops: []Op{{Verb: "habit", N: int(eager)}}}
		for input := dice(data); len(input) > 0; {
			s.Ops = append(s.Ops, world.op(rand.New(&input)))
		}
		if len(s.Ops) > 2*perGame {
			t.Skip("longer than any game")
		}
		if violations := playPure(s, nil).Violations; len(violations) > 0 {
			report(t, s, violations)
		}
	})
}
