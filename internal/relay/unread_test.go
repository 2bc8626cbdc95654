package relay

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

// hoarder is a client of HTTP/2's own kind: it takes in no data at all.
type hoarder struct {
	t      *testing.T
	conn   net.Conn
	frames *http2.Framer
	next   uint32

	mu    sync.Mutex
	begun int               // streams and calls of which the answer has begun
	ended map[uint32]string // by stream: the status without an answer
}

func (w *world) hoarder() *hoarder {
	w.t.Helper()
	conn, err := w.down.Dial(context.Background(), "")
	if err != nil {
		w.t.Fatal(err)
	}
	h := &hoarder{t: w.t, conn: conn, frames: http2.NewFramer(conn, conn), next: 1, ended: make(map[uint32]string)}
	h.frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		w.t.Fatal(err)
	}
	if err := h.frames.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		w.t.Fatal(err)
	}
	w.clients.Go(func() {
		for {
			switch f, err := h.frames.ReadFrame(); f := f.(type) {
			case nil:
				return // the connection is closed
			case *http2.SettingsFrame:
				if err == nil && !f.IsAck() {
					_ = h.frames.WriteSettingsAck()
				}
			case *http2.PingFrame:
				if !f.IsAck() {
					_ = h.frames.WritePing(true, f.Data)
				}
			case *http2.MetaHeadersFrame:
				h.answered(f)
			}
		}
	})
	synctest.Wait() // settings are settled: only the test writes from here on
	return h
}

// answered takes note of an answer's headers.
func (h *hoarder) answered(f *http2.MetaHeadersFrame) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !f.StreamEnded() {
		h.begun++
		return
	}
	status := ""
	for _, field := range f.RegularFields() {
		switch field.Name {
		case "grpc-status":
			status = field.Value + status
		case "grpc-message":
			status += " " + field.Value
		}
	}
	h.ended[f.StreamID] = status
}

// headers opens a stream.
func (h *hoarder) headers(method string) (stream uint32) {
	h.t.Helper()
	var headers bytes.Buffer
	enc := hpack.NewEncoder(&headers)
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "relay"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		if err := enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			h.t.Fatal(err)
		}
	}
	id := h.next
	h.next += 2
	if err := h.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: headers.Bytes(), EndHeaders: true}); err != nil {
		h.t.Fatal(err)
	}
	return id
}

// call makes a unary call.
func (h *hoarder) call(method string, request proto.Message) {
	h.t.Helper()
	b, err := proto.Marshal(request)
	if err != nil {
		h.t.Fatal(err)
	}
	id := h.headers(method)
	message := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
	if err := h.frames.WriteData(id, true, message); err != nil {
		h.t.Fatal(err)
	}
}

// TestCallsThatNobodyReads: gRPC keeps the answers to calls whose client takes in
// nothing, though the calls are over; they have no copies of what is cached (T10).
func TestCallsThatNobodyReads(t *testing.T) {
	const calls = 300
	inWorld(t, nil, func(w *world) {
		w.open(w.dial(), "c", false)
		synctest.Wait()
		w.respond("CDS bulk@1%s", strings.Repeat("x", 1<<20))
		synctest.Wait()
		h := w.hoarder()
		before := heap()
		for range calls {
			h.call("/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters", &discovery.DiscoveryRequest{})
			synctest.Wait()
		}
		if grown := heap() - before; grown > 10<<20 {
			t.Errorf("%d answers that nobody reads take %.1f MiB", calls, grown/(1<<20))
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.begun != calls {
			t.Errorf("%d calls of %d were answered", h.begun, calls)
		}
		h.conn.Close()
	})
}
