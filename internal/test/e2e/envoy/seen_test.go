package envoy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	status "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// An Envoy that rejects a cluster, and one that is paused, are seen by whoever looks: in the list of clients, over
// CSDS, among the events, and at a webhook. So is the end of it.
func TestSeen(t *testing.T) {
	realenvoy.Need(t)
	posted := new(postings)
	hook := httptest.NewServer(posted)
	t.Cleanup(hook.Close)
	w := way{relays: 1}
	m := w.makes()
	p := newPlane(t, m.service("a", realenvoy.Backend(t, "a")))
	p.Start()
	r := startProcess(t, p.addr, "admin.webhook.url="+hook.URL, "admin.stale_after=1s")
	admin, err := grpc.NewClient(peer.Target(r.Admin), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { admin.Close() })

	rejecting, paused := startEnvoy(t, w, "rejecting", r.Addr), startEnvoy(t, w, "paused", r.Addr)
	for _, e := range []*realenvoy.Envoy{rejecting, paused} {
		e.WaitReady(patience)
	}
	has := func(path string, all ...string) func() error {
		return func() error {
			page, err := r.Page(path)
			if err != nil {
				return err
			}
			for _, want := range all {
				if !strings.Contains(page, want) {
					return fmt.Errorf("%s lacks %q: %s", path, want, page)
				}
			}
			return nil
		}
	}
	peer.Eventually(t, patience, has("/clients?summary", `"synced": 2`))

	signal := func(s syscall.Signal) {
		if err := syscall.Kill(paused.Pid(), s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	goOn := sync.OnceFunc(func() { signal(syscall.SIGCONT) })
	t.Cleanup(goOn)
	change := func(spoil func(*cluster.Cluster)) {
		p.Change(func(has world) {
			bad := m.cluster("bad")
			spoil(bad)
			has.put(cache.Cluster, "bad", bad)
			has.put(cache.Endpoint, "bad", endpoints("bad", "127.0.0.1:1"))
		})
	}
	change(rejects["at once"])
	seen := func(what string, missing func() error) {
		t.Helper()
		t.Logf("%s after %v", what, peer.Eventually(t, patience, missing))
	}
	seen("a rejection is in /clients", has("/clients?node=rejecting&type=CDS", `"sync": "nacked"`, "bad"))
	seen("it is an event", has("/events?kind=nack", "rejecting", "bad"))
	seen("it is at the webhook", posted.has("nack", "rejecting"))
	seen("CSDS has it", statusOf(admin, "rejecting", "bad", status.ConfigStatus_ERROR))
	seen("the paused one is in /clients", has("/clients?node=paused&type=CDS", `"sync": "unacked"`, `"since": `))
	seen("CSDS has it", statusOf(admin, "paused", "bad", status.ConfigStatus_STALE))
	seen("it is an event", has("/events?kind=stale", "paused"))
	seen("it is at the webhook", posted.has("stale", "paused"))

	change(func(*cluster.Cluster) {})
	goOn()
	seen("all is well in /clients", has("/clients?summary", `"synced": 2`))
	seen("the end of the rejection is an event", has("/events?kind=nack_over", "rejecting"))
	seen("the end of the pause is one", has("/events?kind=stale_over", "paused"))
	seen("both are at the webhook", func() error {
		return first(posted.has("nack_over", "rejecting")(), posted.has("stale_over", "paused")())
	})
	for _, name := range []string{"rejecting", "paused"} {
		seen("CSDS has it", statusOf(admin, name, "bad", status.ConfigStatus_SYNCED))
	}
}

// statusOf complains if CSDS does not say this of a cluster of a node.
func statusOf(admin *grpc.ClientConn, node, name string, want status.ConfigStatus) func() error {
	return func() error {
		answer, err := status.NewClientStatusDiscoveryServiceClient(admin).FetchClientStatus(context.Background(), &status.ClientStatusRequest{
			NodeMatchers: []*matcher.NodeMatcher{{NodeId: &matcher.StringMatcher{MatchPattern: &matcher.StringMatcher_Exact{Exact: node}}}},
		})
		if err != nil {
			return err
		}
		for _, c := range answer.GetConfig() {
			for _, x := range c.GetGenericXdsConfigs() {
				if x.GetTypeUrl() == string(cache.Cluster) && x.GetName() == name {
					return peer.Is("status", x.GetConfigStatus(), want)
				}
			}
		}
		return fmt.Errorf("it is not there: %v", answer)
	}
}

// postings are what a webhook was posted.
type postings struct {
	mu     sync.Mutex
	bodies []string
}

func (p *postings) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bodies = append(p.bodies, string(body))
}

// has complains if no event of a kind has come that names a node.
func (p *postings) has(kind, node string) func() error {
	return func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if slices.ContainsFunc(p.bodies, func(b string) bool {
			return strings.Contains(b, fmt.Sprintf("%q", kind)) && strings.Contains(b, node)
		}) {
			return nil
		}
		return fmt.Errorf("no %s of %s was posted: %q", kind, node, p.bodies)
	}
}
