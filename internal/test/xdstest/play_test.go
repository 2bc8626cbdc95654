package xdstest_test

import (
	"testing"

	"github.com/xds-relay/xds-relay/internal/test/xdstest/play"
)

// TestOverGRPC plays every transcript against a whole relay, over real gRPC in a
// bubble of virtual time.
func TestOverGRPC(t *testing.T) { play.OverGRPC(t, "testdata") }

// TestPure plays the same transcripts against the pure parts alone.
func TestPure(t *testing.T) { play.Pure(t, "testdata") }
