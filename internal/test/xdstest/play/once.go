package play

import (
	"testing"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// Once skips a test with the race detector: internal/test/xdstest plays the same transcripts with it, against the same
// code.
func Once(t *testing.T) {
	if peer.Race {
		t.Skip("internal/test/xdstest plays them with the race detector")
	}
}
