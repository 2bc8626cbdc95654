package admin

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	grpchealth "google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/certs"
	"github.com/xds-relay/xds-relay/internal/health"
	upsession "github.com/xds-relay/xds-relay/upstream/session"
)

// canary is the body of a secret. It must not come out of anything.
const canary = "-----BEGIN PRIVATE KEY-----"

// described is a relay with one group and five clients.
type described struct {
	hub    *fanout.Hub
	health healthpb.HealthServer
}

func newDescribed() described {
	h := fanout.NewHub(fanout.Config{
		Key: `cluster="east";`, Linger: time.Minute, MaxLinger: 10,
		Guard: fanout.Guard{Fraction: 0.5, Min: 2, Within: time.Minute, Hold: time.Hour},
	})
	for _, t := range []cache.TypeURL{cache.Cluster, cache.Secret} {
		s := h.Subscribe(t, fanout.NewSubscriber(func() {}))
		s.Delta([]string{"a", "b", "c", "missing"}, nil, time.Unix(1, 0))
		h.On(fanout.Lane{Type: t}).Asked([]string{"a", "b", "c", "missing"})
		u := &cache.Update{Removed: []string{"missing"}}
		for _, name := range []string{"a", "b", "c"} {
			u.Set = append(u.Set, cache.Received{Upstream: "7", Resource: cache.NewResource(t, &discovery.Resource{
				Name: name, Resource: &anypb.Any{TypeUrl: string(t), Value: []byte(canary)},
			}, cache.Fingerprint{})})
		}
		h.Apply(fanout.Lane{Type: t}, u)
	}
	return described{h, grpchealth.NewServer()}
}

func (d described) Ready() (bool, string) { return false, "waiting for upstream" }
func (d described) Readiness() []health.Check {
	return []health.Check{{Name: "listening", OK: true}, {Name: "ready_types", Why: "waiting for upstream"}}
}
func (d described) Started() bool { return false }
func (d described) Liveness() []health.Check {
	return []health.Check{{Name: "clients", OK: true}, {Name: "groups", OK: true}}
}
func (d described) Count() int { return 5 }
func (d described) Clients() []downstream.Client {
	var clients []downstream.Client
	for i := range 5 {
		clients = append(clients, downstream.Client{
			Stream: uint64(i + 1), Node: fmt.Sprint("node-", i+1), Identity: []string{"spiffe://a", "spiffe://b"}[i%2],
			Types: []session.ClientType{{Type: cache.Cluster, Group: []string{"default", "east"}[i/3], Sync: session.SyncStates()[i/4*3]}}, Sync: session.SyncStates()[i/4*3],
		})
		if i == 4 {
			clients[i].Types = append(clients[i].Types, session.ClientType{Type: cache.Secret, Group: "default", Sync: "synced"})
		}
	}
	return clients
}
func (d described) Client(stream uint64) (downstream.Client, bool) {
	for _, c := range d.Clients() {
		if c.Stream == stream {
			return c, true
		}
	}
	return downstream.Client{}, false
}
func (d described) ClientNames(_ uint64, t cache.TypeURL, after string, _ int) ([]session.ClientName, bool) {
	if after != "" {
		return nil, false
	}
	return []session.ClientName{{Name: "a", Asked: true, Step: session.StepRejected, Sent: "v2 of " + string(t), Now: "v2"}}, false
}
func (d described) ClientName(stream uint64, t cache.TypeURL, name string) (session.ClientName, bool) {
	if name != "a" || stream == 3 {
		return session.ClientName{}, false
	}
	step, sent := session.StepSynced, "v2"
	if stream == 5 {
		step, sent = session.StepRejected, "v1"
	}
	return session.ClientName{Name: name, Asked: true, Step: step, Sent: sent + " of " + string(t), Now: "v2"}, true
}
func (d described) ClientLacks(stream uint64, t cache.TypeURL) []session.ClientName {
	if n, some := d.ClientName(stream, t, "a"); some && n.Step != session.StepSynced {
		return []session.ClientName{n}
	}
	return nil
}
func (d described) Disconnect(stream uint64) bool { return stream <= 5 }
func (d described) Resync(stream uint64) bool     { return stream <= 5 }
func (d described) Holders(*fanout.Hub, cache.TypeURL, string) []downstream.Holder {
	return []downstream.Holder{{Version: "v2", Step: session.StepSynced, Clients: 963}, {Version: "v1", Step: session.StepUnsent, Clients: 37}}
}
func (d described) StartDrain(bool, time.Duration) int { return 4 }
func (d described) StopDrain()                         {}
func (d described) Streams() []uint64                  { return []uint64{1} }
func (d described) View(_ uint64, wanted func(*core.Node) bool, into *downstream.View) bool {
	if into.Node = (&core.Node{Id: "node-1"}); !wanted(into.Node) {
		return false
	}
	into.Types = nil
	for _, t := range []cache.TypeURL{cache.Cluster, cache.Secret} {
		into.Types = append(into.Types, downstream.TypeView{
			ClientType: session.ClientType{Type: t, Group: "default", Nonce: "1"},
			Names:      []session.ClientName{{Name: "a", Step: session.StepSynced, Sent: "v2", Now: "v2", Resource: d.resource(t, "a")}},
		})
	}
	return true
}

// resource is one that the hub has.
func (d described) resource(t cache.TypeURL, name string) *cache.Resource {
	for _, is := range d.hub.Of(t).DescribeAll() {
		if is.Name == name {
			return is.Resource
		}
	}
	return nil
}
func (d described) Health() healthpb.HealthServer { return d.health }
func (d described) Check() []string               { return []string{"stream 3: CDS: names are not in order"} }
func (d described) Summary() downstream.Summary {
	return downstream.Summary{Connections: 7, MaxConnections: 160, Protocols: map[string]int{"delta": 5}, Groups: []int{5}, Lagging: [3]int{3, 2, 1}}
}
func (d described) Groups() map[string]*fanout.Hub { return map[string]*fanout.Hub{"default": d.hub} }
func (d described) ControlPlanes() []string        { return []string{"a:1", "b:1"} }
func (d described) Calls() map[string]int          { return map[string]int{"a.Service": 2} }
func (d described) Silent() map[cache.TypeURL]int  { return map[cache.TypeURL]int{cache.Secret: 1} }
func (d described) Certificates() []certs.State {
	return []certs.State{
		{Hop: certs.Downstream, Role: certs.RoleCert, NotAfter: time.Unix(2000, 0)},
		{Hop: certs.Upstream, Address: "a:1", Role: certs.RoleCA, NotAfter: time.Unix(3000, 0), Stale: true},
	}
}
func (d described) Upstream() map[string]upsession.State {
	at := time.Unix(1000, 0).UTC()
	return map[string]upsession.State{"default": {Node: "edge-1", Cluster: "shop", Entries: []upsession.EntryState{
		{Name: "a:1", InUse: true, Condition: upsession.Mute, Connected: at, Heard: at.Add(time.Second), SotW: true, Lanes: []upsession.LaneState{
			{Lane: fanout.Lane{Type: cache.Cluster, Wildcard: true}, Answered: true},
			{Lane: fanout.Lane{Type: cache.Secret}, Asked: at, Silent: true},
		}},
		{Name: "b:1", Condition: upsession.Down, Failed: at, Error: "connection refused", Retry: at.Add(time.Minute)},
	}}}
}

// groupsOfDescribed is what /groups says of how its group gets on with its control planes.
const groupsOfDescribed = `      "upstream_node": {
        "id": "edge-1",
        "cluster": "shop"
      },
      "upstream": [
        {
          "address": "a:1",
          "in_use": true,
          "state": "silent",
          "connected_since": "1970-01-01T00:16:40Z",
          "mode": "sotw",
          "last_message": "1970-01-01T00:16:41Z",
          "types": [
            {
              "type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
              "wildcard": true,
              "answered": true
            },
            {
              "type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
              "wildcard": false,
              "answered": false,
              "unanswered_since": "1970-01-01T00:16:40Z",
              "silent": true
            }
          ]
        },
        {
          "address": "b:1",
          "in_use": false,
          "state": "down",
          "last_error": "connection refused",
          "last_error_at": "1970-01-01T00:16:40Z",
          "retry_at": "1970-01-01T00:17:40Z"
        }
      ]
`

func ask(t *testing.T, method, path, host string) *httptest.ResponseRecorder {
	t.Helper()
	m := NewMetrics(ReadBuild("test"))
	r := newDescribed()
	m.Attach(r)
	req := httptest.NewRequest(method, path, nil)
	req.Host = host
	w := httptest.NewRecorder()
	NewHandler(r, m, HandlerOptions{Host: "127.0.0.1", Log: slog.New(slog.DiscardHandler)}).ServeHTTP(w, req)
	if strings.Contains(w.Body.String(), canary) {
		t.Errorf("%s shows a secret", path)
	}
	return w
}

func TestEndpoints(t *testing.T) {
	for _, tt := range []struct {
		method, path, host string
		code               int
		body               string
	}{
		{"GET", "/help", "localhost:18001", 200, "/clients"},
		{"GET", "/", "localhost:18001", 200, "<h1 class=\"vh\">Overview</h1>"},
		{"POST", "/", "localhost", 405, "read with GET"},
		{"GET", "/", "evil.example", 421, "this is not"},
		{"GET", "/ui/live", "evil.example", 421, "this is not"},
		{"GET", "/ui", "localhost", 404, "/help lists all of them"},
		{"GET", "/livez", "127.0.0.1:18001", 200, "live"},
		{"GET", "/livez?verbose", "localhost", 200, "[+]clients ok\n[+]groups ok\nlive\n"},
		{"GET", "/readyz", "[::1]:18001", 503, "waiting for upstream\n"},
		{"GET", "/readyz?verbose", "localhost", 503, "[+]listening ok\n[-]ready_types failed: waiting for upstream\nnot ready: waiting for upstream\n"},
		{"GET", "/ready", "localhost", 503, "waiting for upstream"},
		{"GET", "/startupz", "localhost", 503, "waiting for upstream"},
		{"GET", "/server_info", "localhost", 200, `"version": "test"`},
		{"GET", "/debug/check", "localhost", 500, "stream 3: CDS: names are not in order\n"},
		{"POST", "/debug/check", "localhost", 405, "read with GET"},
		{"GET", "/debug/check", "evil.example", 421, "this is not"},
		{"GET", "/metrics", "localhost", 200, `xds_relay_cache_resources{type="CDS"} 3`},
		{"GET", "/stats/prometheus", "localhost", 200, `xds_relay_clients{protocol="delta"} 5`},
		{"GET", "/resources?type=SDS", "LOCALHOST", 200, `"upstream_version": "[redacted]"`},
		{"GET", "/resources?type=CDS", "localhost", 200, `"upstream_version": "7"`},
		{"GET", "/resources?type=CDS", "localhost", 200, `"cause": "removed"`},
		{"GET", "/groups", "localhost", 200, `"key": "cluster=\"east\";"`},
		{"GET", "/groups", "localhost", 200, groupsOfDescribed},
		{"GET", "/metrics", "localhost", 200, `xds_relay_absent_names{cause="removed",type="CDS"} 1`},
		{"GET", "/metrics", "localhost", 200, `xds_relay_absent_names{cause="timer",type="CDS"} 0`},
		{"GET", "/metrics", "localhost", 200, `xds_relay_upstream_silent_groups{type="CDS"} 0`},
		{"GET", "/metrics", "localhost", 200, `xds_relay_upstream_silent_groups{type="SDS"} 1`},
		{"GET", "/metrics", "localhost", 200, `xds_relay_group_clients_bucket{le="5"} 1`},
		{"GET", "/metrics", "localhost", 200, `xds_relay_cache_removals_held{type="CDS"} 0`},
		{"POST", "/guard/release?type=x", "localhost", 400, "use a short name such as CDS"},
		{"GET", "/guard/release", "localhost", 405, "ask it with POST"},
		{"POST", "/guard/release", "evil.example", 421, "this is not"},
		{"POST", "/drain", "localhost", 200, `"draining": true`},
		{"POST", "/drain?for=1m", "localhost", 200, `"clients_leave_over": "1m0s"`},
		{"POST", "/drain?for=", "localhost", 400, `for is ""; use a duration such as 60s`},
		{"POST", "/drain?for=-1s", "localhost", 400, "use a duration such as 60s"},
		{"POST", "/drain?for=25h", "localhost", 400, "24h0m0s at most"},
		{"POST", "/drain?fro=1m", "localhost", 400, `unknown parameter "fro"`},
		{"POST", "/drain", "evil.example", 421, "this is not"},
		{"GET", "/drain", "localhost", 405, "ask it with POST"},
		{"POST", "/undrain", "localhost", 200, `"draining": false`},
		{"POST", "/undrain?for=1m", "localhost", 400, "unknown parameter"},
		{"GET", "/undrain", "localhost", 405, "ask it with POST"},
		{"GET", "/nothing", "localhost", 404, "no such endpoint"},
		{"POST", "/clients", "localhost", 405, "read with GET"},
		{"DELETE", "/resources", "localhost", 405, "read with GET"},
		{"GET", "/clients", "evil.example", 421, "this is not"},
		{"GET", "/clients?limit=0", "localhost", 400, "use a number from 1 to"},
		{"GET", "/clients?continue=x", "localhost", 400, "use what the page before gave"},
		{"GET", "/clients?nod=a", "localhost", 400, `unknown parameter "nod"; /clients knows node, prefix, identity, group, type, sync, summary, limit, continue`},
		{"GET", "/clients?node=node-2", "localhost", 200, `"total": 1,`},
		{"GET", "/clients?node=node", "localhost", 200, `"total": 0,`},
		{"GET", "/clients?identity=spiffe://a", "localhost", 200, `"total": 3,`},
		{"GET", "/clients?identity=spiffe://a&group=east", "localhost", 200, `"total": 1,`},
		{"GET", "/clients?group=", "localhost", 200, `"total": 4,`},
		{"GET", "/clients?group=default", "localhost", 200, `"total": 4,`},
		{"GET", "/clients?prefix=node-", "localhost", 200, `"total": 5,`},
		{"GET", "/clients?prefix=nod&node=node-2", "localhost", 200, `"total": 1,`},
		{"GET", "/clients?sync=nacked", "localhost", 200, `"total": 1,`},
		{"GET", "/clients?sync=nacked,synced", "localhost", 200, `"total": 5,`},
		{"GET", "/clients?sync=nacked&type=SDS", "localhost", 200, `"total": 0,`},
		{"GET", "/clients?sync=stale", "localhost", 400, `sync is "stale"; use some of [synced unsent unacked nacked], with a comma between them`},
		{"GET", "/clients?type=x", "localhost", 400, "use a short name such as CDS"},
		{"GET", "/clients?summary", "localhost", 200, `"nacked": 1`},
		{"GET", "/clients/2", "localhost", 200, `"sent": "v2 of type.googleapis.com/envoy.config.cluster.v3.Cluster"`},
		{"GET", "/clients/2?type=SDS", "localhost", 200, `"names": []`},
		{"GET", "/clients/5", "localhost", 200, `"sent": "[redacted]"`},
		{"GET", "/clients/5?type=SDS", "localhost", 200, `"sent": "[redacted]"`},
		{"GET", "/clients/9", "localhost", 404, "there is no stream 9; it may have ended, and /clients lists those that are open"},
		{"GET", "/clients/x", "localhost", 400, `"x" is no stream; use the number`},
		{"GET", "/clients/2?group=a", "localhost", 400, `unknown parameter "group"; /clients/2 knows type, limit, continue`},
		{"POST", "/clients/2", "localhost", 405, "read with GET"},
		{"GET", "/groups", "localhost", 200, `"group": "default"`},
		{"GET", "/resources?name=a&type=CDS", "localhost", 200, `"clients": 963`},
		{"GET", "/resources?prefix=mis&type=CDS", "localhost", 200, `"name": "missing"`},
		{"GET", "/resources?prefix=x", "localhost", 200, `"resources": []`},
		{"GET", "/resources?summary&type=CDS", "localhost", 200, `"absent": 1`},
		{"GET", "/resources?group=", "localhost", 200, `"group": "default"`},
		{"GET", "/resources?group=default", "localhost", 200, `"group": "default"`},
		{"GET", "/clients?group=&limit=1", "localhost", 200, `"continue": "1"`},
		{"GET", "/resources?typ=CDS", "localhost", 400, "/resources knows type, group, name, prefix, summary, limit, continue"},
		{"POST", "/guard/release?type=", "localhost", 400, "name one type"},
		{"POST", "/guard/release?type=%zz", "localhost", 400, "the query cannot be read"},
		{"POST", "/guard/release?type=CDS;group=a", "localhost", 400, "the query cannot be read"},
		{"POST", "/guard/release?type=CDS&type=EDS", "localhost", 400, "name one type"},
		{"POST", "/guard/release?typ=CDS", "localhost", 400, "/guard/release knows type, group"},
		{"GET", "/resources?continue=x", "localhost", 400, "use what the page before gave"},
		{"GET", "/resources?type=clusters", "localhost", 400, "use a short name such as CDS"},
	} {
		w := ask(t, tt.method, tt.path, tt.host)
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.body) {
			t.Errorf("%s %s of %s: %d %q, want %d and %q", tt.method, tt.path, tt.host, w.Code, w.Body.String(), tt.code, tt.body)
		}
		if w.Code == http.StatusMethodNotAllowed && w.Header().Get("Allow") == "" {
			t.Errorf("%s %s does not say what is allowed", tt.method, tt.path)
		}
	}
}

// TestPages: a list read in pages is the whole list, each entry once.
func TestPages(t *testing.T) {
	for _, tt := range []struct {
		path, list, key string
		want            int
	}{
		{"/clients", "clients", "node", 5},
		{"/resources", "resources", "name", 8},
	} {
		for limit := 1; limit <= 9; limit++ {
			var got []string
			token := ""
			for page := 0; page == 0 || token != ""; page++ {
				var body map[string]json.RawMessage
				w := ask(t, "GET", fmt.Sprintf("%s?limit=%d&continue=%s", tt.path, limit, token), "localhost")
				if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || page > 10 {
					t.Fatalf("%s: %v, page %d: %s", tt.path, err, page, w.Body)
				}
				var entries []map[string]any
				if err := json.Unmarshal(body[tt.list], &entries); err != nil || len(entries) > limit {
					t.Fatalf("%s: %v, %d entries, limit %d", tt.path, err, len(entries), limit)
				}
				for _, e := range entries {
					got = append(got, fmt.Sprint(e["type"], e[tt.key]))
				}
				token = ""
				if next, ok := body["continue"]; ok {
					_ = json.Unmarshal(next, &token) // a string, or the loop ends
				}
			}
			seen := map[string]bool{}
			for _, e := range got {
				seen[e] = true
			}
			if len(got) != tt.want || len(seen) != tt.want {
				t.Errorf("%s with limit %d: %d entries, %d of them different, want %d", tt.path, limit, len(got), len(seen), tt.want)
			}
		}
	}
}

// TestLabelsAreClosedSets: types the code has never seen share one label, so that
// clients cannot make metrics grow.
func TestLabelsAreClosedSets(t *testing.T) {
	m := NewMetrics(ReadBuild("test"))
	for i := range 100 {
		typ := cache.TypeURL(fmt.Sprint("type.googleapis.com/strange.", i))
		m.ClientRequest(typ, session.InitialRequest)
		m.ClientResponse(typ, 1, 1, 1)
		m.ClientAck(typ, time.Second)
		m.UpstreamResponse(typ, 1, 1)
		m.UpstreamNack(typ)
	}
	m.UpstreamReconnect(upsession.Main, "unavailable", time.Second)
	fresh := seriesOf(t, NewMetrics(ReadBuild("test")))
	for name, n := range seriesOf(t, m) {
		if n != fresh[name] {
			t.Errorf("%s has %d series, and had %d at the start", name, n, fresh[name])
		}
	}
}

// seriesOf are the numbers of series by metric.
func seriesOf(t *testing.T, m *Metrics) map[string]int {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	n := make(map[string]int)
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), prefix) {
			n[f.GetName()] = len(f.GetMetric())
		}
	}
	return n
}

// TestExpiry: when a resource expires is seen, and that it did (TTL-2).
func TestExpiry(t *testing.T) {
	m := NewMetrics(ReadBuild("test"))
	r := newDescribed()
	m.Attach(r)
	h := NewHandler(r, m, HandlerOptions{Host: "127.0.0.1", Log: slog.New(slog.DiscardHandler)})
	list := func() string {
		req := httptest.NewRequest("GET", "/resources?type=CDS", nil)
		req.Host = "localhost"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		return w.Body.String()
	}
	if got := list(); strings.Contains(got, `"expires"`) {
		t.Errorf("nothing has a TTL: %s", got)
	}
	r.hub.Apply(fanout.Lane{Type: cache.Cluster}, &cache.Update{At: time.Unix(1000, 0).UTC(), Heartbeats: []cache.Heartbeat{{Name: "a", TTL: time.Minute}}})
	if got, want := list(), `"expires": "1970-01-01T00:17:40Z"`; strings.Count(got, want) != 1 {
		t.Errorf("want one %s in %s", want, got)
	}
	r.hub.Lapse(time.Unix(1060, 0))
	if got, want := list(), `"cause": "ttl"`; strings.Count(got, want) != 1 || strings.Contains(got, `"expires"`) {
		t.Errorf("want one %s in %s", want, got)
	}
}

// TestRelease: what the guard holds back is seen, and let go by whoever may POST from
// this host, but not by a web page (H-22).
func TestRelease(t *testing.T) {
	m := NewMetrics(ReadBuild("test"))
	r := newDescribed()
	m.Attach(r)
	var log strings.Builder
	h := NewHandler(r, m, HandlerOptions{Host: "127.0.0.1", Log: slog.New(slog.NewTextHandler(&log, nil))})
	r.hub.Apply(fanout.Lane{Type: cache.Cluster}, &cache.Update{Stream: 2, At: time.Unix(1000, 0), Removed: []string{"a", "b", "c"}})
	do := func(method, path, site string) string {
		t.Helper()
		req := httptest.NewRequest(method, path, nil)
		req.Host = "localhost"
		if site != "" {
			req.Header.Set("Sec-Fetch-Site", site)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		return fmt.Sprint(w.Code, " ", w.Body.String())
	}
	for _, tt := range []struct{ method, path, site, want string }{
		{"GET", "/metrics", "", `xds_relay_cache_removals_held{type="CDS"} 3`},
		{"GET", "/groups", "", `"removals_held": 3`},
		{"GET", "/resources?type=CDS", "", `"removal_held_until": "1970-01-01T01:16:40Z"`},
		{"POST", "/guard/release", "cross-site", "403"},
		{"POST", "/guard/release?type=SDS", "", `"released": 0`},
		{"POST", "/guard/release?group=another", "", `"released": 0`},
		{"POST", "/guard/release?type=CDS&group=", "", `"released": 3`},
		{"GET", "/metrics", "", `xds_relay_cache_removals_held{type="CDS"} 0`},
		{"GET", "/metrics", "", `xds_relay_cache_resources{type="CDS"} 0`},
		{"POST", "/guard/release", "", `"released": 0`},
	} {
		if got := do(tt.method, tt.path, tt.site); !strings.Contains(got, tt.want) {
			t.Errorf("%s %s: %s, want %s", tt.method, tt.path, got, tt.want)
		}
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "count=3") {
		t.Errorf("the log says %q, and should tell of the three once", got)
	}
}

// TestProfilesAreOff unless they are asked for.
func TestProfilesAreOff(t *testing.T) {
	status := func(o HandlerOptions, path string) int {
		o.Host, o.Log = "127.0.0.1", slog.New(slog.DiscardHandler)
		r := newDescribed()
		w := httptest.NewRecorder()
		req := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:18001"+path, nil)
		NewHandler(r, NewMetrics(ReadBuild("test")), o).ServeHTTP(w, req)
		return w.Code
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/profile?seconds=1"} {
		if code := status(HandlerOptions{}, path); code != http.StatusNotFound {
			t.Errorf("%s answers %d though it is off", path, code)
		}
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap"} {
		if code := status(HandlerOptions{Pprof: true}, path); code != http.StatusOK {
			t.Errorf("%s answers %d", path, code)
		}
	}
	if code := status(HandlerOptions{Pprof: true}, "/debug/pprof/cmdline"); code != http.StatusNotFound {
		t.Errorf("the command line is shown: %d", code)
	}
}
