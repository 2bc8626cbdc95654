package envoy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// Each kind of change reaches an Envoy under load, and no request fails.
func TestSwitchesUnderLoad(t *testing.T) {
	ways := atFirst(3, variants(way{relays: 1}), variants(way{relays: 1, perType: true}), variants(way{relays: 2, waits: true}))
	for _, w := range ways {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			m := w.makes()
			backends := map[string]string{"a": realenvoy.Backend(t, "a"), "b": realenvoy.Backend(t, "b")}
			has := m.service("a", backends["a"])
			has.put(cache.Cluster, "b", m.cluster("b"))
			has.put(cache.Endpoint, "b", endpoints("b", backends["b"]))
			s := play(t, w, has)
			e, address := s.ready("envoy", "a")
			load := realenvoy.Drive(t, address, rate())
			answered := func(by string) {
				t.Helper()
				peer.Eventually(t, patience, func() error { return peer.Is("answer", load.Last(), by) })
			}
			for i := range often(20, 3) {
				s.plane.Change(func(has world) { has.put(cache.Endpoint, "a", endpoints("a", backends["b"])) })
				answered("b")
				s.plane.Change(func(has world) { has.put(cache.Endpoint, "a", endpoints("a", backends["a"])) })
				answered("a")

				s.plane.Change(func(has world) { has.put(cache.Route, "web", routes("web", to("b"))) })
				answered("b")
				s.plane.Change(func(has world) { has.put(cache.Route, "web", routes("web", to("a"))) })
				answered("a")

				// A changed cluster warms; its endpoints have not changed (ORDER-4).
				timeout := time.Duration(11+i) * time.Second
				s.plane.Change(func(has world) {
					c := m.cluster("a")
					c.ConnectTimeout = durationpb.New(timeout)
					has.put(cache.Cluster, "a", c)
				})
				peer.Eventually(t, patience, func() error {
					d, err := e.Dump()
					if err != nil {
						return err
					}
					c := d.Clusters["a"]
					if c.Warming || !strings.Contains(string(c.Body), fmt.Sprintf("%q", fmt.Sprintf("%ds", 11+i))) {
						return fmt.Errorf("cluster a: warming=%v %s", c.Warming, c.Body)
					}
					return nil
				})

				prefix := fmt.Sprintf("web%d", i)
				s.plane.Change(func(has world) {
					has.put(cache.Listener, "web", m.listener("web", "web", func(h *hcm.HttpConnectionManager) { h.StatPrefix = prefix }))
				})
				peer.Eventually(t, patience, func() error {
					n, err := e.Sum("downstream_rq_completed")
					if err != nil {
						return err
					}
					stats, err := e.Stats(`^http\.` + prefix + `\.downstream_rq_completed$`)
					if err == nil && len(stats) != 1 {
						err = fmt.Errorf("no request came through the new listener, of %d", n)
					}
					return err
				})
			}
			unharmed(t, e, load)
		})
	}
}
