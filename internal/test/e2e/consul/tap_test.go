package consul

import (
	"strings"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// startTap stands before a control plane, hands everything on after a delay either way,
// and records what was said.
func startTap(t testing.TB, to string, delay time.Duration) *peer.Tap {
	t.Helper()
	link := peer.StartLink(t, to)
	link.Lag(delay, 0)
	return peer.StartTap(t, "the wire before the control plane", link.Addr, peer.TapOptions{})
}

// typeURLs are the types that Consul speaks of.
var typeURLs = map[string]string{
	"LDS": string(cache.Listener), "CDS": string(cache.Cluster), "RDS": string(cache.Route), "EDS": string(cache.Endpoint),
}

// shortName is a name without the mesh's own domain, and a listener's without its address.
func shortName(name string) string {
	name, _, _ = strings.Cut(name, ".default.dc1.internal.")
	if service, rest, ok := strings.Cut(name, ":127.0.0.1:"); ok && rest != "" {
		name = service
	}
	return name
}
