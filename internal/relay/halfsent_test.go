package relay

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
)

// begin opens a stream and announces a request of a size, of which nothing is sent yet.
func (h *hoarder) begin(method string, size int) (stream uint32) {
	h.t.Helper()
	stream = h.headers(method)
	h.data(stream, binary.BigEndian.AppendUint32([]byte{0}, uint32(size)))
	synctest.Wait() // gRPC opens the window for it
	return stream
}

// data sends bytes of a request.
func (h *hoarder) data(stream uint32, b []byte) {
	h.t.Helper()
	for len(b) > 0 {
		n := min(len(b), 16<<10)
		if err := h.frames.WriteData(stream, false, b[:n]); err != nil {
			h.t.Fatal(err)
		}
		b = b[n:]
	}
}

const (
	deltaADS    = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	healthCheck = "/grpc.health.v1.Health/Check"
)

// TestHalfSent: requests that lack their last byte, on streams and calls of all kinds, take no more memory than
// downstream.max_inflight_bytes. When others wait for it, they are ended, and only they: the request of a client
// that had to wait is answered, and others get their updates all the while.
func TestHalfSent(t *testing.T) {
	var log bytes.Buffer
	const size, bound = 200 << 10, 64 << 20 // which is the default
	inWorldThat(t, nil, slog.New(slog.NewTextHandler(&log, nil)), func(w *world) {
		victim := w.open(w.dial(), "victim", false)
		synctest.Wait()
		w.publish()
		var all []*hoarder
		for i := range 40 { // 32 MiB, and somewhat more
			h := w.hoarder()
			all = append(all, h)
			for range 5 {
				h.data(h.begin([]string{deltaADS, healthCheck}[i%2], size), make([]byte, size-1))
				synctest.Wait()
			}
			if used := w.relay.Summary().Inflight; used > bound {
				t.Fatalf("%d bytes are in flight", used)
			}
		}
		request := &discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Cluster), Node: &core.Node{Id: "late"}, ResourceNamesSubscribe: []string{"*"}}
		for i := range 40 {
			request.ResourceNamesSubscribe = append(request.ResourceNamesSubscribe, fmt.Sprint(i, strings.Repeat("n", 4000)))
		}
		b, err := proto.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		late := w.hoarder()
		id := late.begin(deltaADS, len(b))
		sent := make(chan struct{})
		go func() { // it waits while its connection is not read
			defer close(sent)
			late.data(id, b)
		}()
		for range 25 {
			time.Sleep(time.Second)
			w.publish()
			synctest.Wait()
			if v := w.published[len(w.published)-1].version; victim.version("a") != v {
				t.Fatal("an update did not come at once")
			}
		}
		<-sent
		late.mu.Lock()
		if late.begun != 1 {
			t.Error("the request of a client that had to wait is not answered")
		}
		late.mu.Unlock()
		var waits int
		w.seen.count("", func() { waits = w.seen.readingWaits })
		if n := w.seen.endings(session.HalfSent); n == 0 || waits == 0 {
			t.Errorf("%d streams were ended, %d connections waited", n, waits)
		}
		for _, h := range all {
			h.mu.Lock()
			for stream, status := range h.ended {
				if !strings.HasPrefix(status, "8 a request is not complete, and ") || !strings.Contains(status, ", while other requests waited for room (downstream.max_inflight_bytes); send it again") {
					t.Fatalf("stream %d ended with %s", stream, status)
				}
			}
			h.mu.Unlock()
		}
		time.Sleep(40 * time.Second)
		if used := w.relay.Summary().Inflight; used != 0 {
			t.Errorf("%d bytes are still in flight", used)
		}
		if _, err := victim.over(); err != nil {
			t.Error(err)
		}
		for _, h := range append(all, late) {
			h.conn.Close()
		}
	})
	if n := strings.Count(log.String(), "requests of clients wait to be read"); n != 1 {
		t.Errorf("the log says %d times that reading waits", n)
	}
}
