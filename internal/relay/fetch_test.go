package relay

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/events"
)

// fetched is what became of a unary call.
type fetched struct {
	resp *discovery.DiscoveryResponse
	err  error
	at   time.Time
}

// fetch calls FetchEndpoints, and waits for nothing.
func (w *world) fetch(within time.Duration, names ...string) *fetched {
	conn := w.dial()
	f := new(fetched)
	w.clients.Go(func() {
		ctx := context.Background()
		if within > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, within)
			defer cancel()
		}
		f.resp, f.err = endpointservice.NewEndpointDiscoveryServiceClient(conn).FetchEndpoints(ctx,
			&discovery.DiscoveryRequest{Node: &core.Node{Id: "poller"}, ResourceNames: names})
		f.at = time.Now()
	})
	synctest.Wait()
	return f
}

// TestFetchIsWatched: whoever watches the client of a unary call is shown its request and the answer, and nobody else is.
func TestFetchIsWatched(t *testing.T) {
	long := strings.Repeat("x", 101)
	inWorld(t, []string{"downstream.max_name_bytes=100B"}, func(w *world) {
		watch := func(f events.Filter) *events.Watcher {
			watcher, err := w.watch.Add(f)
			if err != nil {
				t.Fatal(err)
			}
			w.t.Cleanup(watcher.Close)
			return watcher
		}
		watcher := watch(events.Filter{Node: "poller", Type: cache.Endpoint})
		others := []*events.Watcher{watch(events.Filter{Node: "other"}), watch(events.Filter{Type: cache.Cluster}), watch(events.Filter{Stream: 1})}
		w.fetch(0, "a", "b")
		w.respond("EDS a@1 b@1")
		synctest.Wait()
		w.fetch(0, long)
		var kinds []string
		for range 3 {
			all, _ := watcher.Next(w.t.Context(), time.Second)
			for _, m := range all {
				kinds = append(kinds, fmt.Sprint(m.Kind, m.Names, m.Asked, m.Resources))
				if m.Stream != 0 || m.Node != "poller" || m.Type != cache.Endpoint || m.Bytes == 0 || (m.Kind == events.Response) != (m.Version != "") {
					t.Errorf("it is shown as %+v", m)
				}
			}
		}
		if want := []string{"fetch[a b] 2 0", "response[a b] 0 2", "refused[" + long + "] 1 0"}; !slices.Equal(kinds, want) {
			t.Errorf("they are %q, want %q", kinds, want)
		}
		for _, other := range others {
			if all, _ := other.Next(w.t.Context(), time.Second); len(all) > 0 {
				t.Errorf("another one is shown %+v", all)
			}
		}
	})
}

// TestFetchWaitsForAllNames: a call is answered once everything it names is
// resolved, or with UNAVAILABLE when its time is nearly up (REST-10). Calls cause no
// churn: what they ask for lingers.
func TestFetchWaitsForAllNames(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		begin := time.Now()
		patient, hasty := w.fetch(0, "a", "b"), w.fetch(2*time.Second, "a", "b")
		if names := w.plane.Subscribed("up", "EDS"); strings.Join(names, " ") != "a b" {
			t.Fatalf("upstream is asked for %q", names)
		}
		w.respond("EDS a@1")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if status.Code(hasty.err) != codes.Unavailable || hasty.at.Sub(begin) > 2*time.Second {
			t.Errorf("out of time: %v after %v", hasty.err, hasty.at.Sub(begin))
		}
		if !patient.at.IsZero() {
			t.Error("answered although b is not known yet")
		}
		w.respond("EDS b@1")
		synctest.Wait()
		if patient.err != nil || len(patient.resp.GetResources()) != 2 || patient.resp.GetVersionInfo() == "" {
			t.Fatalf("got %v, %v", patient.resp, patient.err)
		}

		// Somebody who calls every few seconds is answered at once, the same if
		// nothing has changed, and the control plane hears nothing of it.
		_, _ = w.plane.Heard()
		for range 10 {
			time.Sleep(7 * time.Second)
			f := w.fetch(0, "b", "a")
			if f.err != nil || f.at != time.Now() || f.resp.GetVersionInfo() != patient.resp.GetVersionInfo() {
				t.Fatalf("got %v, %v", f.resp, f.err)
			}
		}
		if events, _ := w.plane.Heard(); len(events) > 0 {
			t.Errorf("upstream heard %v", events)
		}
		// What is gone does not linger, and is asked for again (UP-7).
		w.respond("EDS a@2 -b")
		synctest.Wait()
		f := w.fetch(0, "a", "b")
		synctest.Wait()
		w.respond("EDS -b")
		synctest.Wait()
		if f.err != nil || len(f.resp.GetResources()) != 1 || f.resp.GetVersionInfo() == patient.resp.GetVersionInfo() ||
			len(f.resp.GetResourceErrors()) != 1 || f.resp.GetResourceErrors()[0].GetErrorDetail().GetCode() != int32(codes.NotFound) {
			t.Errorf("got %v, %v; want a, and that b is missing", f.resp, f.err)
		}
		// Nobody calls any more.
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if names := w.plane.Subscribed("up", "EDS"); len(names) > 0 {
			t.Errorf("upstream is still asked for %q", names)
		}
	})
}

// TestFetchWithoutNames: rows a and b of the WILD table.
func TestFetchWithoutNames(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		if f := w.fetch(0); f.err != nil || f.resp == nil || len(f.resp.GetResources()) > 0 || f.resp.GetVersionInfo() == "" {
			t.Errorf("endpoints: got %v, %v; want nothing, at once", f.resp, f.err)
		}
		var resp *discovery.DiscoveryResponse
		var err error
		conn := w.dial()
		w.clients.Go(func() {
			resp, err = clusterservice.NewClusterDiscoveryServiceClient(conn).FetchClusters(context.Background(), &discovery.DiscoveryRequest{})
		})
		synctest.Wait()
		w.respond("CDS a@1 b@1")
		synctest.Wait()
		if err != nil || len(resp.GetResources()) != 2 {
			t.Errorf("clusters: got %v, %v; want both", resp, err)
		}
	})
}

// TestFetchIsRefused: by the same rules as a stream.
func TestFetchIsRefused(t *testing.T) {
	inWorld(t, []string{"groups.key=[id]", "downstream.max_name_bytes=8B", "downstream.max_request_bytes=1KiB"}, func(w *world) {
		client := endpointservice.NewEndpointDiscoveryServiceClient(w.dial())
		node := &core.Node{Id: "n"}
		for _, c := range []struct {
			req  *discovery.DiscoveryRequest
			code codes.Code
			says string
		}{
			{&discovery.DiscoveryRequest{}, codes.InvalidArgument, "no node"},
			{&discovery.DiscoveryRequest{Node: node, TypeUrl: "other"}, codes.InvalidArgument, "type_url"},
			{&discovery.DiscoveryRequest{Node: node, ResourceNames: []string{"123456789"}}, codes.ResourceExhausted, "max_name_bytes"},
			{&discovery.DiscoveryRequest{Node: node, ResourceNames: strings.Split(strings.Repeat("name,", 300), ",")}, codes.ResourceExhausted, "max_request_bytes"},
		} {
			_, err := client.FetchEndpoints(context.Background(), c.req)
			if status.Code(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%.80v: %v, want %v and %q", c.req, err, c.code, c.says)
			}
		}
	})
}

// TestFetchEndsWithTheRelay: a call that waits is told that the relay is leaving, and
// one whose client leaves is forgotten; a bug ends its call alone.
func TestFetchEndsWithTheRelay(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.seen.count("", func() { w.seen.panicOn = "request" })
		if f := w.fetch(0, "a"); status.Code(f.err) != codes.Internal || w.seen.panics != 1 {
			t.Errorf("after a bug: %v, %d panics", f.err, w.seen.panics)
		}
		gone := w.fetch(0, "gone")
		w.conns[len(w.conns)-1].Close()
		synctest.Wait()
		if gone.err == nil {
			t.Error("a call without a connection was answered")
		}
		f := w.fetch(0, "a")
		w.relay.Close(0)
		synctest.Wait()
		if status.Code(f.err) != codes.Unavailable || !strings.Contains(f.err.Error(), "shutting down") {
			t.Errorf("at the end: %v", f.err)
		}
	})
}

// TestFetchDuringAnOutage: what is known is given, and who asks for more is told why
// there is none (ERR-7).
func TestFetchDuringAnOutage(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.fetch(0, "a")
		w.respond("EDS a@1")
		synctest.Wait()
		w.plane.HangUp()
		w.up.Down()
		time.Sleep(6 * time.Second)
		if f := w.fetch(0, "a"); f.err != nil || len(f.resp.GetResources()) != 1 {
			t.Errorf("what is known: %v, %v", f.resp, f.err)
		}
		f := w.fetch(0, "a", "b")
		time.Sleep(6 * time.Second)
		if status.Code(f.err) != codes.Unavailable {
			t.Errorf("what is not: %v, %v", f.resp, f.err)
		}
	})
}
