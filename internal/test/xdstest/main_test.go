package xdstest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

func TestMain(m *testing.M) {
	Fingerprint = cache.Fingerprint{}.Of
	fanout.DefaultBounds.Tombstones = func(int) int { return 0 }
	goleak.VerifyTestMain(m)
}
