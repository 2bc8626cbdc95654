package envoy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// way is how Envoys get what the control plane has.
type way struct {
	sotw    bool // what they speak; else Delta
	perType bool // a stream a type; else ADS
	relays  int  // on the way; 0: directly
	waits   bool // the control plane does
	// snapshots: the control plane is go-control-plane's snapshot cache.
	snapshots bool
	upstream  string // the upstream.mode of each relay; empty: the default
}

func (w way) String() string {
	parts := []string{"delta", "ads", fmt.Sprintf("relays=%d", w.relays)}
	if w.sotw {
		parts[0] = "sotw"
	}
	if w.perType {
		parts[1] = "per type"
	}
	if w.waits {
		parts = append(parts, "waits")
	}
	if w.snapshots {
		parts = append(parts, "snapshots")
	}
	if w.upstream != "" {
		parts = append(parts, w.upstream+" upstream")
	}
	return strings.Join(parts, ", ")
}

// makes the resources that suit the way.
func (w way) makes() maker {
	if w.perType {
		return perType(w.sotw)
	}
	return byADS()
}

// variants are a way in both variants.
func variants(w way) []way {
	delta, sotw := w, w
	sotw.sotw = true
	return []way{delta, sotw}
}

// oneLanguage is a way in both variants, where the relays speak upstream what the Envoys do.
func oneLanguage(w way) []way {
	ways := variants(w)
	ways[0].upstream, ways[1].upstream = "delta", "sotw"
	return ways
}

// translated is a way in both variants, where the relays speak upstream the other one.
func translated(w way) []way {
	ways := variants(w)
	ways[0].upstream, ways[1].upstream = "sotw", "delta"
	return ways
}

// atFirst are the first n ways in the short form, and all of them in the long form.
func atFirst(n int, ways ...[]way) []way {
	all := slices.Concat(ways...)
	if long() {
		return all
	}
	return all[:n]
}

// scene is a control plane, relays, and a tap between the last of these and its Envoys.
type scene struct {
	t     testing.TB
	way   way
	plane *plane // nil: it has snapshots
	// change changes what it has.
	change func(func(world))
	// links lead to the control plane and to each relay, in this order; each is between
	// that and the next, or the tap.
	links  []*peer.Link
	relays []*relayed
	tap    *peer.Tap
	mark   int // of the tap, when clear was called last
}

// play sets a scene with a control plane that has a world. Each set is a key=value of
// every relay's configuration.
func play(t testing.TB, w way, has world, sets ...string) *scene {
	t.Helper()
	realenvoy.Need(t)
	s := &scene{t: t, way: w}
	from := ""
	if w.snapshots {
		p := startSnapshots(t, has)
		s.change, from = p.Change, p.addr
	} else {
		s.plane = newPlane(t, has)
		s.plane.waits = w.waits
		s.plane.Start()
		s.change, from = s.plane.Change, s.plane.addr
	}
	s.links = append(s.links, peer.StartLink(t, from))
	if w.upstream != "" {
		sets = append(slices.Clone(sets), "upstream.mode="+w.upstream)
	}
	for i := range w.relays {
		r := startRelay(t, fmt.Sprintf("tier-%d", i+1), s.links[i].Addr, sets...)
		s.relays = append(s.relays, r)
		s.links = append(s.links, peer.StartLink(t, r.addr))
	}
	s.tap = peer.StartTap(t, "what the Envoys said and heard", s.links[w.relays].Addr, peer.TapOptions{})
	return s
}

// envoy starts one.
func (s *scene) envoy(name string) *realenvoy.Envoy {
	s.t.Helper()
	return startEnvoy(s.t, s.way, name, s.tap.Addr)
}

func startEnvoy(t testing.TB, w way, name, target string) *realenvoy.Envoy {
	t.Helper()
	node := realenvoy.Node{ID: name, Cluster: "e2e"}
	source := realenvoy.Source{Target: target, SotW: w.sotw}
	b := realenvoy.ADS(node, source)
	if w.perType {
		b = realenvoy.PerType(node, source)
	}
	for _, all := range []string{"cds_config", "lds_config"} {
		b["dynamic_resources"].(realenvoy.Object)[all].(realenvoy.Object)["initial_fetch_timeout"] = fmt.Sprintf("%ds", never/time.Second)
	}
	return realenvoy.Start(t, b, realenvoy.Options{Name: name})
}

// ready starts an Envoy and waits until it is ready, and until what it is asked at its
// listener "web" is answered as it should be.
func (s *scene) ready(name, answer string) (*realenvoy.Envoy, string) {
	s.t.Helper()
	e := s.envoy(name)
	e.WaitReady(patience)
	address := listens(s.t, e, "web")
	peer.Eventually(s.t, patience, func() error { return answers(address, answer) })
	return e, address
}

// listens is where a listener listens, once it does.
func listens(t testing.TB, e *realenvoy.Envoy, listener string) (address string) {
	t.Helper()
	peer.Eventually(t, patience, func() (err error) {
		address, err = e.Address(listener)
		return err
	})
	return address
}

// answers complains if a request to an address is not answered so.
func answers(address, want string, changes ...func(*http.Request)) error {
	answer, failure := realenvoy.Get(address, changes...)
	if failure != "" {
		return fmt.Errorf("a request failed: %s", failure)
	}
	return peer.Is("answer", answer, want)
}

// clear forgets what the Envoys were told.
func (s *scene) clear() { s.mark = s.tap.Mark() }

// told is what the Envoys were told since clear, as "CDS +name" and "CDS -name".
func (s *scene) told() (all []string) {
	for _, m := range s.tap.Since(s.mark) {
		if !m.Response {
			continue
		}
		for _, name := range m.Names {
			all = append(all, m.URL.Short()+" +"+name)
		}
		for _, name := range m.Less {
			all = append(all, m.URL.Short()+" -"+name)
		}
	}
	return all
}

// unharmed fails the test if a request of the load has failed, or found no cluster or
// route at the Envoy.
func unharmed(t testing.TB, e *realenvoy.Envoy, l *realenvoy.Load) {
	t.Helper()
	c := l.Stop()
	t.Log(c)
	if c.Failed() > 0 {
		t.Errorf("requests failed: %v", c)
	}
	if c.Sent == 0 {
		t.Error("no request was sent")
	}
	if n, err := e.Sum("no_cluster", "no_route"); err != nil || n > 0 {
		t.Errorf("%d requests found no cluster or no route: %v", n, err)
	}
}
