//go:build linux

package h2

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// raw passes messages through.
type raw struct{}

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}
func (raw) Name() string { return "proto" }

// serve serves one method of a real gRPC server.
func serve(t *testing.T, handler func(grpc.ServerStream) error, options ...grpc.ServerOption) (address string, s *grpc.Server) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = grpc.NewServer(append(options, grpc.ForceServerCodecV2(raw{}), grpc.MaxRecvMsgSize(64<<20), grpc.MaxSendMsgSize(64<<20))...)
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "s", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
		StreamName: "m", ServerStreams: true, ClientStreams: true,
		Handler: func(_ any, g grpc.ServerStream) error { return handler(g) },
	}}}, nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // until it is stopped
	}()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return l.Addr().String(), s
}

// ear is a Receiver that says what it hears.
type ear struct {
	size     int
	message  []byte
	messages chan []byte
	closed   chan error
	reply    func(message []byte) []byte
}

func newEar(reply func([]byte) []byte) *ear {
	return &ear{messages: make(chan []byte, 100), closed: make(chan error, 1), reply: reply}
}

func (e *ear) Begin(size int) { e.size, e.message = size, nil }
func (e *ear) Feed(b []byte, _ time.Time) error {
	e.message = append(e.message, b...)
	return nil
}
func (e *ear) End(reply []byte) ([]byte, error) {
	e.messages <- e.message
	if e.reply != nil {
		reply = append(reply, e.reply(e.message)...)
	}
	return reply, nil
}
func (e *ear) Closed(err error) { e.closed <- err }

// connect dials a server, and hangs up at the end of the test.
func connect(t *testing.T, address string, secure *tls.Config) *Conn {
	t.Helper()
	c, err := Dial(address, secure, &Traffic{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		c.Close()
		<-done
	})
	go func() {
		defer close(done)
		_ = c.Run() // until it is closed
	}()
	return c
}

func echo(g grpc.ServerStream) error {
	for {
		var m []byte
		if err := g.RecvMsg(&m); err != nil {
			return nil
		}
		if err := g.SendMsg(m); err != nil {
			return err
		}
	}
}

// TestWindows: messages of any size pass in both directions, many streams at once, and
// nothing is stuck when a window is full.
func TestWindows(t *testing.T) {
	address, _ := serve(t, echo)
	c := connect(t, address, nil)
	sizes := []int{0, 1, 16<<10 - 5, 16 << 10, 65_535, 200 << 10, 3 << 20}
	var ears []*ear
	for i := range 5 {
		e := newEar(nil)
		var messages [][]byte
		for _, size := range sizes {
			messages = append(messages, bytes.Repeat([]byte{byte('a' + i)}, size))
		}
		if _, err := c.Open("/s/m", e, messages...); err != nil {
			t.Fatal(err)
		}
		ears = append(ears, e)
	}
	for i, e := range ears {
		for _, size := range sizes {
			select {
			case m := <-e.messages:
				if len(m) != size || bytes.Count(m, []byte{byte('a' + i)}) != size {
					t.Fatalf("stream %d: a message of %d bytes came back with %d", i, size, len(m))
				}
			case err := <-e.closed:
				t.Fatal(err)
			}
		}
	}
}

// TestReply: what a Receiver replies is sent, without anybody else's help.
func TestReply(t *testing.T) {
	got := make(chan []byte, 3)
	address, _ := serve(t, func(g grpc.ServerStream) error {
		for _, m := range []string{"one", "two", "three"} {
			if err := g.SendMsg([]byte(m)); err != nil {
				return err
			}
		}
		for range 3 {
			var m []byte
			if err := g.RecvMsg(&m); err != nil {
				return err
			}
			got <- m
		}
		return nil
	})
	c := connect(t, address, nil)
	if _, err := c.Open("/s/m", newEar(func(m []byte) []byte { return append([]byte("re "), m...) })); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"re one", "re two", "re three"} {
		if m := <-got; string(m) != want {
			t.Errorf("the server hears %q, want %q", m, want)
		}
	}
}

func TestEndOfStream(t *testing.T) {
	address, s := serve(t, func(g grpc.ServerStream) error {
		var m []byte
		if err := g.RecvMsg(&m); err != nil {
			return err
		}
		if string(m) == "wait" {
			<-g.Context().Done()
		}
		return status.Error(codes.ResourceExhausted, "enough is enough")
	})
	c := connect(t, address, nil)
	for _, test := range []struct{ method, message, want string }{
		{"/s/m", "end", "grpc-status 8: enough is enough"},
		{"/s/other", "end", "grpc-status 12"},
	} {
		e := newEar(nil)
		if _, err := c.Open(test.method, e, []byte(test.message)); err != nil {
			t.Fatal(err)
		}
		if err := <-e.closed; err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s ends with %v, want %s", test.method, err, test.want)
		}
	}
	e := newEar(nil)
	if _, err := c.Open("/s/m", e, []byte("wait")); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if err := <-e.closed; err == nil {
		t.Error("the server is gone, and the stream knows of nothing")
	}
}

func TestTLS(t *testing.T) {
	web := httptest.NewTLSServer(nil) // it makes a certificate for 127.0.0.1
	defer web.Close()
	address, _ := serve(t, echo, grpc.Creds(credentials.NewServerTLSFromCert(&web.TLS.Certificates[0])))
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	e := newEar(nil)
	if _, err := connect(t, address, &tls.Config{RootCAs: roots}).Open("/s/m", e, make([]byte, 100<<10)); err != nil {
		t.Fatal(err)
	}
	if m := <-e.messages; len(m) != 100<<10 {
		t.Errorf("%d bytes came back", len(m))
	}
	if _, err := Dial(address, &tls.Config{RootCAs: x509.NewCertPool()}, &Traffic{}); err == nil {
		t.Error("a server that nobody vouches for is believed")
	}
}

func TestTrafficIsCounted(t *testing.T) {
	address, _ := serve(t, echo)
	var traffic Traffic
	c, err := Dial(address, nil, &traffic)
	if err != nil {
		t.Fatal(err)
	}
	e := newEar(nil)
	if _, err := c.Open("/s/m", e, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run() // until it is closed
	}()
	<-e.messages
	c.Close()
	<-done
	for name, n := range map[string]int64{"in": traffic.In.Load(), "out": traffic.Out.Load()} {
		if n < 1000 || n > 1600 {
			t.Errorf("%d bytes %s for a message of 1000", n, name)
		}
	}
}

// TestRejects: what is not supported is said, not misread.
func TestRejects(t *testing.T) {
	frame := func(size int, typ, flags byte, stream byte, payload ...byte) []byte {
		return append([]byte{byte(size >> 16), byte(size >> 8), byte(size), typ, flags, 0, 0, 0, stream}, payload...)
	}
	for name, b := range map[string][]byte{
		"padded DATA":                  frame(3, 0, 8, 1, 1, 'a', 0),
		"DATA of an unknown stream":    frame(1, 0, 0, 3, 'a'),
		"a compressed message":         frame(5, 0, 0, 1, 1, 0, 0, 0, 0),
		"a short WINDOW_UPDATE":        frame(1, 8, 0, 0, 1),
		"headers of an unknown stream": frame(0, 1, 5, 9),
		"GOAWAY with an error":         frame(8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2),
	} {
		t.Run(name, func(t *testing.T) {
			c := &Conn{}
			c.streams = []*Stream{{conn: c, id: 1, receiver: newEar(nil)}}
			for i := range b { // byte by byte
				if err := c.take(b[i : i+1]); err != nil {
					return
				}
			}
			t.Error("taken")
		})
	}
}
