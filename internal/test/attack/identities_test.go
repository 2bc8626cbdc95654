//go:build linux

package attack

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// hears is a client with an identity of its own that comes when there are so many groups, and has to be sent beat.
func hears(name string, groups float64) func(*world) error {
	return func(w *world) error {
		at, err := w.as(name), errors.New("never asked")
		for begin := time.Now(); time.Since(begin) < 30*time.Second; peer.Wait(100 * time.Millisecond) {
			m, failed := w.relay.Scrape()
			if failed != nil || m["xds_relay_groups"] < groups {
				err = fmt.Errorf("there are %v groups (%v)", m["xds_relay_groups"], failed)
				continue
			}
			var got *discovery.DeltaDiscoveryResponse
			if got, err = w.asks(name, at, subscribe(cache.Endpoint, beat)); err == nil && len(got.GetResources()) == 1 {
				return nil
			}
		}
		return fmt.Errorf("the newcomer %s: %w", name, err)
	}
}

// outlive waits until all certificates but the victim's have expired: the relay's costs nobody its stream, and a client's ends
// its own. Then nobody new can connect until the relay has another one, and never with an old one of its own.
func outlive(w *world) error {
	old := w.as("old")
	if _, err := w.asks("old", old, subscribe(cache.Endpoint, beat)); err != nil {
		return fmt.Errorf("before: %w", err)
	}
	ended, stop, err := w.stays("old", old)
	if err != nil {
		return err
	}
	defer stop()
	peer.Wait(time.Until(w.expiry) + time.Second)
	select {
	case err := <-ended:
		if s := status.Convert(err); s.Code() != codes.Unavailable || !strings.Contains(s.Message(), "the certificate of the client is valid until") {
			return fmt.Errorf("a client's certificate has expired, and its stream has ended: %w", err)
		}
	default:
		return errors.New("a client's certificate has expired, and its stream goes on")
	}
	w.expiry = time.Time{}
	late := w.as("late")
	if _, err := w.asks("late", late, subscribe(cache.Endpoint, beat)); err == nil {
		return errors.New("the relay's certificate has expired, and a client connects")
	}
	cert, key := w.ca.Issue(w.t, x509.Certificate{DNSNames: []string{"relay.test"}})
	w.write("relay.key", key)
	w.write("relay.crt", cert)
	peer.Eventually(w.t, 20*time.Second, func() error {
		_, err := w.asks("late", late, subscribe(cache.Endpoint, beat))
		return err
	})
	if _, err := w.asks("old", old, subscribe(cache.Endpoint, beat)); err == nil {
		return errors.New("a client's certificate has expired, and it connects")
	}
	return nil
}

// stays follows beat on one stream, and tells when that has ended.
func (w *world) stays(node string, at *target) (ended <-chan error, stop func(), err error) {
	c, err := dial(at)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	stop = func() {
		cancel()
		c.Close()
	}
	if _, ended, err = c.ask(ctx, node, subscribe(cache.Endpoint, beat)); err != nil {
		stop()
	}
	return ended, stop, err
}

// TestForwardedCertificate: what a client says of its certificate is not sent up, since the relay itself ends TLS.
func TestForwardedCertificate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &attack{ID: "S10", Name: "x-forwarded-client-cert forwarded, with TLS or beyond loopback", TLS: true})
	w.noteEnd()
	forward := "groups.forward_headers=[x-forwarded-client-cert]"
	refused(t, "groups.forward_headers[0]", forward, "downstream.tls.cert="+w.path("relay.crt"), "downstream.tls.key="+w.path("relay.key"), "downstream.tls.client_ca="+w.path("ca.crt"))
	refused(t, "groups.forward_headers[0]", forward, "downstream.listen=[\"0.0.0.0:1\"]", "downstream.insecure=true")
}

// refused: the relay neither finds these settings right nor serves with them, and names the key.
func refused(t *testing.T, key string, sets ...string) {
	t.Helper()
	for _, command := range []string{"validate", "serve"} {
		args := []string{command}
		for _, set := range sets {
			args = append(args, "--set", set)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		out, err := exec.CommandContext(ctx, peer.Binary(t), args...).CombinedOutput()
		cancel()
		if _, exited := errors.AsType[*exec.ExitError](err); !exited || ctx.Err() == context.DeadlineExceeded || !strings.Contains(string(out), key) {
			t.Errorf("%s with %q: %v\n%s", command, sets, err, out)
		}
	}
}
