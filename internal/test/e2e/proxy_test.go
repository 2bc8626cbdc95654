package e2e

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/loopback"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// TestThroughAProxy: a control plane that only the proxy can find is reached through it, by `serve` and by `check`; the
// log names the proxy once, and nothing shows its password.
func TestThroughAProxy(t *testing.T) {
	t.Parallel()
	w := newLinear(t)
	w.service("a", "127.0.0.1:1")
	cp := startControlPlane(t, w.Mux())
	proxy := peer.NewProxy(t, cp.addr)
	environment := []string{"HTTPS_PROXY=http://user:secret@" + proxy.Addr, "NO_PROXY=other.test"}
	upstream := []string{"--upstream", "dns:///control-plane.test:15010"}

	addr, admin := loopback.Reserve(t), loopback.Reserve(t)
	r := peer.NewRelay(t, addr, admin, append(upstream, "--listen", addr, "--admin", admin), "log.format=text", "upstream.insecure=true")
	r.Env = environment
	r.Start()
	c := openDelta(t, r.Addr, "c")
	c.Wildcard(cache.Cluster)
	eventually(t, patience, func() error { return c.Has(cache.Cluster, "a-cluster") })
	if asked := proxy.Asked(); !slices.Equal(slices.Compact(asked), []string{"CONNECT control-plane.test:15010"}) {
		t.Errorf("the proxy was asked for %q", asked)
	}
	log := r.Output.String()
	if n := strings.Count(log, "through the proxy of HTTPS_PROXY  proxy="+proxy.Addr+" upstream=dns:///control-plane.test:15010\n"); n != 1 || strings.Contains(log, "user:") {
		t.Errorf("the log names the proxy %d times:\n%s", n, log)
	}

	check := exec.Command(peer.Binary(t), append([]string{"check", "--set", "upstream.insecure=true"}, upstream...)...)
	check.Env = append(os.Environ(), environment...)
	said, err := check.CombinedOutput()
	if err != nil || !strings.Contains(string(said), "control-plane.test:15010, through the proxy "+proxy.Addr+" (HTTPS_PROXY)\n") || strings.Contains(string(said), "user:") {
		t.Errorf("check: %v\n%s", err, said)
	}
}
