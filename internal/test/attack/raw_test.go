//go:build linux

package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// raw is an HTTP/2 connection on which an attacker sends what it likes.
type raw struct {
	net.Conn
	*http2.Framer
	mu     sync.Mutex // guards writing
	block  bytes.Buffer
	pack   *hpack.Encoder
	lastID uint32

	ended  chan struct{} // closed when nothing can be read any more
	why    error
	status sync.Map // by stream: what its trailers said
}

// methods of the service.
const (
	deltaMethod = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	sotwMethod  = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
)

// dialTCP connects, with TLS if the target has it.
func dialTCP(ctx context.Context, at *target) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", at.Addr)
	if err != nil {
		return nil, err
	}
	secure, err := at.secure()
	if err != nil || secure == nil {
		return c, err
	}
	t := tls.Client(c, secure)
	return t, t.HandshakeContext(ctx)
}

// dialRaw connects and begins to speak HTTP/2. What comes is read and acknowledged, but windows are not opened
// again.
func dialRaw(ctx context.Context, at *target, settings ...http2.Setting) (*raw, error) {
	c, err := dialTCP(ctx, at)
	if err != nil {
		return nil, err
	}
	r := &raw{Conn: c, Framer: http2.NewFramer(c, c), ended: make(chan struct{})}
	r.pack = hpack.NewEncoder(&r.block)
	r.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	context.AfterFunc(ctx, func() { c.Close() })
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return nil, err
	}
	if err := r.WriteSettings(settings...); err != nil {
		return nil, err
	}
	go r.read()
	return r, nil
}

func (r *raw) read() {
	defer close(r.ended)
	for {
		f, err := r.ReadFrame()
		if err != nil {
			r.why = err
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = r.locked(r.WriteSettingsAck) // reading tells the error
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = r.locked(func() error { return r.WritePing(true, f.Data) }) // the same
			}
		case *http2.MetaHeadersFrame:
			for _, h := range f.RegularFields() {
				if h.Name == "grpc-message" {
					r.status.Store(f.StreamID, h.Value)
				}
			}
		}
	}
}

func (r *raw) locked(f func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.SetWriteDeadline(time.Now().Add(10 * time.Second)) // an error is told by the write
	return f()
}

// open opens a stream of a method, with further headers, two by two.
func (r *raw) open(method string, more ...string) (id uint32, err error) {
	err = r.locked(func() error {
		r.block.Reset()
		if r.lastID == 0 {
			r.lastID = 1
		} else {
			r.lastID += 2
		}
		id = r.lastID
		headers := append([]string{":method", "POST", ":scheme", "http", ":path", method, ":authority", "relay", "content-type", "application/grpc", "te", "trailers"}, more...)
		for i := 0; i < len(headers); i += 2 {
			if err := r.pack.WriteField(hpack.HeaderField{Name: headers[i], Value: headers[i+1]}); err != nil {
				return err
			}
		}
		return r.headers(id, r.block.Bytes())
	})
	return id, err
}

// headers writes a block, in as many frames as it needs.
func (r *raw) headers(id uint32, block []byte) error {
	const most = 16 << 10
	first := block[:min(len(block), most)]
	block = block[len(first):]
	if err := r.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndHeaders: len(block) == 0}); err != nil {
		return err
	}
	for len(block) > 0 {
		next := block[:min(len(block), most)]
		block = block[len(next):]
		if err := r.WriteContinuation(id, len(block) == 0, next); err != nil {
			return err
		}
	}
	return nil
}

// envelope is a message as gRPC frames it.
func envelope(message []byte, compressed bool) []byte {
	b := make([]byte, 5, 5+len(message))
	if compressed {
		b[0] = 1
	}
	binary.BigEndian.PutUint32(b[1:], uint32(len(message)))
	return append(b, message...)
}

// data writes bytes of a stream without regard for windows, which a relay must bear; small enough, they
// fit in.
func (r *raw) data(id uint32, b []byte) error {
	const most = 16 << 10
	for len(b) > 0 {
		next := b[:min(len(b), most)]
		b = b[len(next):]
		if err := r.locked(func() error { return r.WriteData(id, false, next) }); err != nil {
			return err
		}
	}
	return nil
}

// over reports whether an attack has ended because its time is over, or the relay has hung up.
func over(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || err != nil && (strings.Contains(err.Error(), "reset by peer") || strings.Contains(err.Error(), "broken pipe"))
}
