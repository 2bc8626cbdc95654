package envoygateway

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// startEnvoy starts the Envoy of a Gateway below a relay, or below whatever is there,
// with the bootstrap that Envoy Gateway has made for it.
func startEnvoy(t testing.TB, g *gateway, name, server string) *realenvoy.Envoy {
	t.Helper()
	return realenvoy.Start(t, g.Bootstrap(name, server), realenvoy.Options{Name: name})
}

// at asks for a path.
func at(path string) func(*http.Request) {
	return func(req *http.Request) { req.URL.Path = path }
}

// answers is nil if a path is answered by a backend.
func answers(address, path, backend string) error {
	if answer, failure := realenvoy.Get(address, at(path)); answer != backend {
		return fmt.Errorf("%s%s is answered %q %s, want %s", address, path, answer, failure, backend)
	}
	return nil
}

// arrives waits until a path is answered by a backend.
func arrives(t testing.TB, address, path, backend string) {
	t.Helper()
	peer.Eventually(t, patience, func() error { return answers(address, path, backend) })
}

// unharmed ends a load of which nothing may have failed.
func unharmed(t testing.TB, l *realenvoy.Load) {
	t.Helper()
	c := l.Stop()
	t.Log(c)
	if c.Failed() > 0 {
		t.Errorf("%d requests failed", c.Failed())
	}
	if c.Sent == 0 {
		t.Error("no request was sent")
	}
}
