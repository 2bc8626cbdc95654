package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	gcptypes "github.com/envoyproxy/go-control-plane/pkg/cache/types"
	gcp "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/admin"
	"github.com/xds-relay/xds-relay/internal/relay"
)

// byCluster is a control plane that chooses what it sends by the cluster of the node.
type byCluster struct{}

// ID implements gcp.NodeHash.
func (byCluster) ID(node *core.Node) string { return node.GetCluster() }

// mute is a cache that never says anything of a type.
type mute struct {
	gcp.Cache
	typ cache.TypeURL
}

// CreateDeltaWatch implements gcp.Cache.
func (m mute) CreateDeltaWatch(r *gcp.DeltaRequest, s gcp.Subscription, responses chan gcp.DeltaResponse) (func(), error) {
	if r.GetTypeUrl() == string(m.typ) {
		return func() {}, nil
	}
	return m.Cache.CreateDeltaWatch(r, s, responses)
}

// chooses is a control plane that has one cluster for one node, and nothing for others.
func chooses(t *testing.T, by gcp.NodeHash, key string) gcp.Cache {
	snapshots := gcp.NewSnapshotCache(true, by, nil)
	s, err := gcp.NewSnapshot("1", map[string][]gcptypes.Resource{string(cache.Cluster): {staticCluster("a", 1)}})
	if err == nil {
		err = snapshots.SetSnapshot(context.Background(), key, s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return snapshots
}

// tokens has a control plane treat streams by their token: without one they end with the
// code bare, with another than the right one with wrong; where that is OK, it is silent.
func tokens(right string, bare, wrong codes.Code) grpc.ServerOption {
	return grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		md, _ := metadata.FromIncomingContext(s.Context())
		switch token := strings.Join(md.Get("authorization"), ","); {
		case token == right:
			return handler(srv, s)
		case token != "" && wrong != codes.OK:
			return status.Error(wrong, "the token is not known")
		case bare != codes.OK:
			return status.Error(bare, "a token is needed")
		}
		<-s.Context().Done()
		return nil
	})
}

// TestMistakes: what people get wrong most easily in front of a control plane is told in
// one line that says where to look. Where it is put right in the relay's configuration,
// nothing is told and clients get what they want. The long form has the default timers.
func TestMistakes(t *testing.T) {
	t.Parallel()
	const silent = "does not answer for a type that clients wait for"
	everything := func(d *deltaClient) { d.Wildcard(cache.Cluster) }
	for _, tt := range []struct {
		name  string
		plane func(t *testing.T) gcp.Cache
		serve []grpc.ServerOption
		wrong []string // settings
		right []string // nil: it is not the relay's to put right
		asks  func(*deltaClient)
		line  []string // what it says; the level is WARN
		// noticed is what /groups says of it.
		noticed []string
	}{{
		name:    "wrong node",
		plane:   func(t *testing.T) gcp.Cache { return chooses(t, gcp.IDHash{}, "edge-1") },
		wrong:   []string{"upstream.node.id=edge-2", "upstream.node.cluster=shop"},
		right:   []string{"upstream.node.id=edge-1"},
		line:    []string{silent, "upstream.node", "groups.profile", "type=" + string(cache.Cluster), "wildcard=true", "since=", "node=edge-2", "cluster=shop", "clients=2"},
		noticed: []string{`"id": "edge-2"`, `"answered": false`, `"unanswered_since": "20`, `"silent": true`, `"connected_since": "20`},
	}, {
		name:    "wrong cluster",
		plane:   func(t *testing.T) gcp.Cache { return chooses(t, byCluster{}, "shop") },
		wrong:   []string{"upstream.node.cluster=shoq"},
		right:   []string{"upstream.node.cluster=shop"},
		line:    []string{silent, "upstream.node", "type=" + string(cache.Cluster), "node=xds-relay", "cluster=shoq", "clients=2"},
		noticed: []string{`"cluster": "shoq"`, `"silent": true`},
	}, {
		name:    "wrong key",
		plane:   func(t *testing.T) gcp.Cache { return chooses(t, byCluster{}, "shop") },
		wrong:   []string{"groups.key=[locality.zone]"},
		right:   []string{"groups.key=[cluster]"},
		line:    []string{silent, "groups.key", "group=", "type=" + string(cache.Cluster), "node=xds-relay/", `cluster=""`, "clients=2"},
		noticed: []string{`"cluster": ""`, `"silent": true`},
	}, {
		name:    "wrong profile",
		plane:   func(t *testing.T) gcp.Cache { return chooses(t, gcp.IDHash{}, "envoy") },
		right:   []string{"groups.profile=sidecar"},
		line:    []string{silent, "groups.profile", "node=xds-relay"},
		noticed: []string{`"id": "xds-relay"`, `"silent": true`},
	}, {
		name:    "nothing of this type",
		plane:   func(t *testing.T) gcp.Cache { return mute{newLinear(t).Mux(), cache.Cluster} },
		line:    []string{silent, "no resource of this type", "type=" + string(cache.Cluster), "wildcard=true"},
		noticed: []string{`"answered": false`, `"silent": true`},
	}, {
		name:  "none of the names",
		plane: func(t *testing.T) gcp.Cache { return newLinear(t).Mux() },
		asks:  func(d *deltaClient) { d.Subscribe(cache.Endpoint, "missing-1", "missing-2") },
		line:  []string{silent, "type=" + string(cache.Endpoint), "wildcard=false", "clients=2"},
	}, {
		name:    "no token, and the control plane says so",
		plane:   func(t *testing.T) gcp.Cache { return chooses(t, gcp.IDHash{}, "xds-relay") },
		serve:   []grpc.ServerOption{tokens("Bearer right", codes.Unauthenticated, codes.PermissionDenied)},
		right:   []string{"upstream.headers={authorization: Bearer right}"},
		line:    []string{"the control plane refuses the relay: see upstream.headers", "address=127.0.0.1:", "reason=refused", "code=Unauthenticated", `err="a token is needed"`},
		noticed: []string{`"last_error": "a token is needed"`, `"last_error_at": "20`},
	}, {
		name:    "no token, and the control plane is silent",
		plane:   func(t *testing.T) gcp.Cache { return chooses(t, gcp.IDHash{}, "xds-relay") },
		serve:   []grpc.ServerOption{tokens("Bearer right", codes.OK, codes.OK)},
		right:   []string{"upstream.headers={authorization: Bearer right}"},
		line:    []string{silent, "want a token", "type=" + string(cache.Cluster)},
		noticed: []string{`"silent": true`},
	}, {
		name:    "a wrong token, and the control plane says so",
		plane:   func(t *testing.T) gcp.Cache { return chooses(t, gcp.IDHash{}, "xds-relay") },
		serve:   []grpc.ServerOption{tokens("Bearer right", codes.Unauthenticated, codes.PermissionDenied)},
		wrong:   []string{"upstream.headers={authorization: Bearer wrong}"},
		right:   []string{"upstream.headers={authorization: Bearer right}"},
		line:    []string{"the control plane refuses the relay: see upstream.headers", "address=127.0.0.1:", "reason=refused", "code=PermissionDenied", `err="the token is not known"`},
		noticed: []string{`"last_error": "the token is not known"`},
	}, {
		name:    "a wrong token, and the control plane is silent",
		plane:   func(t *testing.T) gcp.Cache { return chooses(t, gcp.IDHash{}, "xds-relay") },
		serve:   []grpc.ServerOption{tokens("Bearer right", codes.OK, codes.OK)},
		wrong:   []string{"upstream.headers={authorization: Bearer wrong}"},
		right:   []string{"upstream.headers={authorization: Bearer right}"},
		line:    []string{silent, "want a token", "type=" + string(cache.Cluster)},
		noticed: []string{`"silent": true`},
	}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			asks := tt.asks
			if asks == nil {
				asks = everything
			}
			cp := startControlPlane(t, tt.plane(t), tt.serve...)
			run := func(sets []string) (*relayed, []*deltaClient) {
				if !long() {
					sets = append([]string{"timers.dne_timeout=600ms"}, sets...)
				}
				r := startRelay(t, cp.addr, sets...)
				var clients []*deltaClient
				for range 2 {
					c := newDelta(t, r.addr, "envoy")
					c.cluster, c.persistent = "shop", true
					c.Open()
					clients = append(clients, c)
				}
				for _, c := range clients {
					asks(c)
				}
				return r, clients
			}
			r, _ := run(tt.wrong)
			warnings := func() []string { return r.log.Lines(append([]string{"level=WARN"}, tt.line...)...) }
			took := eventually(t, patience, func() error { return is("lines that tell of it", min(len(warnings()), 1), 1) })
			t.Logf("after %v: %s", took.Round(10*time.Millisecond), warnings()[0])
			silence := tt.line[0] == silent
			if silence {
				throughout(t, quiet, func() error { return is("lines that tell of silence", len(r.log.Lines(silent)), 1) })
			}
			page := groupsPage(t, r.Relay)
			for _, part := range tt.noticed {
				if !strings.Contains(page, part) {
					t.Errorf("/groups does not say %s:\n%s", part, page)
				}
			}
			if tt.right == nil {
				return
			}
			r, clients := run(tt.right)
			eventually(t, patience, func() error { return first(clients[0].Has(cache.Cluster, "a"), clients[1].Has(cache.Cluster, "a")) })
			throughout(t, quiet, func() error { return is("lines that tell of silence", len(r.log.Lines(silent)), 0) })
			if page := groupsPage(t, r.Relay); !strings.Contains(page, `"answered": true`) || strings.Contains(page, `"silent"`) {
				t.Errorf("/groups of one that is right:\n%s", page)
			}
		})
	}
}

// groupsPage is what /groups says, over a socket.
func groupsPage(t *testing.T, r *relay.Relay) string {
	t.Helper()
	return adminPage(t, r, admin.NewMetrics(admin.ReadBuild("test")), "/groups")
}

func adminPage(t *testing.T, r *relay.Relay, m *admin.Metrics, path string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	s := admin.Serve(l, admin.NewHandler(r, m, admin.HandlerOptions{Host: "127.0.0.1", Log: log}), log)
	defer s.Close()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + l.Addr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || path == "/groups" && !json.Valid(body) {
		t.Fatalf("%s: %v, %s: %s", path, err, resp.Status, body)
	}
	return string(body)
}

// What is silent is counted, and so is what is missing, by how that is known. When the
// control plane speaks after all that is over, and said once.
func TestSilenceEnds(t *testing.T) {
	t.Parallel()
	snapshots := gcp.NewSnapshotCache(true, gcp.IDHash{}, nil)
	cp := startControlPlane(t, snapshots)
	metrics := admin.NewMetrics(admin.ReadBuild("test"))
	r := startRelayWith(t, relay.Options{Upstream: metrics}, cp.addr, "timers.dne_timeout=600ms", "upstream.node.id=edge-1")
	metrics.Attach(r)
	e, d := startEnvoy(t, r.addr, "envoy", nil), openDelta(t, r.addr, "names")
	d.Subscribe(cache.Endpoint, "a", "b", "c")
	page := func(series ...string) error {
		body := adminPage(t, r.Relay, metrics, "/metrics")
		for _, s := range series {
			if !strings.Contains(body, "\nxds_relay_"+s+"\n") {
				return fmt.Errorf("the metrics do not say %s", s)
			}
		}
		return nil
	}
	eventually(t, patience, func() error {
		return first(
			page(`upstream_silent_groups{type="CDS"} 1`, `upstream_silent_groups{type="EDS"} 1`, `absent_names{cause="timer",type="EDS"} 3`, `absent_names{cause="removed",type="EDS"} 0`),
			is("lines that tell of missing names", len(r.log.Lines("names are missing", "type="+string(cache.Endpoint), "count=3", "first=a")), 1))
	})
	s, err := gcp.NewSnapshot("1", map[string][]gcptypes.Resource{
		string(cache.Cluster):  {edsCluster("a", 1)},
		string(cache.Endpoint): {endpoints("a", 1, "127.0.0.1:1")},
	})
	if err == nil {
		err = snapshots.SetSnapshot(context.Background(), "edge-1", s)
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() error {
		return first(e.Has(cache.Cluster, "a"), d.Has(cache.Endpoint, "a"),
			page(`upstream_silent_groups{type="CDS"} 0`, `upstream_silent_groups{type="EDS"} 0`, `absent_names{cause="timer",type="EDS"} 2`))
	})
	for _, u := range []cache.TypeURL{cache.Cluster, cache.Endpoint} {
		if err := first(
			is("lines that tell of silence", len(r.log.Lines("level=WARN", "does not answer for a type that clients wait for", "type="+string(u))), 1),
			is("lines that tell of its end", len(r.log.Lines("answers for a type", "type="+string(u))), 1),
		); err != nil {
			t.Error(u, err)
		}
	}
	if err := is("lines that tell of missing names", len(r.log.Lines("names are missing")), 1); err != nil {
		t.Error(err)
	}
}

// Clients of one group that are of different clusters, though the control plane is shown
// a fixed one, may get what is meant for others. It is said once.
func TestClustersOfOneGroup(t *testing.T) {
	t.Parallel()
	w := newLinear(t)
	w.service("a", "127.0.0.1:1")
	cp := startControlPlane(t, w.Mux())
	const line = "clients of one group differ in node.cluster"
	for _, tt := range []struct {
		sets []string
		want int
	}{
		{[]string{"upstream.node.cluster=blue"}, 1},
		{[]string{"upstream.node.cluster=blue", "groups.key=[locality.zone]"}, 1},
		{[]string{"upstream.node.cluster=blue", "groups.key=[cluster]"}, 0},
		{[]string{"upstream.node.cluster=blue", "groups.profile=sidecar"}, 0},
		{nil, 0}, // there is none to choose by
	} {
		r := startRelay(t, cp.addr, tt.sets...)
		for i, cluster := range []string{"blue", "blue", "", "green", "red"} {
			c := newDelta(t, r.addr, fmt.Sprint("client-", i))
			c.cluster = cluster
			c.Open()
			c.Wildcard(cache.Cluster)
			eventually(t, patience, func() error { return c.Has(cache.Cluster, "a-cluster") })
			if i == 2 {
				if err := is("lines before they differ", len(r.log.Lines(line)), 0); err != nil {
					t.Error(tt.sets, err)
				}
			}
		}
		if err := is("lines", len(r.log.Lines("level=WARN", line, "upstream_cluster=blue", "cluster=blue", "other=green", "groups.key")), tt.want); err != nil {
			t.Error(tt.sets, err)
		}
		if err := is("lines in all", len(r.log.Lines(line)), tt.want); err != nil {
			t.Error(tt.sets, err)
		}
	}
}
