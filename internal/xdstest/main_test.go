package xdstest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/xds-relay/xds-relay/cache"
)

func TestMain(m *testing.M) {
	Fingerprint = cache.Fingerprint{}.Of
	goleak.VerifyTestMain(m)
}
