package session

import (
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// TestOverdueNamesOfATypeThatIsOver: what was unconfirmed of a type is looked at though nobody wants
// the type any more, and no stream carries it (RECON-12).
func TestOverdueNamesOfATypeThatIsOver(t *testing.T) {
	l := listen(t)
	l.hub = fanout.NewHub(fanout.Config{})
	config := l.core.config
	config.Versions = VersionsNever
	l.core = NewCore(config, l.hub, func() float64 { return 0.5 })
	s := l.wants(cache.Endpoint, "a", "b")
	l.pass(time.Second)
	l.hears(cache.Endpoint, "a", "b")
	l.core.Ended(l.stream, End{Message: "gone"}, l.now)
	l.pass(10 * time.Second)
	l.hears(cache.Endpoint, "a")
	s.Delta(nil, []string{"a", "b"}, l.now)
	l.core.Interest(l.now)
	l.pass(time.Second)
	l.wants(cache.Cluster, "c") // streams are looked at again, and the type leaves its own
	l.pass(2 * time.Minute)
	if l.core.Asks(l.stream, cache.Endpoint) {
		t.Error("the type is still asked for")
	}
}
