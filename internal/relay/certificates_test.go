package relay

import (
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/xds-relay/xds-relay/internal/certs"
	"github.com/xds-relay/xds-relay/internal/certs/certstest"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/test/xdstest"
)

// Readiness goes at the very moment at which the certificate of the listeners expires, and
// comes back when there is another one; that of the client towards the control plane has
// no part in it (ERR-14).
func TestReadinessAndExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		ca := certstest.NewAuthorityFrom(t, x509.Certificate{NotAfter: begin.Add(1000 * time.Hour)})
		dir := t.TempDir()
		path := func(name string) string { return filepath.Join(dir, name) }
		issue := func(name string, life time.Duration) {
			cert, key := ca.Issue(t, x509.Certificate{NotBefore: time.Now(), NotAfter: time.Now().Add(life)})
			certstest.Rename(t, dir, map[string][]byte{name + ".crt": cert, name + ".key": key})
		}
		issue("server", time.Hour)
		issue("client", time.Minute)
		c, err := config.Load("", []string{
			"upstream.tls.cert=" + path("client.crt"), "upstream.tls.key=" + path("client.key"),
			"downstream.tls.cert=" + path("server.crt"), "downstream.tls.key=" + path("server.key"),
		})
		if err != nil {
			t.Fatal(err)
		}
		up, down := xdstest.NewNetwork(), xdstest.NewNetwork()
		r, err := New(c, Options{Dial: up.Dial, Follow: certs.Options{NoNotify: true, Poll: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close(0)
		r.Serve(down.Listener())
		told, end := watchHealth(t, down, ca.Pool())
		defer end()
		for _, step := range []struct {
			after time.Duration
			ready bool
		}{{2 * time.Minute, true}, {time.Hour, true}, {time.Hour + time.Millisecond, false}, {2 * time.Hour, false}} {
			time.Sleep(time.Until(begin.Add(step.after)))
			synctest.Wait()
			ready, why := r.Ready()
			if ready != step.ready || !ready && !strings.Contains(why, "the certificate of downstream.tls.cert has expired: it was valid until "+begin.Add(time.Hour).UTC().Format(time.RFC3339)) {
				t.Errorf("after %v: ready is %v: %s", step.after, ready, why)
			}
			if want := map[bool]string{true: "SERVING", false: "NOT_SERVING"}[step.ready]; *told.Load() != want {
				t.Errorf("after %v health checks are told %v", step.after, *told.Load())
			}
		}
		issue("server", time.Hour)
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if ready, why := r.Ready(); !ready || *told.Load() != "SERVING" {
			t.Errorf("with a new certificate it is not ready: %s; health checks are told %v", why, *told.Load())
		}
	})
}

// watchHealth is what a health check hears on one stream, all the time.
func watchHealth(t *testing.T, network *xdstest.Network, roots *x509.CertPool) (told *atomic.Pointer[string], end func()) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///127.0.0.1", grpc.WithContextDialer(network.Dial),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots})))
	if err != nil {
		t.Fatal(err)
	}
	told = new(atomic.Pointer[string])
	told.Store(new(string))
	stream, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	var hearing sync.WaitGroup
	hearing.Go(func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			s := m.GetStatus().String()
			told.Store(&s)
		}
	})
	return told, func() { conn.Close(); hearing.Wait() }
}

// A reload that names another certificate, or none, is told to health checks as readiness
// is (ERR-14).
func TestReadinessAfterOtherCredentials(t *testing.T) {
	for name, to := range map[string]func(c *config.Config, valid config.ServerTLS){
		"another certificate": func(c *config.Config, valid config.ServerTLS) { c.Downstream.TLS = valid },
		"plaintext": func(c *config.Config, _ config.ServerTLS) {
			c.Downstream.TLS, c.Downstream.Insecure = config.ServerTLS{}, true
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				ca := certstest.NewAuthorityFrom(t, x509.Certificate{NotAfter: begin.Add(1000 * time.Hour)})
				dir := t.TempDir()
				issue := func(name string, life time.Duration) config.ServerTLS {
					cert, key := ca.Issue(t, x509.Certificate{NotBefore: begin, NotAfter: begin.Add(life)})
					certstest.Rename(t, dir, map[string][]byte{name + ".crt": cert, name + ".key": key})
					return config.ServerTLS{Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key")}
				}
				c, err := config.Load("", []string{"upstream.insecure=true"})
				if err != nil {
					t.Fatal(err)
				}
				c.Downstream.TLS = issue("old", time.Hour)
				up, down := xdstest.NewNetwork(), xdstest.NewNetwork()
				r, err := New(c, Options{Dial: up.Dial, Follow: certs.Options{NoNotify: true, Poll: time.Minute}})
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close(0)
				r.Serve(down.Listener())
				told, end := watchHealth(t, down, ca.Pool())
				defer end()
				synctest.Wait()
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				if *told.Load() != "NOT_SERVING" {
					t.Fatalf("with a certificate that has expired health checks are told %v", *told.Load())
				}
				next := *c
				to(&next, issue("new", 100*time.Hour))
				if err := r.Reconfigure(&next); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if ready, why := r.Ready(); !ready || *told.Load() != "SERVING" {
					t.Errorf("after the reload readiness is %t (%s), and health checks are told %v", ready, why, *told.Load())
				}
			})
		})
	}
}
