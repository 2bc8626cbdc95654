package e2e

import (
	"log/slog"
	"net"
	"testing"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/relay"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// relayed is a relay that runs in this process and listens on loopback.
type relayed struct {
	*relay.Relay
	addr string
	log  *peer.Output
}

// startRelay runs a relay until the test ends. Each set is a key=value of the
// configuration.
func startRelay(t testing.TB, upstream string, sets ...string) *relayed {
	t.Helper()
	return startRelayWith(t, relay.Options{}, upstream, sets...)
}

func startRelayWith(t testing.TB, o relay.Options, upstream string, sets ...string) *relayed {
	t.Helper()
	r := &relayed{log: newLog(t)}
	r.Relay = newRelay(t, r.log, o, upstream, sets...)
	r.serveAt(t, "127.0.0.1:0")
	return r
}

// startRelayAt runs one at an address where another one has been.
func startRelayAt(t testing.TB, address, upstream string, sets ...string) *relayed {
	t.Helper()
	r := &relayed{log: newLog(t)}
	r.Relay = newRelay(t, r.log, relay.Options{}, upstream, sets...)
	r.serveAt(t, address)
	return r
}

// startExample runs a relay with the configuration of an example in deploy, and sets on top.
func startExample(t testing.TB, name, upstream string, sets ...string) *relayed {
	t.Helper()
	r := &relayed{log: newLog(t)}
	r.Relay = newRelayOf(t, r.log, relay.Options{}, "../../../deploy/examples/"+name+"/relay.yaml", upstream, sets...)
	r.serveAt(t, "127.0.0.1:0")
	return r
}

func (r *relayed) serveAt(t testing.TB, address string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().String()
	r.Serve(l)
}

// newLog keeps what a relay logs.
func newLog(t testing.TB) *peer.Output { return peer.NewOutput(t, "the relay") }

// newRelay is a relay that listens nowhere yet.
func newRelay(t testing.TB, log *peer.Output, o relay.Options, upstream string, sets ...string) *relay.Relay {
	t.Helper()
	return newRelayOf(t, log, o, "", upstream, sets...)
}

// newRelayOf is one with a configuration file.
func newRelayOf(t testing.TB, log *peer.Output, o relay.Options, file, upstream string, sets ...string) *relay.Relay {
	t.Helper()
	c, err := config.Load(file, append([]string{"upstream.address=" + upstream, "instance=e2e"}, sets...))
	if err != nil {
		t.Fatal(err)
	}
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	r, err := relay.New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(0) })
	return r
}
