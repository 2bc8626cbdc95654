package envoy

import (
	"testing"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// An Envoy is refused its secrets, here for want of room for one more group. It has all the
// rest, serves, and is kept current on the one stream that it opened (NODE-14). It reads no
// errors: the listener that wants the secret waits for as long as Envoy does.
func TestRefused(t *testing.T) {
	for _, w := range variants(way{relays: 1}) {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			m := w.makes().impatient()
			has := m.service("a", realenvoy.Backend(t, "a"))
			has.put(cache.Listener, "secured", m.secured("secured", "web", "cert"))
			has.put(cache.Secret, "cert", newIdentity(t, 1).secret("cert"))
			s := play(t, w, has, "groups.max=1")
			e := s.envoy("envoy")
			t.Logf("ready after %v", e.WaitReady(envoysOwn+slack))
			address := listens(t, e, "web")
			peer.Eventually(t, patience, func() error { return answers(address, "a") })
			b := realenvoy.Backend(t, "b")
			s.plane.Change(func(has world) { has.put(cache.Endpoint, "a", endpoints("a", b)) })
			peer.Eventually(t, patience, func() error { return answers(address, "b") })

			if n := len(s.relays[0].log.Lines("client stream ended")); n > 0 {
				t.Errorf("%d streams of the Envoy were ended", n)
			}
			if !s.relays[0].log.Has("client refused a type") {
				t.Error("the log does not say that the Envoy is refused its secrets")
			}
		})
	}
}
