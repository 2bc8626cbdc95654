package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/goccy/go-yaml"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xds-relay/xds-relay/cache"
)

// blocks are those of docs/operations.md that are fenced as being in a language.
func blocks(t *testing.T, language string) (all []string) {
	t.Helper()
	doc, err := os.ReadFile(mistakesDoc)
	if err != nil {
		t.Fatal(err)
	}
	for _, rest := range strings.Split(string(doc), "\n```"+language+"\n")[1:] {
		block, _, ended := strings.Cut(rest, "\n```\n")
		if !ended {
			t.Fatalf("a block does not end:\n%s", rest)
		}
		all = append(all, block)
	}
	return all
}

// documentedRules are those that docs/security.md explains.
func documentedRules(t *testing.T) string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## Who may read what\n")
	_, after, _ := strings.Cut(section, "```yaml\n")
	rules, _, found := strings.Cut(after, "```\n")
	if !found {
		t.Fatal("docs/security.md has no rules")
	}
	return rules
}

// TestOperationsCommands runs each command of docs/operations.md, as a shell does, against a
// relay with a client that rejects what it is sent. The lines below a command are parts of
// what it prints.
func TestOperationsCommands(t *testing.T) {
	for _, tool := range []string{"sh", "curl", "grep"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("the commands need ", tool)
		}
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "relay.yaml")
	if err := os.WriteFile(config, []byte("upstream:\n  address: "+serveClusters(t, insecure.NewCredentials())+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(documentedRules(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := filepath.Abs(os.Args[0])
	if err == nil {
		err = os.Symlink(self, filepath.Join(dir, "xds-relay"))
	}
	if err != nil {
		t.Fatal(err)
	}
	s := serveProgram(t, "-c", config, "--set", "metrics.listen=127.0.0.1:0", "--set", "downstream.drain=0s")
	rejects(t, s.address)
	eventually(t, "the client has rejected what it was sent", func() bool {
		_, body := s.get(t, "/clients")
		return strings.Contains(body, `"nacked"`)
	})
	real := strings.NewReplacer("127.0.0.1:18001", strings.TrimPrefix(s.admin, "http://"), "127.0.0.1:18002", strings.TrimPrefix(s.metrics, "http://"),
		"$(pidof xds-relay)", strconv.Itoa(s.cmd.Process.Pid))
	ran := 0
	for _, block := range blocks(t, "console") {
		command, said := "", ""
		for line := range strings.Lines(block) {
			line = strings.TrimSpace(line)
			if next, ok := strings.CutPrefix(line, "$ "); ok {
				command = next
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				sh := exec.CommandContext(ctx, "sh", "-c", real.Replace(command))
				sh.Dir = dir
				sh.Env = append(os.Environ(), asProgram+"=1", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1", "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
				out, err := sh.CombinedOutput()
				cancel()
				if err != nil {
					t.Errorf("%s: %v\n%s", command, err, out)
				}
				said = string(out)
				ran++
				continue
			}
			if !strings.Contains(said, line) {
				t.Errorf("%s does not print\n%s\nbut\n%s", command, line, said)
			}
		}
	}
	if ran < 10 {
		t.Errorf("%d commands were run, want those of the document", ran)
	}
	if log := s.stop(t); !strings.Contains(log, `"trigger":"SIGHUP"`) {
		t.Errorf("the SIGHUP did nothing:\n%s", log)
	}
}

// rejects opens a stream that rejects the first answer, and stays until the test ends.
func rejects(t *testing.T, address string) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "envoy-1"}, TypeUrl: string(cache.Cluster)}) // Recv has the reason
	r, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce(), ErrorDetail: &statuspb.Status{Message: "no such transport socket"}}) // the relay is asked whether it came
}

// TestOperationsManifests: the snippets for Kubernetes are YAML, and probe what a relay with
// metrics.listen on port 18002 answers.
func TestOperationsManifests(t *testing.T) {
	s := serveProgram(t, "--upstream", "127.0.0.1:1", "--set", "metrics.listen=127.0.0.1:0")
	all := blocks(t, "yaml")
	if len(all) < 2 {
		t.Errorf("%d snippets, want those of a tier and of a sidecar", len(all))
	}
	probes := 0
	for _, block := range all {
		var v any
		if err := yaml.Unmarshal([]byte(block), &v); err != nil {
			t.Errorf("%v\n%s", err, block)
		}
		for _, probe := range strings.Split(block, "httpGet: {path: ")[1:] {
			path, rest, _ := strings.Cut(probe, ", port: ")
			if !strings.HasPrefix(rest, "18002}") {
				t.Errorf("a probe is not at port 18002: %s", probe)
			}
			if code, body := get(t, s.metrics+path); code != 200 {
				t.Errorf("%s: %d %s", path, code, body)
			}
			probes++
		}
	}
	if probes < 4 {
		t.Errorf("%d probes, want one of each kind", probes)
	}
	s.stop(t)
}
