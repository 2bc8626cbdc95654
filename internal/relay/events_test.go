package relay

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/admin"
	"github.com/xds-relay/xds-relay/internal/certs"
	"github.com/xds-relay/xds-relay/internal/certs/certstest"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/internal/reload"
	"github.com/xds-relay/xds-relay/internal/test/xdstest"
)

// eventful is a world in which people look at /events. It has a spare control plane, at the address spare, and files.
type eventful struct {
	*world
	dir   string
	face  http.Handler
	mild  atomic.Bool          // the control plane of a scene that refuses some types does so no more
	kinds map[events.Kind]bool // that were seen
}

const spare = "127.0.0.1:9"

// told looks for an event of a kind at /events whose message has what is wanted, which must be as wanted in all that
// operators need. Of the client only the node is compared.
func (w *eventful) told(kind events.Kind, want events.Event) {
	w.t.Helper()
	synctest.Wait()
	resp := httptest.NewRecorder()
	w.face.ServeHTTP(resp, httptest.NewRequest(http.MethodGet, "http://localhost/events?kind="+string(kind), nil))
	var page struct{ Events []events.Event }
	err := json.Unmarshal(resp.Body.Bytes(), &page)
	i := slices.IndexFunc(page.Events, func(e events.Event) bool { return strings.Contains(e.Message, want.Message) })
	if i < 0 {
		w.t.Fatalf("of %s there is %s, %v, want %q", kind, resp.Body, err, want.Message)
	}
	w.kinds[kind] = true
	e := page.Events[i]
	got, about := e, &events.Client{}
	if e.Client != nil {
		about = e.Client
	}
	if want.Client == nil {
		want.Client = &events.Client{}
	}
	got.ID, got.Time, got.First, got.Times, got.Since, got.Kind = 0, time.Time{}, time.Time{}, 0, time.Time{}, ""
	got.Client, got.Message = &events.Client{Node: about.Node}, want.Message
	gotText, _ := json.Marshal(got) // it has no error
	wantText, _ := json.Marshal(want)
	if string(gotText) != string(wantText) {
		w.t.Errorf("%s is told as\n%s, want\n%s", kind, gotText, wantText)
	}
}

// receive is the next response to a client that does not listen by itself.
func (w *eventful) receive(c *client) *discovery.DeltaDiscoveryResponse {
	w.t.Helper()
	r, err := c.stream.Recv()
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// hangUp has the control plane end the stream.
func (w *eventful) hangUp() {
	w.t.Helper()
	if err := w.plane.Say("up", xdstest.MustParse("up", "end")); err != nil {
		w.t.Fatal(err)
	}
}

// cut has the control plane come back and remove some clusters.
func (w *eventful) cut(removed string) {
	w.t.Helper()
	w.hangUp()
	time.Sleep(5 * time.Second)
	synctest.Wait()
	w.respond("CDS %s", removed)
}

// write writes one of the files.
func (w *eventful) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// scene is something that operators act on, and its end.
type scene struct {
	set     []string // DIR stands for the directory of the files
	refuses bool     // the control plane refuses some types
	prepare func(w *eventful)
	play    func(w *eventful)
}

const rules = `rules: [{identity: "unix:uid=1", read: [{types: [CDS], names: [a]}]}]`

var scenes = map[string]scene{
	"a client rejects, and is late": {set: []string{"admin.stale_after=5s"}, play: func(w *eventful) {
		c := w.open(w.dial(), "c", true)
		synctest.Wait()
		w.respond("CDS a@1 b@1")
		about := events.Event{Level: events.Warn, Group: "default", Type: cache.Cluster, Client: &events.Client{Node: "c"}, Count: 2}
		nack, late, over := about, about, about
		nack.Names, nack.Message = []string{"a", "b"}, "no such filter"
		late.Message = "the client has not acknowledged what it was sent"
		over.Level, over.Count, over.Message = events.Info, 0, "the client has a"
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Cluster), ResponseNonce: w.receive(c).GetNonce(), ErrorDetail: &statuspb.Status{Message: "no such filter"}})
		w.told(events.Nack, nack)
		w.respond("CDS a@2 b@2")
		accepts := func(r *discovery.DeltaDiscoveryResponse) {
			c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Cluster), ResponseNonce: r.GetNonce()})
		}
		accepts(w.receive(c))
		w.told(events.NackOver, over)
		w.respond("CDS a@3 b@3")
		last := w.receive(c)
		time.Sleep(10 * time.Second)
		w.told(events.Stale, late)
		accepts(last)
		time.Sleep(2 * time.Second)
		w.told(events.StaleOver, over)
	}},

	"removals are held back": {set: []string{"cache.mass_removal_guard.fraction=0.5", "cache.mass_removal_guard.min=2", "cache.mass_removal_guard.hold=5m"}, play: func(w *eventful) {
		about := events.Event{Level: events.Warn, Group: "default", Type: cache.Cluster, ControlPlane: w.relay.ControlPlanes()[0], Count: 3}
		held, back := about, about
		held.Names, held.Message = []string{"a", "b", "c"}, "removes 3 of 3; they are held back until "
		back.Level, back.Message = events.Info, "the control plane has the resources after all"
		released := func(count int, why string) {
			w.t.Helper()
			of := about
			of.Count, of.Message = count, why
			w.told(events.RemovalsReleased, of)
		}
		w.open(w.dial(), "c", false)
		synctest.Wait()
		all := func(version string) { w.respond("CDS a@%[1]s b@%[1]s c@%[1]s", version); synctest.Wait() }
		all("1")
		w.cut("-a -b -c")
		w.told(events.RemovalsHeld, held)
		all("2")
		w.told(events.RemovalsForgotten, back)

		w.cut("-a -b -c")
		time.Sleep(6 * time.Minute)
		released(3, "the time of cache.mass_removal_guard.hold is over")

		all("3")
		w.cut("-a -b -c")
		w.cut("-a -b")
		released(2, "the control plane has repeated them")
		time.Sleep(6 * time.Minute) // the other one stays: the stream was shown it, and is silent, or says that the set is complete

		all("4")
		w.cut("-a -b -c")
		synctest.Wait()
		post := httptest.NewRequest(http.MethodPost, "http://localhost/guard/release", nil)
		w.face.ServeHTTP(httptest.NewRecorder(), post)
		about.ControlPlane = "" // whoever asked is no control plane
		released(3, "an operator carries them out")
	}},

	"a later stream does not repeat removals": {set: []string{"cache.mass_removal_guard.fraction=0.5", "cache.mass_removal_guard.min=2"}, play: func(w *eventful) {
		c := w.open(w.dial(), "c", false)
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Endpoint), ResourceNamesSubscribe: []string{"a", "b"}})
		synctest.Wait()
		w.respond("EDS a@1 b@1")
		w.cut("x@1")
		w.respond("EDS -a -b")
		w.cut("x@1")
		time.Sleep(10 * time.Minute)
		w.told(events.RemovalsForgotten, events.Event{
			Level: events.Info, Group: "default", Type: cache.Endpoint, ControlPlane: w.relay.ControlPlanes()[0], Count: 2, Message: "the control plane has the resources after all",
		})
	}},

	"a later stream has to announce what is held back": {set: []string{"cache.mass_removal_guard.fraction=0.5", "cache.mass_removal_guard.min=2", "upstream.mode=sotw"}, play: func(w *eventful) {
		w.open(w.dial(), "c", false)
		synctest.Wait()
		w.respond("CDS v=1 a@1 b@1 c@1")
		w.cut("v=2")
		w.hangUp() // and the next stream says nothing
		time.Sleep(10 * time.Minute)
		w.told(events.RemovalsForgotten, events.Event{
			Level: events.Info, Group: "default", Type: cache.Cluster, ControlPlane: w.relay.ControlPlanes()[0], Count: 3, Message: "the control plane has the resources after all",
		})
	}},

	"the control plane refuses a type": {refuses: true, play: func(w *eventful) {
		c := w.open(w.dial(), "c", false)
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Listener)})
		time.Sleep(2 * time.Minute)
		about := events.Event{Level: events.Warn, Group: "default", Type: cache.Listener, ControlPlane: w.relay.ControlPlanes()[0], Message: "the control plane ends the stream when asked for the type"}
		w.told(events.TypeQuarantined, about)
		w.mild.Store(true)
		time.Sleep(time.Hour)
		about.Level, about.Message = events.Info, "the type is asked for with the others again"
		w.told(events.TypeAcquitted, about)
	}},

	"there is no room for a group": {set: []string{"groups.key=[id]", "groups.max=1"}, play: func(w *eventful) {
		w.open(w.dial(), "a", false)
		synctest.Wait()
		w.open(w.dial(), "b", false)
		w.told(events.GroupRefused, events.Event{Level: events.Warn, Message: "groups.max"})
	}},

	"there is no room for a type's group": {set: []string{`groups.types=[{"type_url": "EDS", "key": ["id"]}]`, "groups.max=2"}, play: func(w *eventful) {
		for _, id := range []string{"a", "b"} {
			c := w.open(w.dial(), id, false)
			c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Endpoint), ResourceNamesSubscribe: []string{"x"}})
			synctest.Wait()
		}
		w.told(events.TypeRefused, events.Event{Level: events.Warn, Type: cache.Endpoint, Client: &events.Client{Node: "b"}, Group: "none", Message: "groups.max"})
	}},

	"the control plane comes, goes, and another one is put to use": {set: []string{"upstream.fallbacks=[{address: '" + spare + "', insecure: true}]"}, play: func(w *eventful) {
		main := w.relay.ControlPlanes()[0]
		w.open(w.dial(), "c", false)
		synctest.Wait()
		w.respond("CDS a@1")
		w.told(events.ControlPlaneBack, events.Event{Level: events.Info, ControlPlane: main, Message: "the control plane answers"})
		w.up.Down()
		time.Sleep(time.Second)
		w.told(events.ControlPlaneLost, events.Event{Level: events.Warn, ControlPlane: main, Message: "lost the control plane"})
		time.Sleep(10 * time.Minute)
		w.told(events.ControlPlaneSwitched, events.Event{Level: events.Warn, ControlPlane: spare, Message: ", instead of " + main})
	}},

	"the relay rejects a response": {play: func(w *eventful) {
		w.open(w.dial(), "c", false)
		synctest.Wait()
		w.respond("CDS a@1 a@2")
		w.told(events.ResponseRejected, events.Event{Level: events.Warn, Group: "default", Type: cache.Cluster, ControlPlane: w.relay.ControlPlanes()[0], Message: `"a" is listed twice`})
	}},

	"certificates change": {
		set:     []string{"downstream.tls={cert: DIR/relay.crt, key: DIR/relay.key}", "upstream.insecure=true"},
		prepare: func(w *eventful) { w.issue() },
		play: func(w *eventful) {
			w.issue()
			time.Sleep(2 * time.Minute)
			w.told(events.CertificatesReloaded, events.Event{Level: events.Info, Message: "downstream.tls: new connections use the new certificate"})
			w.write("relay.crt", "none")
			time.Sleep(2 * time.Minute)
			w.told(events.CertificatesRefused, events.Event{Level: events.Warn, Message: "downstream.tls: the files cannot be used, and the last good ones stay: "})
			w.issue()
			time.Sleep(2 * time.Minute)
			w.told(events.CertificatesReloaded, events.Event{Level: events.Info, Message: "downstream.tls: new connections use the new certificate"})
		},
	},

	"rules change": {
		set:     []string{"authz.rules_file=DIR/rules.yaml"},
		prepare: func(w *eventful) { w.write("rules.yaml", rules) },
		play: func(w *eventful) {
			w.write("rules.yaml", "rulez: []")
			w.relay.ReadRules()
			w.told(events.RulesRefused, events.Event{Level: events.Error, Message: `unknown field "rulez"`})
			w.write("rules.yaml", rules+" # again")
			w.relay.ReadRules()
			w.told(events.RulesReloaded, events.Event{Level: events.Info, Count: 1, Message: "authz.rules_file has changed"})
		},
	},

	"the configuration changes": {play: func(w *eventful) {
		changes := []string{"timers.ack_timeout=3s", "groups.max=7"}
		ring := w.relay.options.Events
		r := reload.New(reload.Options{
			Load: func() (*config.Config, error) { return config.Load("", changes) }, Running: w.relay.Config, Apply: w.relay.Reconfigure,
			Log: slog.New(slog.DiscardHandler), Events: ring,
		})
		if _, err := r.Reload("test"); err != nil {
			w.t.Fatal(err)
		}
		w.told(events.ConfigReloaded, events.Event{Level: events.Warn, Message: "timers.ack_timeout"})
		w.told(events.ConfigReloaded, events.Event{Level: events.Warn, Message: "needs a restart: groups.max"})
		changes = []string{"timers.ack_timeout=soon"}
		if _, err := r.Reload("test"); err == nil {
			w.t.Fatal("it is taken")
		}
		w.told(events.ConfigRefused, events.Event{Level: events.Error, Message: "timers.ack_timeout: wants a duration"})
	}},
}

// issue writes another certificate.
func (w *eventful) issue() {
	w.t.Helper()
	now := time.Now()
	ca := certstest.NewAuthorityFrom(w.t, x509.Certificate{NotAfter: now.Add(1000 * time.Hour)})
	cert, key := ca.Issue(w.t, x509.Certificate{NotBefore: now.Add(-time.Hour), NotAfter: now.Add(100 * time.Hour)})
	certstest.Rename(w.t, w.dir, map[string][]byte{"relay.crt": cert, "relay.key": key})
}

// TestEvents: whatever operators act on is told at /events, with what it is about, and so is its end. No kind of
// events is missing here.
func TestEvents(t *testing.T) {
	seen, played := make(map[events.Kind]bool), 0
	for name, of := range scenes {
		t.Run(name, func(t *testing.T) {
			played++
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) { of.run(t, dir, seen) })
		})
	}
	for _, kind := range events.Kinds() {
		if all := played == len(scenes) && !t.Failed(); all && !seen[kind] {
			t.Errorf("no scene brings about %s", kind)
		}
	}
}

// run plays the scene, and notes the kinds of events that were seen.
func (s scene) run(t *testing.T, dir string, seen map[events.Kind]bool) {
	w := &eventful{world: &world{t: t, up: xdstest.NewNetwork(), down: xdstest.NewNetwork()}, dir: dir, kinds: seen}
	if s.prepare != nil {
		s.prepare(w)
	}
	set := slices.Concat([]string{"upstream.coalesce_window=0s", "timers.settle=0s"}, s.set)
	for i := range set {
		set[i] = strings.ReplaceAll(set[i], "DIR", dir)
	}
	c, err := config.Load("", set)
	if err != nil {
		t.Fatal(err)
	}
	other := xdstest.NewNetwork()
	second := xdstest.NewControlPlane(other.Listener())
	defer second.Stop()
	if s.refuses {
		server := grpc.NewServer()
		discovery.RegisterAggregatedDiscoveryServiceServer(server, refusing{mild: &w.mild})
		go func() { _ = server.Serve(w.up.Listener()) }() // it ends with Stop
		defer server.Stop()
	} else {
		w.plane = xdstest.NewControlPlane(w.up.Listener())
		defer w.plane.Stop()
	}
	ring := events.NewRing(nil)
	w.relay, err = New(c, Options{Events: ring, Follow: certs.Options{NoNotify: true}, Dial: func(ctx context.Context, address string) (net.Conn, error) {
		if address == spare {
			return other.Dial(ctx, address)
		}
		return w.up.Dial(ctx, address)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.relay.Close(0)
	w.face = admin.NewHandler(w.relay, admin.NewMetrics(admin.ReadBuild("test")), admin.HandlerOptions{Host: "localhost", Log: slog.New(slog.DiscardHandler), Events: ring})
	w.relay.Serve(w.down.Listener())
	s.play(w)
	for _, conn := range w.conns {
		conn.Close()
	}
	w.clients.Wait()
}
