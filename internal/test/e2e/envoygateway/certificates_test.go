package envoygateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// served is the serial number of the certificate at an address; each time the
// connection is a new one.
func served(address string) (serial string, err error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{
			ServerName: "served",
			// It signs itself; which one it is, is what the caller looks at.
			InsecureSkipVerify: true,
			VerifyConnection: func(s tls.ConnectionState) error {
				serial = s.PeerCertificates[0].SerialNumber.String()
				return nil
			},
		},
	}
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	resp, err := client.Get("https://" + address + "/")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("answered %s", resp.Status)
	}
	return serial, nil
}

// shows waits until a certificate is shown at an address.
func shows(t testing.TB, address string, p pair) time.Duration {
	t.Helper()
	return peer.Eventually(t, patience, func() error {
		if serial, err := served(address); err != nil || serial != p.serial {
			return fmt.Errorf("it shows the certificate %s, not %s: %w", serial, p.serial, err)
		}
		return nil
	})
}

// handshakes keeps connecting until the function that it returns is called, which says
// what went wrong.
func handshakes(t testing.TB, address string) (stop func() error) {
	done := make(chan struct{})
	var work sync.WaitGroup
	var wrong error
	n := 0
	work.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if _, err := served(address); err != nil {
				wrong = errors.Join(wrong, err)
			}
			n++
		}
	})
	stop = sync.OnceValue(func() error {
		close(done)
		work.Wait()
		t.Logf("%d handshakes", n)
		return wrong
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

// The certificate of an HTTPS listener, which comes as a Secret of its own, is replaced
// while clients connect. It also comes to an Envoy that starts while Envoy Gateway and
// the relay are started again.
func TestGateway_ListenerCertificate(t *testing.T) {
	w := newWorld(t, "eg")
	w.secure, w.pair = freePort(t), newPair(t)
	g := startGateway(t, w)
	r := startRelay(t, g)
	e := startEnvoy(t, g, "eg", r.listen)
	e.WaitReady(patience)
	address := peer.Local(w.secure)
	shows(t, address, w.pair)
	stop := handshakes(t, address)
	for range 5 {
		w.pair = newPair(t)
		g.Apply(w)
		shows(t, address, w.pair)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}

	e.Kill()
	g.Kill()
	r.Stop()
	r.Start()
	e = realenvoy.Start(t, g.example(r.listen), realenvoy.Options{Name: "eg again"})
	t.Logf("without Envoy Gateway, from the relay's snapshot, it was ready after %v", e.WaitReady(patience))
	shows(t, address, w.pair)
}

// Envoy Gateway's own certificates are replaced, authority and all, and so are the
// relay's, which are the same files. Both read them again: what is open goes on, and when
// Envoy Gateway is started again the relay is let in without anybody touching it. Envoys
// serve throughout.
func TestGateway_OwnCertificates(t *testing.T) {
	w := newWorld(t, "eg")
	w.backends["late"] = realenvoy.Backend(t, "late")
	g := startGateway(t, w)
	r := startRelay(t, g, "log.level=info")
	startEnvoy(t, g, "eg", r.listen).WaitReady(patience)
	address := w.Address("eg")
	arrives(t, address, "/", "eg")
	load := realenvoy.Drive(t, address, rate)

	g.NewCertificates()
	peer.Eventually(t, patience, func() error {
		for _, section := range []string{"upstream.tls", "downstream.tls"} {
			if len(r.Output.Lines("certificates reloaded", `"section":"`+section+`"`, `"changed":"certificate`)) == 0 {
				return fmt.Errorf("the relay does not use the new files of %s", section)
			}
		}
		return nil
	})
	w.routes = append(w.routes, route{name: "more", gateway: "eg", prefix: "/stream", to: "late"})
	g.Apply(w)
	arrives(t, address, "/stream", "late")

	g.Kill()
	g.Start()
	w.routes = append(w.routes, route{name: "most", gateway: "eg", prefix: "/again", to: "late"})
	g.Apply(w)
	arrives(t, address, "/again", "late")
	unharmed(t, load)
	if refused := r.Output.Lines("WARN", "certificate"); len(refused) > 0 {
		t.Errorf("the relay was refused: %s", refused)
	}
}
