package session

import (
	"slices"
	"strconv"
	"testing"
	"time"
)

// A response whose nonce is forgotten, because too many await an ACK, still keeps back changes
// that refer to its Clusters, until a later response is accepted or rejected (ORDER-3).
func TestAForgottenNonceIsStillUnjudged(t *testing.T) {
	for most := 1; most <= 3; most++ {
		x := exchange{most: most}
		now := time.Now()
		unjudged := func() bool { return slices.ContainsFunc(x.unacked, func(s sent) bool { return s.changes }) }
		for i := range 5 {
			x.sending(sent{nonce: strconv.Itoa(i), at: now, changes: i == 0}, false)
			if !unjudged() {
				t.Fatalf("of %d nonces, the first response counts as judged after %d more", most, i)
			}
		}
		if x.takeAck(x.lastNonce, nil, now); unjudged() {
			t.Errorf("of %d nonces: the ACK of the last response does not stand for the first", most)
		}
	}
}
