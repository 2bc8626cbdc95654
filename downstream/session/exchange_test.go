package session

import (
	"strconv"
	"testing"
	"time"
)

// A response whose nonce is forgotten, because too many await an ACK, still keeps back changes
// that refer to its Clusters, until a later response is accepted or rejected (ORDER-3).
func TestAForgottenNonceIsStillUnjudged(t *testing.T) {
	for most := 1; most <= 3; most++ {
		x := exchange{acks: acks{most: most}}
		now := time.Now()
		for i := range 5 {
			x.sending(sent{nonce: strconv.Itoa(i), at: now, changes: i == 0}, false)
			if !x.unjudged() {
				t.Fatalf("of %d nonces, the first response counts as judged after %d more", most, i)
			}
		}
		if x.takeAck(x.lastNonce, nil, now); x.unjudged() {
			t.Errorf("of %d nonces: the ACK of the last response does not stand for the first", most)
		}
	}
}
