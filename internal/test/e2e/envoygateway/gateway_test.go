package envoygateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

type object = map[string]any

// Ports of Envoy Gateway that cannot be chosen.
const (
	xdsPort   = "18000"
	readyPort = "8081"
)

var fixedPorts = []string{xdsPort, "18002", "19000", "19001", "19003", readyPort}

// gateway is an Envoy Gateway in a process of its own, standalone. It can be killed
// and started again.
type gateway struct {
	*peer.Process
	t    testing.TB
	home string
}

// startGateway serves a world until the test ends. Each change is made to its
// configuration.
func startGateway(t testing.TB, w *world, changes ...func(object)) *gateway {
	t.Helper()
	for _, port := range fixedPorts {
		l, err := net.Listen("tcp", ":"+port)
		if err != nil {
			t.Fatalf("Envoy Gateway needs port %s: %v", port, err)
		}
		l.Close()
	}
	g := &gateway{t: t, home: t.TempDir()}
	g.standIn()
	config := g.configuration()
	for _, change := range changes {
		change(config)
	}
	g.write("envoy-gateway.yaml", []any{config})
	g.NewCertificates()
	g.Apply(w)
	g.Start()
	return g
}

func (g *gateway) path(parts ...string) string {
	return filepath.Join(append([]string{g.home}, parts...)...)
}

// configuration has Envoy Gateway read its resources from a directory and put all that
// it writes below its home.
func (g *gateway) configuration() object {
	return object{
		"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "EnvoyGateway",
		"gateway": object{"controllerName": controller},
		"provider": object{"type": "Custom", "custom": object{
			"resource": object{"type": "File", "file": object{"paths": []any{g.path("resources")}}},
			"infrastructure": object{"type": "Host", "host": object{
				"configHome": g.path("config"), "dataHome": g.path("data"),
				"stateHome": g.path("state"), "runtimeDir": g.path("run"),
			}},
		}},
		"logging":       object{"level": object{"default": "info"}},
		"extensionApis": object{"enableBackend": true},
	}
}

// standIn puts a script where Envoy Gateway looks for Envoy before it downloads it. It
// keeps its arguments, of which the bootstrap is one, and does no more. It ends with
// Envoy Gateway, as an Envoy in its place would.
func (g *gateway) standIn() {
	script := fmt.Sprintf("#!/bin/sh\nprintf '%%s\\0' \"$@\" >'%s'.$$ && mv '%s'.$$ '%s'.$$ && exec sleep 2147483647\n",
		g.path("part"), g.path("part"), g.path("started", "envoy"))
	binary := g.path("data", "envoy-versions", realenvoy.Version, "bin", "envoy")
	for _, dir := range []string{filepath.Dir(binary), g.path("started"), g.path("resources")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			g.t.Fatal(err)
		}
	}
	if err := os.WriteFile(binary, []byte(script), 0o755); err != nil {
		g.t.Fatal(err)
	}
}

// NewCertificates makes a new authority and what Envoy Gateway and its Envoys show each
// other. Each file appears whole, in place of the old one: Envoy watches for that.
func (g *gateway) NewCertificates() {
	g.t.Helper()
	fresh := g.t.TempDir()
	if text, err := g.command("certgen", "--local", "--config-home", fresh).CombinedOutput(); err != nil {
		g.t.Fatalf("certgen: %v\n%s", err, text)
	}
	for _, of := range []string{"envoy-gateway", "envoy"} {
		if err := os.MkdirAll(g.Certificates(of), 0o750); err != nil {
			g.t.Fatal(err)
		}
		for _, file := range []string{"ca.crt", "tls.crt", "tls.key"} {
			if err := os.Rename(filepath.Join(fresh, "certs", of, file), filepath.Join(g.Certificates(of), file)); err != nil {
				g.t.Fatal(err)
			}
		}
	}
}

// Certificates is the directory with what Envoy Gateway ("envoy-gateway") or an Envoy
// ("envoy") shows.
func (g *gateway) Certificates(of string) string { return g.path("config", "certs", of) }

func (g *gateway) command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Getenv(gatewayEnv), args...)
	cmd.Dir = g.home
	cmd.Env = append(os.Environ(), "HOME="+g.home)
	return cmd
}

// Start starts it, and returns when it has read its resources and accepts streams. The
// caller has killed the one before.
func (g *gateway) Start() {
	g.t.Helper()
	g.Process = peer.Start(g.t, g.command("server", "--config-path", g.path("envoy-gateway.yaml")))
	peer.Eventually(g.t, patience, func() error {
		if g.Gone() {
			g.t.Fatalf("Envoy Gateway has ended: %v", g.Ended())
		}
		if _, err := realenvoy.Attach("127.0.0.1:" + readyPort).Get("/readyz"); err != nil {
			return err
		}
		c, err := net.Dial("tcp", "127.0.0.1:"+xdsPort)
		if err == nil {
			c.Close()
		}
		return err
	})
}

// Apply gives it other resources. It reads a file again whenever it changes, half
// written ones too, so it is given a whole one.
func (g *gateway) Apply(w *world) {
	g.t.Helper()
	g.write("resources.part", w.resources())
	if err := os.Rename(g.path("resources.part"), g.path("resources", "all.yaml")); err != nil {
		g.t.Fatal(err)
	}
}

// write writes YAML documents; JSON is YAML.
func (g *gateway) write(name string, documents []any) {
	g.t.Helper()
	var text bytes.Buffer
	for _, d := range documents {
		text.WriteString("---\n")
		if err := json.NewEncoder(&text).Encode(d); err != nil {
			g.t.Fatal(err)
		}
	}
	if err := os.WriteFile(g.path(name), text.Bytes(), 0o600); err != nil {
		g.t.Fatal(err)
	}
}

// Bootstrap is what Envoy Gateway has started the Envoy of a Gateway with, but that its
// xDS server is another, if one is given.
func (g *gateway) Bootstrap(name, server string) (b realenvoy.Bootstrap) {
	g.t.Helper()
	peer.Eventually(g.t, patience, func() error {
		started, err := filepath.Glob(g.path("started", "*"))
		if err != nil {
			return err
		}
		for _, file := range started {
			args, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if node, config := introduced(strings.Split(string(args), "\x00")); node["cluster"] == namespace+"/"+name {
				b, err = bootstrap(g.t, []byte(config), server)
				if err == nil {
					merge(b, object{"node": node})
				}
				return err
			}
		}
		return fmt.Errorf("Envoy Gateway has started no Envoy for %s", name)
	})
	return b
}

// introduced is what Envoy's arguments say of its node, and its bootstrap.
func introduced(args []string) (node object, config string) {
	node = object{}
	for i := range len(args) - 1 {
		switch args[i] {
		case "--service-cluster":
			node["cluster"] = args[i+1]
		case "--service-node":
			node["id"] = args[i+1]
		case "--config-yaml":
			config = args[i+1]
		}
	}
	return node, config
}

// example is the bootstrap of deploy/examples, with another address of the relay and
// other directories of certificates.
func (g *gateway) example(server string) realenvoy.Bootstrap {
	g.t.Helper()
	text, err := os.ReadFile(filepath.Join(examples, "envoy.yaml"))
	if err != nil {
		g.t.Fatal(err)
	}
	const certificates = "/certs/envoy/"
	if n := bytes.Count(text, []byte(certificates)); n != 2 {
		g.t.Fatalf("the example names %d files in %s, not 2", n, certificates)
	}
	text = bytes.ReplaceAll(text, []byte(certificates), []byte(g.Certificates("envoy")+"/"))
	b, err := bootstrap(g.t, text, server)
	if err != nil {
		g.t.Fatal(err)
	}
	return b
}

// examples is what this test must start as it stands.
const examples = root + "/deploy/examples/envoy-gateway"

// bootstrap reads one, and has xds_cluster be another server.
func bootstrap(t testing.TB, text []byte, server string) (b realenvoy.Bootstrap, err error) {
	if err := yaml.Unmarshal(text, &b); err != nil || server == "" {
		return b, err
	}
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		return nil, err
	}
	var found struct {
		Resources struct {
			Clusters []object `json:"clusters"`
		} `json:"static_resources"`
	}
	whole, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(whole, &found); err != nil {
		return nil, err
	}
	n := 0
	for _, c := range found.Resources.Clusters {
		if c["name"] == "xds_cluster" {
			c["load_assignment"] = object{"cluster_name": "xds_cluster", "endpoints": []any{object{"lb_endpoints": []any{object{
				"endpoint": object{"address": object{"socket_address": object{"address": host, "port_value": json.Number(port)}}},
			}}}}}
			n++
		}
	}
	if n != 1 {
		t.Fatalf("a bootstrap has %d clusters named xds_cluster, not one", n)
	}
	merge(b, object{"static_resources": object{"clusters": found.Resources.Clusters}})
	return b, nil
}

// merge puts values into objects, however deep; what is no object replaces.
func merge(to, from object) {
	for key, value := range from {
		inner, ok := value.(object)
		outer, has := to[key].(object)
		if ok && has {
			merge(outer, inner)
		} else {
			to[key] = value
		}
	}
}
