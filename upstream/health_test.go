package upstream

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/upstream/session"
)

// checkTimeout is for checks that will be answered.
const checkTimeout = time.Minute

// TestCheckAsksThePeer: whatever the peer answers but UNAVAILABLE, it is there, whether
// it has a health service or not; the stream itself has heard nothing yet (MISS-3).
func TestCheckAsksThePeer(t *testing.T) {
	for _, test := range []struct {
		name   string
		health func(context.Context) error
		within time.Duration
		want   session.CheckResult
	}{
		{"a health service", func(context.Context) error { return nil }, checkTimeout, session.There},
		{"none", nil, checkTimeout, session.There},
		{"one that refuses", func(context.Context) error { return status.Error(codes.PermissionDenied, "no") }, checkTimeout, session.There},
		{"one that cannot say", func(context.Context) error { return status.Error(codes.Unavailable, "no") }, checkTimeout, session.Unclear},
		{"one that takes too long elsewhere", func(context.Context) error { return status.Error(codes.DeadlineExceeded, "no") }, checkTimeout, session.Unclear},
		{"one that only has headers", func(ctx context.Context) error {
			if err := grpc.SendHeader(ctx, metadata.MD{}); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		}, 200 * time.Millisecond, session.There},
		{"one that hangs", func(ctx context.Context) error { <-ctx.Done(); return nil }, 50 * time.Millisecond, session.Silent},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := serve(t, loopback(t), test.health)
			c := reach(t, Endpoint{Target: p.address})
			s, _ := open(t, c, 1)
			before := time.Now()
			k := ask(t, c, s, test.within)
			if k.Result != test.want || k.Begun.Before(before) {
				t.Errorf("%+v, want verdict %d", k, test.want)
			}
		})
	}
}

// TestCheckThroughEverything: what a stream is on is known through TLS and on Unix
// sockets too.
func TestCheckThroughEverything(t *testing.T) {
	cert, pool := certificate(t)
	unix := filepath.Join(t.TempDir(), "s")
	for name, w := range map[string]struct {
		listen string
		tls    bool
	}{"plain": {}, "TLS": {tls: true}, "Unix": {listen: unix}, "TLS over Unix": {unix + "t", true}} {
		t.Run(name, func(t *testing.T) {
			l, target := loopback(t), ""
			if w.listen != "" {
				l.Close()
				var err error
				if l, err = net.Listen("unix", w.listen); err != nil {
					t.Fatal(err)
				}
				target = "unix://" + w.listen
			} else {
				target = l.Addr().String()
			}
			e := Endpoint{Target: target}
			var o []grpc.ServerOption
			if w.tls {
				o = append(o, grpc.Creds(credentials.NewServerTLSFromCert(&cert)))
				e.Credentials = credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: "localhost"})
			}
			p := serve(t, l, func(context.Context) error { return nil }, o...)
			c := reach(t, e)
			s, _ := open(t, c, 1)
			if k := ask(t, c, s, checkTimeout); k.Result != session.There || p.checked.Load() != 1 {
				t.Errorf("%+v after %d checks", k, p.checked.Load())
			}
			if w := wireOf(s.ClientStream); w == nil || w.read.Load() == 0 {
				t.Error("its bytes are not counted")
			}
		})
	}
}

func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// TestCheckOfAFrozenPeer: who does not answer, and sends nothing else, is given up; the
// next stream has a connection of its own.
func TestCheckOfAFrozenPeer(t *testing.T) {
	p := serve(t, loopback(t), func(context.Context) error { return nil })
	var f freezer
	c := reach(t, Endpoint{Target: "passthrough:///" + p.address, Dial: f.dial})
	s, ended := open(t, c, 1)
	other, otherEnded := open(t, c, 2)
	until(t, "two streams", func() bool { return p.open() == 2 })
	f.freeze()
	// Both ask; there is one question, and one answer.
	results := make(chan session.Check, 2)
	c.check(s, 50*time.Millisecond, func(k session.Check) { results <- k })
	c.check(other, checkTimeout, func(k session.Check) { results <- k })
	first, second := wait(t, results), wait(t, results)
	if first != second || first.Result != session.Silent || !strings.Contains(first.Message, "Health/Check") {
		t.Errorf("%+v and %+v", first, second)
	}
	lost(t, ended)
	lost(t, otherEnded)
	again, _ := open(t, c, 1)
	if k := ask(t, c, again, checkTimeout); k.Result != session.There || f.dialled() != 2 {
		t.Errorf("%+v on connection %d", k, f.dialled())
	}
}

// TestCheckOfAPeerThatHangsButMoves: bytes that come after the question keep the
// connection, though nobody answers.
func TestCheckOfAPeerThatHangsButMoves(t *testing.T) {
	asked := make(chan struct{}, 1)
	p := serve(t, loopback(t), func(ctx context.Context) error { asked <- struct{}{}; <-ctx.Done(); return nil })
	c := reach(t, Endpoint{Target: p.address})
	s, ended := open(t, c, 1)
	until(t, "a stream", func() bool { return p.open() == 1 })
	result := make(chan session.Check, 1)
	c.check(s, 300*time.Millisecond, func(k session.Check) { result <- k })
	wait(t, asked)
	w := wireOf(s.ClientStream)
	read := w.read.Load()
	p.say("1")
	until(t, "bytes", func() bool { return w.read.Load() > read })
	if k := wait(t, result); k.Result != session.Silent {
		t.Errorf("%+v", k)
	}
	p.health = func(context.Context) error { return nil }
	if k := ask(t, c, s, checkTimeout); k.Result != session.There || len(ended) > 0 {
		t.Errorf("%+v", k)
	}
}

// TestChecksAreShared: who asks while a check is under way gets its result.
func TestChecksAreShared(t *testing.T) {
	asked, answer := make(chan struct{}, 9), make(chan struct{})
	p := serve(t, loopback(t), func(context.Context) error { asked <- struct{}{}; <-answer; return nil })
	c := reach(t, Endpoint{Target: p.address})
	s, _ := open(t, c, 1)
	other, _ := open(t, c, 2)
	results := make(chan session.Check, 2)
	c.check(s, checkTimeout, func(k session.Check) { results <- k })
	wait(t, asked)
	before := time.Now()
	c.check(other, checkTimeout, func(k session.Check) { results <- k })
	close(answer)
	first, second := wait(t, results), wait(t, results)
	if first != second || first.Result != session.There || !first.Begun.Before(before) || p.checked.Load() != 1 {
		t.Errorf("%+v and %+v after %d checks", first, second, p.checked.Load())
	}
	if k := ask(t, c, other, checkTimeout); k.Begun.Before(before) || p.checked.Load() != 2 {
		t.Errorf("%+v after %d checks", k, p.checked.Load())
	}
}

// TestCheckOfADrainingConnection: after a GOAWAY a question would go elsewhere, so it is
// not put, and nothing is known of the old connection.
func TestCheckOfADrainingConnection(t *testing.T) {
	var f freezer
	p := serve(t, loopback(t), func(context.Context) error { return nil })
	c := reach(t, Endpoint{Target: "passthrough:///" + p.address, Dial: f.dial})
	s, ended := open(t, c, 1)
	until(t, "a stream", func() bool { return p.open() == 1 })
	go p.GracefulStop() // waits for the stream, until Stop
	until(t, "the question is not put", func() bool { return ask(t, c, s, checkTimeout).Result == session.Unclear })
	if len(ended) > 0 || f.dialled() != 1 {
		t.Errorf("%d connections, %d streams ended", f.dialled(), len(ended))
	}
}

// TestADrainingConnectionIsLeft: a stream that is opened after a GOAWAY has a connection of
// its own, where it can be asked about, while the old one goes on to its end.
func TestADrainingConnectionIsLeft(t *testing.T) {
	old := serve(t, loopback(t), func(context.Context) error { return nil })
	next := serve(t, loopback(t), func(context.Context) error { return nil })
	var moved atomic.Bool
	connections := &counted{}
	c := reach(t, Endpoint{Target: "passthrough:///up", MaxConnections: 1, MaxStreams: 2, Observer: connections, Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		if moved.Load() {
			return dialTCP(ctx, next.address)
		}
		return dialTCP(ctx, old.address)
	}})
	first, ended := open(t, c, 1)
	until(t, "a stream", func() bool { return old.open() == 1 })
	moved.Store(true)
	go old.GracefulStop() // waits for the stream, until Stop
	until(t, "the connection is on its way out", func() bool { return ask(t, c, first, checkTimeout).Result == session.Unclear })
	if n := connections.now.Load(); n != 1 {
		t.Errorf("%d connections, and nobody has asked for another", n)
	}
	second, _ := open(t, c, 2)
	if k := ask(t, c, second, checkTimeout); k.Result != session.There || next.checked.Load() == 0 {
		t.Errorf("%+v", k)
	}
	if k := ask(t, c, first, checkTimeout); k.Result != session.Unclear || len(ended) > 0 || connections.now.Load() != 2 {
		t.Errorf("%+v, %d connections", k, connections.now.Load())
	}
	old.Stop()
	lost(t, ended)
	until(t, "the old one is closed", func() bool { return connections.now.Load() == 1 && len(some(c)) == 1 })
	if counted := connections.verdicts.Load(); counted < 3 {
		t.Errorf("%d checks were counted", counted)
	}
}

// counted counts connections and checks.
type counted struct {
	nobody
	now, verdicts atomic.Int64
}

func (c *counted) UpstreamConnection(_ string, up bool) {
	if up {
		c.now.Add(1)
	} else {
		c.now.Add(-1)
	}
}

func (c *counted) UpstreamCheck(string, session.CheckResult) { c.verdicts.Add(1) }

// TestCheckOfAReplacedConnection: were a question to go out on another connection than
// the stream's, its answer would say nothing of the stream's.
func TestCheckOfAReplacedConnection(t *testing.T) {
	p := serve(t, loopback(t), func(context.Context) error { return nil })
	c := reach(t, Endpoint{Target: p.address})
	s, _ := open(t, c, 1)
	k := &checking{}
	if r := c.ask(s.seat.on, &wire{}, k, checkTimeout); r != replyUnasked {
		t.Errorf("reply %d", r)
	}
	if r := c.ask(s.seat.on, wireOf(s.ClientStream), k, checkTimeout); r != replyOther {
		t.Errorf("reply %d", r)
	}
}

// TestChecksAreSwitchedOff: where checks say UNAVAILABLE and never anything else, nobody
// asks any more, and one line says so.
func TestChecksAreSwitchedOff(t *testing.T) {
	var log lines
	p := serve(t, loopback(t), func(context.Context) error { return status.Error(codes.Unavailable, "no healthy upstream") })
	c := reach(t, Endpoint{Target: p.address, Log: slog.New(slog.NewTextHandler(&log, nil))})
	s, ended := open(t, c, 1)
	for range refusals {
		if k := ask(t, c, s, checkTimeout); k.Result != session.Unclear {
			t.Errorf("%+v", k)
		}
	}
	if log.count("upstream.health_check") != 1 {
		t.Errorf("the log does not say that checks are off: %v", log.all)
	}
	if k := ask(t, c, s, checkTimeout); k.Result != session.Blind || p.checked.Load() != refusals {
		t.Errorf("%+v after %d checks", k, p.checked.Load())
	}
	if len(ended) > 0 {
		t.Error("the stream has ended")
	}
}

// TestChecksThroughAProxy: what a proxy says with its own words, and not with gRPC's, is
// an answer too: UNAVAILABLE, if it cannot reach the control plane.
func TestChecksThroughAProxy(t *testing.T) {
	for code, want := range map[int]reply{http.StatusServiceUnavailable: replyUnavailable, http.StatusNotFound: replyOther} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			l := loopback(t)
			var protocols http.Protocols
			protocols.SetUnencryptedHTTP2(true)
			server := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/Check") {
					http.Error(w, "<html>", code)
					return
				}
				w.Header().Set("Content-Type", "application/grpc")
				w.WriteHeader(http.StatusOK)
				http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})}
			var done sync.WaitGroup
			done.Go(func() {
				if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
					t.Error(err)
				}
			})
			t.Cleanup(func() { server.Close(); done.Wait() })
			c := reach(t, Endpoint{Target: l.Addr().String()})
			s, _ := open(t, c, 1)
			if r := c.ask(s.seat.on, wireOf(s.ClientStream), &checking{}, checkTimeout); r != want {
				t.Errorf("reply %d, want %d", r, want)
			}
		})
	}
}

// TestUnavailableWhereItWasNot: a peer that used to answer, and says UNAVAILABLE now, is
// not there, unless responses come all the same.
func TestUnavailableWhereItWasNot(t *testing.T) {
	var gone atomic.Bool
	asked, answer := make(chan struct{}, 9), make(chan struct{}, 9)
	p := serve(t, loopback(t), func(context.Context) error {
		asked <- struct{}{}
		<-answer
		if gone.Load() {
			return status.Error(codes.Unavailable, "no healthy upstream")
		}
		return nil
	})
	c := reach(t, Endpoint{Target: p.address})
	s, ended := open(t, c, 1)
	until(t, "a stream", func() bool { return p.open() == 1 })
	check := func(meanwhile func()) session.Check {
		result := make(chan session.Check, 1)
		c.check(s, checkTimeout, func(k session.Check) { result <- k })
		wait(t, asked)
		meanwhile()
		answer <- struct{}{}
		return wait(t, result)
	}
	nothing := func() {}
	if k := check(nothing); k.Result != session.There {
		t.Errorf("%+v", k)
	}
	gone.Store(true)
	if k := check(nothing); k.Result != session.Silent || k.Message != "no healthy upstream" {
		t.Errorf("%+v", k)
	}
	w := wireOf(s.ClientStream)
	if k := check(func() { p.say("1"); until(t, "a message", func() bool { return w.messages.Load() == 1 }) }); k.Result != session.Unclear {
		t.Errorf("%+v", k)
	}
	for range refusals {
		check(nothing)
	}
	if len(ended) > 0 {
		t.Error("checks are off, or the connection was given up")
	}
}

// TestCheckOfAConnectionThatIsLost: if the connection breaks while the question is out,
// that says nothing of who was there.
func TestCheckOfAConnectionThatIsLost(t *testing.T) {
	asked, first := make(chan struct{}, 2), true
	p := serve(t, loopback(t), func(ctx context.Context) error {
		asked <- struct{}{}
		if !first {
			<-ctx.Done()
		}
		first = false
		return nil
	})
	c := reach(t, Endpoint{Target: p.address})
	s, ended := open(t, c, 1)
	if k := ask(t, c, s, checkTimeout); k.Result != session.There {
		t.Errorf("%+v", k) // so that UNAVAILABLE would say something
	}
	wait(t, asked)
	result := make(chan session.Check, 1)
	c.check(s, checkTimeout, func(k session.Check) { result <- k })
	wait(t, asked)
	wireOf(s.ClientStream).Close()
	if k := wait(t, result); k.Result != session.Unclear {
		t.Errorf("%+v", k)
	}
	lost(t, ended)
	if k := ask(t, c, s, checkTimeout); k.Result != session.Unclear {
		t.Errorf("%+v", k)
	}
}

// TestCloseEndsChecks: Close waits for what is under way, and ends it.
func TestCloseEndsChecks(t *testing.T) {
	asked := make(chan struct{}, 1)
	p := serve(t, loopback(t), func(ctx context.Context) error { asked <- struct{}{}; <-ctx.Done(); return nil })
	c := reach(t, Endpoint{Target: p.address})
	s, _ := open(t, c, 1)
	result, slow := make(chan session.Check, 1), make(chan struct{})
	c.check(s, checkTimeout, func(k session.Check) { <-slow; result <- k })
	wait(t, asked)
	time.AfterFunc(50*time.Millisecond, func() { close(slow) })
	c.Close()
	select {
	case k := <-result:
		if k.Result != session.Unclear {
			t.Errorf("%+v", k)
		}
	default:
		t.Error("Close does not wait for whoever is told")
	}
	c.check(s, checkTimeout, func(session.Check) { t.Error("told after Close") })
}

// lines is a log.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(b))
	return len(b), nil
}

func (l *lines) count(what string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, what) {
			n++
		}
	}
	return n
}
