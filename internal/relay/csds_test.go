package relay

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	status "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/admin"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/csds"
	"github.com/xds-relay/xds-relay/internal/test/xdstest"
)

// csds asks the relay for its states: by resource, those of its own view, and of each client.
func (w *world) csds(request string) map[string]*status.ClientConfig_GenericXdsConfig {
	w.t.Helper()
	resp := httptest.NewRecorder()
	s := csds.New(w.relay, func() config.CSDS { return config.CSDSStatus })
	s.ServeHTTP(resp, httptest.NewRequest(http.MethodPost, csds.Path, strings.NewReader(request)))
	all := new(status.ClientStatusResponse)
	if err := protojson.Unmarshal(resp.Body.Bytes(), all); err != nil {
		w.t.Fatal(err, resp.Body)
	}
	states := make(map[string]*status.ClientConfig_GenericXdsConfig)
	for _, c := range all.GetConfig() {
		for _, g := range c.GetGenericXdsConfigs() {
			states[c.GetNode().GetId()+" "+g.GetName()] = g
		}
	}
	return states
}

// TestNACKsOfTheRelay: CSDS shows what the relay rejects, with the version that clients keep, until the control plane
// announces the resource in a form that can be used (CSDS-3).
func TestNACKsOfTheRelay(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.open(w.dial(), "c", false)
		synctest.Wait()
		_, _ = w.plane.Heard()
		w.respond("CDS a@1 b@1")
		synctest.Wait()
		is := func(name, want, details string) {
			t.Helper()
			g := w.csds("")["xds-relay "+name]
			if g.GetClientStatus().String() != want || !strings.Contains(g.GetErrorState().GetDetails(), details) || (details != "") != (g.GetErrorState() != nil) {
				t.Errorf("%s: %v, want %s", name, g, want)
			}
		}
		is("a", "ACKED", "")
		before := w.csds("")["xds-relay a"]
		time.Sleep(time.Minute)
		w.respond("CDS a@2 a@3 c@1 c@2")
		synctest.Wait()
		is("a", "NACKED", `"a" is listed twice with different content`)
		is("b", "ACKED", "")
		is("c", "NACKED", `"c" is listed twice`)
		now := w.csds("")["xds-relay a"]
		if since := now.GetErrorState().GetLastUpdateAttempt().AsTime().Sub(now.GetLastUpdated().AsTime()); now.GetVersionInfo() != before.GetVersionInfo() || since != time.Minute {
			t.Errorf("it is %v, and was %v", now, before)
		}
		w.respond("CDS a@4")
		synctest.Wait()
		is("a", "ACKED", "")
	})
}

// TestClientsInCSDS: how far a client is with a resource is seen as it goes (CSDS-4).
func TestClientsInCSDS(t *testing.T) {
	inWorld(t, []string{"timers.ack_timeout=1h"}, func(w *world) {
		w.open(w.dial(), "reads", false)
		w.open(w.dial(), "waits", true)
		synctest.Wait()
		if states := w.csds(`{"nodeMatchers": [{}]}`); len(states) != 0 {
			t.Errorf("before there is anything: %v", states)
		}
		_, _ = w.plane.Heard()
		is := func(reads, waits string) {
			t.Helper()
			states := w.csds(`{"nodeMatchers": [{}]}`)
			if got := []string{states["reads a"].GetConfigStatus().String(), states["waits a"].GetConfigStatus().String()}; !slices.Equal(got, []string{reads, waits}) {
				t.Errorf("they are %v", got)
			}
		}
		w.respond("CDS a@1")
		synctest.Wait()
		is("SYNCED", "STALE")
		w.respond("CDS a@2")
		synctest.Wait()
		is("SYNCED", "STALE")
		if v := w.csds(`{"nodeMatchers": [{"nodeId": {"exact": "reads"}}]}`)["reads a"].GetVersionInfo(); v != versionOf(t, cache.Cluster, "a@2") {
			t.Errorf("the version is %s", v)
		}
	})
}

// BenchmarkCSDS asks a relay with 1,000 clients of 1,000 clusters each for the state of all of them, and of one, over
// gRPC. extra-MiB is by how much the heap grows at most, garbage included.
func BenchmarkCSDS(b *testing.B) {
	at, _ := busy(b, 1000, 1000)
	for _, id := range []string{"all", "one"} {
		m := &matcher.NodeMatcher{}
		if id == "one" {
			m.NodeId = &matcher.StringMatcher{MatchPattern: &matcher.StringMatcher_Exact{Exact: "node-500"}}
		}
		b.Run(id, func(b *testing.B) {
			protocols := new(http.Protocols)
			protocols.SetUnencryptedHTTP2(true)
			transport := &http.Transport{Protocols: protocols}
			defer transport.CloseIdleConnections()
			message, err := proto.Marshal(&status.ClientStatusRequest{NodeMatchers: []*matcher.NodeMatcher{m}})
			if err != nil {
				b.Fatal(err)
			}
			frame := append([]byte{0, 0, 0, 0, byte(len(message))}, message...)
			peak, long := watchHeap(b), int64(0)
			for b.Loop() {
				req, err := http.NewRequest(http.MethodPost, "http://"+at+status.ClientStatusDiscoveryService_FetchClientStatus_FullMethodName, strings.NewReader(string(frame)))
				if err != nil {
					b.Fatal(err)
				}
				req.Header.Set("Content-Type", "application/grpc")
				resp, err := transport.RoundTrip(req)
				if err != nil {
					b.Fatal(err)
				}
				long, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if err != nil || resp.Trailer.Get("Grpc-Status") != "0" {
					b.Fatal(err, resp.Header, resp.Trailer)
				}
			}
			b.ReportMetric(peak(), "extra-MiB")
			b.ReportMetric(float64(long)/(1<<20), "answer-MiB")
		})
	}
}

// BenchmarkAsked asks a relay with 1,000 clients of 1,000 clusters each for what ps shows, and for the state of all of
// them in JSON, without a network.
func BenchmarkAsked(b *testing.B) {
	_, face := busy(b, 1000, 1000)
	for _, ask := range []struct{ name, method, path, body string }{
		{"clients", http.MethodGet, "/clients?limit=10000", ""},
		{"groups", http.MethodGet, "/groups", ""},
		{"csds-own", http.MethodPost, csds.Path, ""},
		{"csds-one", http.MethodPost, csds.Path, `{"nodeMatchers": [{"nodeId": {"exact": "node-500"}}]}`},
		{"csds-all", http.MethodPost, csds.Path, `{"nodeMatchers": [{}]}`},
	} {
		b.Run(ask.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w := &nowhere{}
				if face.ServeHTTP(w, httptest.NewRequest(ask.method, "http://localhost"+ask.path, strings.NewReader(ask.body))); w.code > http.StatusOK {
					b.Fatal(w.code)
				}
			}
		})
	}
}

// nowhere is a response that nobody reads.
type nowhere struct {
	header http.Header
	code   int
}

func (w *nowhere) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header)
	}
	return w.header
}
func (w *nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (w *nowhere) WriteHeader(code int)        { w.code = code }

// watchHeap looks at the heap until the function is called that it returns, which says how many MiB it has grown at most.
func watchHeap(b *testing.B) (peak func() float64) {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	read := func() uint64 {
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	begin, done, most := read(), make(chan struct{}), make(chan uint64)
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		highest := begin
		for {
			select {
			case <-tick.C:
				highest = max(highest, read())
			case <-done:
				most <- highest
				return
			}
		}
	}()
	return func() float64 {
		close(done)
		return float64(<-most-begin) / (1 << 20)
	}
}

// busy starts a relay with so many clients that have accepted so many clusters, and returns where its tools ask, and whom.
func busy(b *testing.B, clients, clusters int) (at string, face http.Handler) {
	b.Helper()
	up, down := xdstest.NewNetwork(), xdstest.NewNetwork()
	plane := xdstest.NewControlPlane(up.Listener())
	c, err := config.Load("", []string{"upstream.coalesce_window=0s", "timers.settle=0s"})
	if err != nil {
		b.Fatal(err)
	}
	r, err := New(c, Options{Dial: up.Dial})
	if err != nil {
		b.Fatal(err)
	}
	r.Serve(down.Listener())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	m := admin.NewMetrics(admin.ReadBuild("test"))
	shown := admin.NewHandler(r, m, admin.HandlerOptions{Host: "127.0.0.1", Log: slog.New(slog.DiscardHandler)})
	s := admin.Serve(l, shown, slog.New(slog.DiscardHandler))
	var conns []*grpc.ClientConn
	b.Cleanup(func() {
		s.Close()
		for _, conn := range conns {
			conn.Close()
		}
		r.Close(0)
		plane.Stop()
	})
	var streams []discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	for i := range clients {
		if i%50 == 0 {
			conn, err := grpc.NewClient("passthrough:///relay", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(down.Dial))
			if err != nil {
				b.Fatal(err)
			}
			conns = append(conns, conn)
		}
		stream, err := discovery.NewAggregatedDiscoveryServiceClient(conns[len(conns)-1]).DeltaAggregatedResources(b.Context())
		if err == nil {
			err = stream.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: fmt.Sprint("node-", i)}, TypeUrl: string(cache.Cluster)})
		}
		if err != nil {
			b.Fatal(err)
		}
		streams = append(streams, stream)
	}
	says := xdstest.MustParse("up", "resp CDS nonce=u1"+names(clusters))
	for plane.Say("up", says) != nil { // until the relay has come
		runtime.Gosched()
	}
	for _, stream := range streams {
		resp, err := stream.Recv()
		if err == nil {
			err = stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()})
		}
		if err != nil || len(resp.GetResources()) != clusters {
			b.Fatal(err, len(resp.GetResources()))
		}
	}
	return l.Addr().String(), shown
}

func names(n int) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, " cluster-%04d@1", i)
	}
	return all.String()
}
