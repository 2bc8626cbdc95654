package downstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/xds-relay/xds-relay/internal/certs/certstest"
)

// closings counts the connections that a Server closes, by reason.
type closings struct {
	nobody
	mu     sync.Mutex
	counts map[ClosedFor]int
}

func (c *closings) ClientConnectionClosed(reason ClosedFor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = make(map[ClosedFor]int)
	}
	c.counts[reason]++
}

func (c *closings) of(reason ClosedFor) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[reason]
}

// serving starts a Server on a listener until the test ends, after which stop may be called, too.
func serving(t *testing.T, c ServerConfig, l net.Listener) (s *Server, stop func()) {
	t.Helper()
	c.MaxRequest, c.MaxStreams = 1<<20, 100
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s = NewServer(c)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	stop = sync.OnceFunc(func() {
		s.Close(0)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return s, stop
}

// hops are what a client may come over: each network with and without TLS.
func hops(t *testing.T, test func(t *testing.T, l net.Listener, server, client credentials.TransportCredentials)) {
	ca := certstest.NewAuthority(t, "ours")
	certificate, key := ca.Issue(t, x509.Certificate{})
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	secure := credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}})
	trusting := credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}) //nolint:gosec // the test is not about whom it trusts
	for _, network := range []string{"tcp", "unix"} {
		for name, creds := range map[string][2]credentials.TransportCredentials{
			"plaintext": {insecure.NewCredentials(), insecure.NewCredentials()}, "TLS": {secure, trusting},
		} {
			t.Run(network+"/"+name, func(t *testing.T) {
				address := "127.0.0.1:0"
				if network == "unix" {
					dir, err := os.MkdirTemp("", "") // t.TempDir's names are too long for a socket
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { os.RemoveAll(dir) })
					address = filepath.Join(dir, "s")
				}
				l, err := net.Listen(network, address)
				if err != nil {
					t.Fatal(err)
				}
				test(t, l, creds[0], creds[1])
			})
		}
	}
}

// ask makes a connection of its own and a call on it; quit closes it.
func ask(t *testing.T, l net.Listener, creds credentials.TransportCredentials, o ...grpc.CallOption) (quit func(), err error) {
	t.Helper()
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, l.Addr().Network(), l.Addr().String())
	}
	conn, err := grpc.NewClient("passthrough:///relay", grpc.WithContextDialer(dial), grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	quit = func() { conn.Close() }
	t.Cleanup(quit)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, o...)
	return quit, err
}

// TestConnectionsAreBounded: one too many is closed at once, and counted; one that goes makes room,
// whoever closes it.
func TestConnectionsAreBounded(t *testing.T) {
	hops(t, func(t *testing.T, l net.Listener, server, client credentials.TransportCredentials) {
		var seen closings
		var log strings.Builder
		s, stop := serving(t, ServerConfig{
			Credentials: server, MaxConnections: 2, MoreConnections: "raise it", Observer: &seen, Log: slog.New(slog.NewTextHandler(&log, nil)),
		}, l)
		quit, err := ask(t, l, client)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ask(t, l, client); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			quit, err := ask(t, l, client)
			if err == nil {
				t.Fatal("a third connection was let in")
			}
			quit() // or it would take the room of the next one
		}
		if sum := s.Summary(); sum.Connections != 2 || sum.MaxConnections != 2 {
			t.Errorf("%d of %d connections are said to be open", sum.Connections, sum.MaxConnections)
		}
		if n := seen.of(ClosedTooMany); n < 3 {
			t.Errorf("%d closed connections were counted", n)
		}
		quit()
		if _, err := ask(t, l, client, grpc.WaitForReady(true)); err != nil {
			t.Errorf("a connection went, and there is no room for another one: %v", err)
		}
		next := s.config
		next.MaxConnections = 3
		s.Reconfigure(next)
		if _, err := ask(t, l, client, grpc.WaitForReady(true)); err != nil {
			t.Errorf("the bound was raised, and there is no room: %v", err)
		}
		stop()
		if sum := s.Summary(); sum.Connections != 0 {
			t.Errorf("after the end %d connections are said to be open", sum.Connections)
		}
		if lines := strings.Count(log.String(), "level=WARN"); lines != 1 || !strings.Contains(log.String(), `msg="downstream.listen: `) || !strings.Contains(log.String(), "raise it") {
			t.Errorf("the log is %q", log.String())
		}
	})
}

// TestSilentConnectionsHoldNoBuffer: gRPC takes its read buffers from a pool, and only when there is
// something to read. With TLS it cannot.
func TestSilentConnectionsHoldNoBuffer(t *testing.T) {
	hops(t, func(t *testing.T, l net.Listener, server, client credentials.TransportCredentials) {
		if server.Info().SecurityProtocol == "tls" {
			t.Skip("it cannot")
		}
		seen := &keepsConn{TransportCredentials: server}
		_, stop := serving(t, ServerConfig{Credentials: seen}, l)
		if _, err := ask(t, l, client); err != nil {
			t.Fatal(err)
		}
		stop() // nobody reads any more
		if s, ok := seen.conn.(*conn).reader.(*socket); !ok || s.size != readBuffer {
			t.Errorf("gRPC does not use %T", seen.conn.(*conn).reader)
		}
	})
}

// keepsConn keeps the last connection.
type keepsConn struct {
	credentials.TransportCredentials
	conn net.Conn
}

func (w *keepsConn) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	w.conn = raw
	return w.TransportCredentials.ServerHandshake(raw)
}

func (w *keepsConn) Clone() credentials.TransportCredentials { return w }

// TestHandshakesAreLimited: whoever does not speak HTTP/2 after 10 s is sent away, also who has not
// sent a byte. Who does may be silent then.
func TestHandshakesAreLimited(t *testing.T) {
	ca := certstest.NewAuthority(t, "ours")
	certificate, key := ca.Issue(t, x509.Certificate{})
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	secure := credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}})
	plain := insecure.NewCredentials()
	for _, tt := range []struct {
		name  string
		creds credentials.TransportCredentials
		sends string
		late  bool
	}{
		{"nothing", plain, "", true},
		{"nothing to TLS", secure, "", true},
		{"half of a ClientHello", secure, "\x16\x03\x01\x02\x00\x01", true},
		{"half of the preface", plain, http2.ClientPreface[:10], true},
		{"no settings", plain, http2.ClientPreface, true},
		{"preface and settings", plain, http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newPipes()
				var seen closings
				var log strings.Builder
				_, stop := serving(t, ServerConfig{Credentials: tt.creds, Observer: &seen, Log: slog.New(slog.NewTextHandler(&log, nil))}, l)
				c := l.dial()
				ended := make(chan time.Time, 1)
				go func() {
					_, _ = io.Copy(io.Discard, c) // its end is what counts
					ended <- time.Now()
				}()
				begin := time.Now()
				if _, err := io.WriteString(c, tt.sends); err != nil {
					t.Error(err)
				}
				time.Sleep(2 * handshakeLimit) // before gRPC's pings ask whether it lives
				synctest.Wait()
				select {
				case at := <-ended:
					if took := at.Sub(begin); !tt.late || took != handshakeLimit {
						t.Errorf("it was sent away after %v", took)
					}
				default:
					if tt.late {
						t.Error("it is still there")
					}
				}
				if n := seen.of(ClosedHandshake); (n == 1) != tt.late {
					t.Errorf("%d are counted", n)
				}
				c.Close()
				stop()
				if said := strings.Contains(log.String(), "a client could not connect") && strings.Contains(log.String(), "peer="); said != tt.late {
					t.Errorf("the log is %q", log.String())
				}
			})
		})
	}
}

// pipes are a listener without a network.
type pipes struct {
	come chan net.Conn
	once sync.Once
	done chan struct{}
}

func newPipes() *pipes { return &pipes{come: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.come <- server
	return client
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.come:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return addr{} }

// TestNoDescriptorLeft: a listener that cannot accept for want of descriptors is tried again, and
// the log says once what to raise.
func TestNoDescriptorLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &starved{pipes: newPipes(), times: 20}
		var log strings.Builder
		_, stop := serving(t, ServerConfig{Credentials: insecure.NewCredentials(), Log: slog.New(slog.NewTextHandler(&log, nil))}, l)
		c := l.dial() // it is let in at last
		c.Close()
		stop()
		if text := log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "downstream.listen") || !strings.Contains(text, "LimitNOFILE") {
			t.Errorf("the log is %q", text)
		}
	})
}

// starved is a listener that finds no descriptor a number of times.
type starved struct {
	*pipes
	times int
}

func (s *starved) Accept() (net.Conn, error) {
	if s.times > 0 {
		s.times--
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return s.pipes.Accept()
}
