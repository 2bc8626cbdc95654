package consul

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// server is a Consul of one agent, which is its own only server. It can be killed and
// started again, with the addresses and the state that it had.
type server struct {
	t      testing.TB
	config string // its file

	http, grpc, grpcTLS string // host:port
	token               string // that may do anything; none without ACLs
	p                   *peer.Process
}

// settings are keys of Consul's configuration.
type settings map[string]any

// withACLs lets nobody do anything without a token.
func withACLs(management string) settings {
	return settings{"acl": settings{
		"enabled": true, "default_policy": "deny", "down_policy": "deny",
		"tokens": settings{"initial_management": management, "agent": management},
	}}
}

// startConsul starts one, and returns when it has a leader and a certificate authority.
func startConsul(t testing.TB, more ...settings) *server {
	t.Helper()
	dir := t.TempDir()
	s := &server{t: t, config: filepath.Join(dir, "consul.json")}
	s.http, s.grpc, s.grpcTLS = peer.Address(t), peer.Address(t), peer.Address(t)
	ports := settings{
		"http": portOf(t, s.http), "grpc": portOf(t, s.grpc), "grpc_tls": -1, "dns": -1,
		"server": peer.Port(t), "serf_lan": peer.Port(t), "serf_wan": -1,
	}
	c := settings{
		"server": true, "bootstrap": true, "node_name": "e2e", "datacenter": "dc1",
		"data_dir": filepath.Join(dir, "data"), "bind_addr": "127.0.0.1", "client_addr": "127.0.0.1",
		"ports": ports, "connect": settings{"enabled": true}, "peering": settings{"enabled": false},
		"performance": settings{"raft_multiplier": 1}, "leave_on_terminate": false,
		"disable_update_check": true, "log_level": "info", "ui_config": settings{"enabled": false},
	}
	for _, m := range more {
		for key, value := range m {
			if key == "tls" {
				ports["grpc_tls"] = portOf(t, s.grpcTLS)
			}
			if acl, ok := value.(settings); ok && key == "acl" {
				s.token, _ = acl["tokens"].(settings)["initial_management"].(string)
			}
			c[key] = value
		}
	}
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s.Start()
	return s
}

// Start starts it, for the first time or again.
func (s *server) Start() {
	s.t.Helper()
	cmd := exec.Command(theConsul(s.t), "agent", "-config-file", s.config)
	cmd.Env = append(os.Environ(), "HOME="+filepath.Dir(s.config))
	s.p = peer.Start(s.t, cmd)
	eventually(s.t, func() error {
		if s.p.Gone() {
			s.t.Fatalf("Consul has ended: %v\n%s", s.p.Ended(), s.p.Output)
		}
		var leader string
		if err := s.try(http.MethodGet, "/v1/status/leader", nil, &leader); err != nil || leader == "" {
			return fmt.Errorf("Consul has no leader: %w", err)
		}
		var roots struct{ ActiveRootID string }
		err := s.try(http.MethodGet, "/v1/agent/connect/ca/roots", nil, &roots)
		if err == nil && roots.ActiveRootID == "" {
			err = fmt.Errorf("Consul has no certificate authority")
		}
		return err
	})
}

// Kill ends it as a crash would.
func (s *server) Kill() { s.p.Kill() }

// try asks Consul's HTTP API.
func (s *server) try(method, path string, body, answer any) error {
	var text io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		text = bytes.NewReader(b)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+s.http+path, text)
	if err != nil {
		return err
	}
	r.Header.Set("X-Consul-Token", s.token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, b)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(b, answer)
}

func (s *server) put(path string, body any) {
	s.t.Helper()
	if err := s.try(http.MethodPut, path, body, nil); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) get(path string, answer any) {
	s.t.Helper()
	if err := s.try(http.MethodGet, path, nil, answer); err != nil {
		s.t.Fatal(err)
	}
}

// cli runs a command of Consul's own, as the holder of a token.
func (s *server) cli(token string, args ...string) []byte {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, theConsul(s.t), args...)
	cmd.Env = append(os.Environ(), "CONSUL_HTTP_ADDR="+s.http, "CONSUL_HTTP_TOKEN="+token)
	out, err := run(ctx, cmd)
	if err != nil {
		s.t.Fatalf("consul %q: %v", args, err)
	}
	return out
}

// bootstrap is Envoy's, for the sidecar of a service, with the xDS server and Envoy's
// admin interface at these addresses, as `consul connect envoy` would start it.
func (s *server) bootstrap(service, token, xds, admin string) []byte {
	s.t.Helper()
	return s.cli(token, "connect", "envoy", "-sidecar-for", service, "-bootstrap", "-grpc-addr", "http://"+xds, "-admin-bind", admin)
}
