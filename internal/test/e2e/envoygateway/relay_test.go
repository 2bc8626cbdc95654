package envoygateway

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// relay is the program, with the configuration of the example as it stands. It can be
// killed and started again.
type relay struct {
	*peer.Relay
	listen string
}

// relayAdmin is where the example has the relay's admin endpoint.
const relayAdmin = "127.0.0.1:18001"

// startRelay runs a relay below Envoy Gateway until the test ends. Each set is a
// key=value that is not as in the example.
func startRelay(t testing.TB, g *gateway, sets ...string) *relay {
	t.Helper()
	return startRelayBelow(t, g, "127.0.0.1:"+xdsPort, sets...)
}

// startRelayBelow runs one below something else that has Envoy Gateway's certificates.
func startRelayBelow(t testing.TB, g *gateway, upstream string, sets ...string) *relay {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("thirty-two bytes, and no secret."), 0o600); err != nil {
		t.Fatal(err)
	}
	listen := peer.Local(freePort(t))
	r := &relay{peer.NewRelay(t, listen, relayAdmin, []string{"-c", filepath.Join(examples, "relay.yaml")}, sets...), listen}
	r.Env = []string{
		"XDS_UPSTREAM=" + upstream, "XDS_LISTEN=" + listen,
		"ENVOY_CERTS=" + g.Certificates("envoy"), "GATEWAY_CERTS=" + g.Certificates("envoy-gateway"),
		"STATE_DIR=" + filepath.Join(t.TempDir(), "state"), "STATE_KEY=" + key,
	}
	r.Start()
	return r
}

// group is a group of the relay, as /groups has it.
type group struct {
	Group string `json:"group"`
	Key   string `json:"key"`
}

// Groups are those that the relay has.
func (r *relay) Groups() (groups []group, err error) {
	text, err := r.Page("/groups")
	if err != nil {
		return nil, err
	}
	var found struct {
		Groups []group `json:"groups"`
	}
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		return nil, err
	}
	if len(found.Groups) == 0 {
		return nil, errors.New("the relay has no group")
	}
	return found.Groups, nil
}
