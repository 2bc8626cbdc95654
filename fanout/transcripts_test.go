package fanout_test

import (
	"testing"

	"github.com/xds-relay/xds-relay/internal/test/xdstest/play"
)

// TestTranscripts plays every transcript of the protocol against the pure parts of the
// relay, this package among them.
func TestTranscripts(t *testing.T) {
	play.Once(t)
	play.Pure(t, "../internal/test/xdstest/testdata")
}
