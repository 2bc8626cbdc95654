package consul

import (
	"fmt"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// numTurns is how often the route turns.
const numTurns = 30

// delayed is how much later what is said to Consul, and by it, arrives.
const delayed = 25 * time.Millisecond

func TestRouteTurns_Direct(t *testing.T)        { turns(t, false, 0) }
func TestRouteTurns_Relay(t *testing.T)         { turns(t, true, 0) }
func TestRouteTurns_DirectDelayed(t *testing.T) { turns(t, false, delayed) }
func TestRouteTurns_RelayDelayed(t *testing.T)  { turns(t, true, delayed) }

// turns turns the route of api to a service that web's Envoy has never heard of, again
// and again, while requests pass: no request may fail (ORDER-3).
func turns(t *testing.T, relayed bool, delay time.Duration) {
	m := startMesh(t)
	for i := range numTurns {
		m.addNative(fmt.Sprintf("v%d", i+1))
	}
	xds := m.grpc
	if delay > 0 {
		xds = startTap(t, xds, delay).Addr
	}
	if relayed {
		xds = startRelay(t, xds).Addr
	}
	web, _ := m.sidecars(xds)
	load := m.load()
	before := 0
	for i := range numTurns {
		service := fmt.Sprintf("v%d", i+1)
		m.split(service)
		eventually(t, func() error {
			if got := load.Last(); got != service {
				return fmt.Errorf("the route leads to %q, not yet to %q", got, service)
			}
			return nil
		})
		// What fails fails at the turn, or soon after.
		peer.Wait(300 * time.Millisecond)
		if now := load.Count().Failed(); now > before {
			t.Logf("turn %d: %d failed", i+1, now-before)
			before = now
		}
	}
	quiet(t, load, web)
}
