package relay

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/internal/test/xdstest"
)

// TestInventedTypesCostNobodyElse: the control plane ends each stream on which it is asked for a type
// that it does not know, and a client invents such types. Another client's updates go on all the while
// on the one stream that was opened for it (UP-21).
func TestInventedTypesCostNobodyElse(t *testing.T) {
	for name, inventions := range map[string]func(tick int) int{
		"as many as it may at once": func(int) int { return 255 },
		"one each half second":      func(tick int) int { return 1 + tick/10 },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				victim := w.open(w.dial(), "victim", false)
				synctest.Wait()
				w.publish()
				attacker := w.open(w.dial(), "attacker", false)
				invented, died := 0, 0
				for tick := range 600 {
					for ; invented < inventions(tick); invented++ {
						attacker.send(&discovery.DeltaDiscoveryRequest{
							TypeUrl: xdstest.TypeURL(fmt.Sprint("T", invented)), ResourceNamesSubscribe: []string{"x"},
						})
					}
					synctest.Wait()
					died += w.poisoned(t, invented)
					w.publish() // fails without the stream
					synctest.Wait()
					if got := victim.version("a"); got != w.published[len(w.published)-1].version {
						t.Fatalf("after %v the victim has not had an update", time.Since(w.published[0].at))
					}
					time.Sleep(50 * time.Millisecond)
				}

				if died < 20 {
					t.Errorf("%d streams were asked for invented types, so little was tried", died)
				}
				t.Logf("%d streams of invented types died", died)
			})
		})
	}
}

// poisoned ends the streams that ask for invented types, and counts them.
func (w *world) poisoned(t *testing.T, invented int) (died int) {
	t.Helper()
	for _, actor := range w.plane.Open() {
		for i := range invented {
			if len(w.plane.Subscribed(actor, fmt.Sprint("T", i))) == 0 {
				continue
			}
			if strings.HasPrefix(actor, "up") {
				t.Fatalf("the stream of all clients is asked for T%d", i)
			}
			if err := w.plane.Say(actor, xdstest.MustParse(actor, `end UNKNOWN "no cache for it"`)); err != nil {
				t.Fatal(err)
			}
			died++
			break
		}
	}
	_, _ = w.plane.Heard()
	return died
}
