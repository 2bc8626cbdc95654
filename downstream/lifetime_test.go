package downstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/certs/certstest"
)

// office issues certificates to clients of a Server that demands them, in a bubble.
type office struct {
	hosts
	t      *testing.T
	ca     *certstest.Authority
	server *Server
	seen   *endings
	begin  time.Time
	dials  atomic.Int32
}

// inOffice runs a test.
func inOffice(t *testing.T, c ServerConfig, test func(o *office)) {
	synctest.Test(t, func(t *testing.T) {
		o := &office{hosts: hosts{newPipes()}, t: t, ca: certstest.NewAuthority(t, "ours"), seen: &endings{ends: make(map[session.Reason]int)}, begin: time.Now()}
		c.Config.AckTimeout, c.Config.MaxName, c.Config.MaxNames = time.Minute, 100, 100
		c.Groups, c.Observer = oneGroup{fanout.NewHub(fanout.Config{})}, o.seen
		c.Credentials = credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*o.issue(24 * time.Hour)}, ClientCAs: o.ca.Pool(), ClientAuth: tls.VerifyClientCertIfGiven,
		})
		s, stop := serving(t, c, o)
		defer stop()
		o.server = s
		test(o)
	})
}

// issue makes a certificate that is valid from now on; 0: none.
func (o *office) issue(life time.Duration) *tls.Certificate {
	o.t.Helper()
	if life == 0 {
		return new(tls.Certificate)
	}
	pair, err := tls.X509KeyPair(o.ca.Issue(o.t, x509.Certificate{NotBefore: time.Now(), NotAfter: time.Now().Add(life)}))
	if err != nil {
		o.t.Fatal(err)
	}
	return &pair
}

// connect is a client that shows the certificate that it has when it connects.
func (o *office) connect(shows func() *tls.Certificate) *grpc.ClientConn {
	o.t.Helper()
	secure := credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: o.ca.Pool(), ServerName: "127.0.0.1",
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return shows(), nil },
	})
	dial := func(context.Context, string) (net.Conn, error) {
		o.dials.Add(1)
		return o.dial("192.0.2.1"), nil
	}
	conn, err := grpc.NewClient("passthrough:///relay", grpc.WithContextDialer(dial), grpc.WithTransportCredentials(secure), grpc.WithIdleTimeout(0))
	if err != nil {
		o.t.Fatal(err)
	}
	return conn
}

// life is that of a stream, counted from the test's begin.
type life struct {
	from, to time.Duration
	end      *status.Status
}

// lives opens a stream, and another one whenever it ends, and notes them until the connection is closed or so many have ended.
func (o *office) lives(conn *grpc.ClientConn, most int) <-chan life {
	noted := make(chan life, most)
	go func() {
		defer close(noted)
		for range most {
			l := life{from: time.Since(o.begin)}
			stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(context.Background())
			if err == nil {
				_, err = stream.Recv()
			}
			l.to, l.end = time.Since(o.begin), status.Convert(err)
			if l.end.Code() == codes.Canceled {
				return
			}
			noted <- l
		}
	}()
	synctest.Wait()
	return noted
}

// TestStreamsEndWithTheirCertificate: at random in its last five minutes, or its last tenth, and those that begin then when it
// expires. The age of the connection ends them if that is sooner.
func TestStreamsEndWithTheirCertificate(t *testing.T) {
	for _, tt := range []struct {
		name          string
		valid, opened time.Duration // after the certificate was issued
		age           time.Duration
		random        float64
		ends          time.Duration
		reason        session.Reason
	}{
		{"the first moment", time.Hour, 0, 0, 0, 55 * time.Minute, session.CertificateExpired},
		{"the middle", time.Hour, 0, 0, 0.5, 57*time.Minute + 30*time.Second, session.CertificateExpired},
		{"opened before the last part", time.Hour, 55*time.Minute - time.Nanosecond, 0, 0.5, 57*time.Minute + 30*time.Second, session.CertificateExpired},
		{"opened in the last part", time.Hour, 55 * time.Minute, 0, 0.5, time.Hour, session.CertificateExpired},
		{"opened at the last moment", time.Hour, time.Hour - time.Nanosecond, 0, 0.5, time.Hour, session.CertificateExpired},
		{"a short one", 20 * time.Minute, 0, 0, 0.25, 18*time.Minute + 30*time.Second, session.CertificateExpired},
		{"as short as five minutes are a tenth", 50 * time.Minute, 0, 0, 0, 45 * time.Minute, session.CertificateExpired},
		{"its connection grows old before", time.Hour, 0, 30 * time.Minute, 0.5, 30 * time.Minute, session.Aged},
		{"its connection may grow older", time.Hour, 0, 4 * time.Hour, 0.5, 57*time.Minute + 30*time.Second, session.CertificateExpired},
		{"no certificate", 0, 0, 0, 0.5, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inOffice(t, ServerConfig{Config: session.Config{Random: func() float64 { return tt.random }}, Connection: ConnectionBounds{MaxAge: tt.age}}, func(o *office) {
				pair := o.issue(tt.valid)
				conn := o.connect(func() *tls.Certificate { return pair })
				time.Sleep(tt.opened)
				noted := o.lives(conn, 1)
				time.Sleep(2 * time.Hour)
				conn.Close()
				l, ended := <-noted
				switch {
				case tt.reason == "":
					if ended {
						t.Errorf("it has ended after %v: %v", l.to, l.end)
					}
				case l.to != tt.ends || l.end.Code() != codes.Unavailable || o.seen.ended(tt.reason) != 1:
					t.Errorf("it has ended after %v, want %v: %v; counted: %v", l.to, tt.ends, l.end, o.seen.ends)
				case tt.reason == session.CertificateExpired && !strings.Contains(l.end.Message(), "the certificate of the client is valid until "+o.begin.Add(tt.valid).UTC().Format(time.RFC3339)):
					t.Errorf("the client is told %q", l.end.Message())
				}
			})
		})
	}
}

// TestClientsComeBackWithTheirNewCertificate: at once, and on a new connection; the other streams of the old one have their own
// ends, and then it is closed.
func TestClientsComeBackWithTheirNewCertificate(t *testing.T) {
	draws := []float64{0.2, 0.8, 0.5, 0.5}
	var drawn atomic.Int32
	random := func() float64 { return draws[drawn.Add(1)-1] }
	inOffice(t, ServerConfig{Config: session.Config{Random: random}}, func(o *office) {
		var has atomic.Pointer[tls.Certificate]
		has.Store(o.issue(time.Hour))
		conn := o.connect(has.Load)
		streams := []<-chan life{o.lives(conn, 2), o.lives(conn, 2)}
		time.Sleep(50 * time.Minute)
		has.Store(o.issue(time.Hour))
		time.Sleep(3 * time.Hour)
		for i, want := range [][2]time.Duration{{56 * time.Minute, 107*time.Minute + 30*time.Second}, {59 * time.Minute, 107*time.Minute + 30*time.Second}} {
			first, second := <-streams[i], <-streams[i]
			if first.to != want[0] || second.from-first.to >= time.Second || second.to != want[1] {
				t.Errorf("stream %d lived until %v (%v), and then from %v to %v (%v); want until %v, and then until %v", i, first.to, first.end, second.from, second.to, second.end, want[0], want[1])
			}
		}
		synctest.Wait()
		if n, ended := o.server.Summary().Connections, o.seen.ended(session.CertificateExpired); o.dials.Load() != 2 || n != 0 || ended != 4 {
			t.Errorf("%d connections were made, and %d are open; %d streams were ended", o.dials.Load(), n, ended)
		}
		conn.Close()
	})
}

// TestNothingBeginsAfterTheCertificate: who has connected in time, and asks for the first time after the certificate has expired,
// gets nothing, and comes back on another connection.
func TestNothingBeginsAfterTheCertificate(t *testing.T) {
	for name, asks := range map[string]func(context.Context, *grpc.ClientConn) error{
		"stream": func(ctx context.Context, conn *grpc.ClientConn) error {
			stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
			if err != nil {
				return err
			}
			_, err = stream.Recv()
			return err
		},
		"call": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := endpoint.NewEndpointDiscoveryServiceClient(conn).FetchEndpoints(ctx, &discovery.DiscoveryRequest{ResourceNames: []string{"a"}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inOffice(t, ServerConfig{}, func(o *office) {
				var has atomic.Pointer[tls.Certificate]
				has.Store(o.issue(time.Hour))
				conn := o.connect(has.Load)
				defer conn.Close()
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Hour)
				defer cancel()
				checks := func() error {
					_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
					return err
				}
				if err := checks(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				has.Store(o.issue(time.Hour))
				if err := asks(ctx, conn); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the certificate of the client") || o.seen.ended(session.CertificateExpired) != 1 {
					t.Errorf("it is answered %v; counted: %v", err, o.seen.ends)
				}
				if err := checks(); err != nil || o.dials.Load() != 2 {
					t.Errorf("afterwards: %v; %d connections were made", err, o.dials.Load())
				}
			})
		})
	}
}
