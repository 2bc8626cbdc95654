package downstream_test

import (
	"testing"

	"github.com/xds-relay/xds-relay/internal/test/xdstest/play"
)

// TestTranscripts plays every transcript of the protocol over gRPC: this package is
// what the clients speak to.
func TestTranscripts(t *testing.T) {
	play.Once(t)
	play.OverGRPC(t, "../internal/test/xdstest/testdata")
}
