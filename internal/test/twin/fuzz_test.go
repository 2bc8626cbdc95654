package twin

import (
	"testing"
	"time"
)

// FuzzDownstreamActions plays what clients of both variants do, four bytes an
// operation, against the pure cores and an eager control plane. The Checker judges
// as it does in a game.
func FuzzDownstreamActions(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 2, 0, 1, 0, 3, 0, 0, 0})
	f.Add([]byte{1, 1, 0, 0, 2, 5, 7, 0, 4, 1, 0, 0, 7, 3, 0, 0, 8, 2, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4*2*perGame {
			t.Skip("longer than any game")
		}
		s := Script{Settings: Settings{Linger: time.Second, Settle: 0, Bounds: boundPrune}, Ops: []Op{{Verb: "habit", N: int(eager)}}}
		for ; len(data) >= 4; data = data[4:] {
			s.Ops = append(s.Ops, clientOp([4]byte(data[:4])))
		}
		if violations := playPure(s, nil); len(violations) > 0 {
			report(t, s, violations)
		}
	})
}

// clientOp is what four bytes stand for: what, who and which type, names, names to
// drop.
func clientOp(b [4]byte) Op {
	o := Op{Who: int(b[1] % 4), Kind: plain[b[1]>>2%4].name, Add: bits(b[2]), Drop: bits(b[3]), N: int(b[2] % 4)}
	switch b[0] % 10 {
	case 0:
		o.Verb = "open"
	case 1, 2:
		o.Verb, o.N = "sub", 0
		if b[2]&64 != 0 {
			o.Add = append(o.Add, wildcard)
		}
		if b[3]&64 != 0 {
			o.Drop = append(o.Drop, wildcard)
		}
	case 3:
		o.Verb = "ack"
	case 4:
		o.Verb = "nack"
	case 5:
		o.Verb = "acks"
	case 6:
		o.Verb = "reconnect"
	case 7:
		o.Verb, o.Add = "set", append([]string{poolNames[b[2]%4]}, nil...)
	case 8:
		o.Verb = "remove"
	case 9:
		o.Verb, o.N = "wait", waits[int(b[2])%len(waits)]
	}
	return o
}

// bits are the names that a byte stands for.
func bits(b byte) (names []string) {
	for i, name := range poolNames {
		if b>>i&1 != 0 {
			names = append(names, name)
		}
	}
	return names
}
