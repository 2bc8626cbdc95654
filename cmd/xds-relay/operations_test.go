package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/types/known/durationpb"
)

// blocks are those of docs/operations.md that are fenced as being in a language.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	return blocksOf(t, mistakesDoc, language)
}

// blocksOf are those of a document. In lists they are indented.
func blocksOf(t *testing.T, document, language string) (all []string) {
	t.Helper()
	doc, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^( *)```"+language+"\n(.*?)\n *```$").FindAllStringSubmatch(string(doc), -1) {
		all = append(all, strings.ReplaceAll("\n"+m[2], "\n"+m[1], "\n")[1:])
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

// The parts of what a command prints that differ from run to run.
var (
	durations = regexp.MustCompile(`\b(\d+[smhd])+\b`)
	spaces    = regexp.MustCompile(` +`)
	versions  = regexp.MustCompile(`version [\w.-]+,`)
)

// alike is a text without what differs from run to run: times, the relay's version, and the width of columns.
func alike(s string) string {
	s = versions.ReplaceAllString(durations.ReplaceAllString(s, "0s"), "version V,")
	return spaces.ReplaceAllString(s, " ")
}

// TestOperationsCommands runs each command of docs/operations.md and of the documents about situations, as a shell does, against a
// relay with a client that has accepted everything, one that rejects a change, and one that does not
// answer. The lines below a command are parts of what it prints.
func TestOperationsCommands(t *testing.T) {
	for _, tool := range []string{"sh", "curl", "grep"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("the commands need ", tool)
		}
	}
	dir := t.TempDir()
	s := newShop(t)
	s.sells(t, &cluster.Cluster{Name: "checkout", ConnectTimeout: durationpb.New(5 * time.Second)})
	config := filepath.Join(dir, "relay.yaml")
	if err := os.WriteFile(config, []byte("upstream:\n  address: "+s.plane+"\n"), 0o600); err != nil {
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
	s.serve(t, "-c", config)
	var clients []*shopper
	for _, node := range []string{"envoy-2", "envoy-1", "envoy-3"} {
		c := s.opens(t, node)
		c.hears("")
		clients = append(clients, c)
	}
	s.until(t, "ps", "3 clients: 3 in step\n")
	s.sells(t, &cluster.Cluster{Name: "checkout", ConnectTimeout: durationpb.New(time.Second), TransportSocket: &core.TransportSocket{Name: "envoy.transport_sockets.starttls"}})
	clients[0].hears("")
	clients[1].hears("no such transport socket")
	s.until(t, "ps", "1 in step, 2 not")
	admin := strings.TrimPrefix(s.admin, "http://")
	real := strings.NewReplacer("127.0.0.1:18001", admin, "127.0.0.1:18002", strings.TrimPrefix(s.metrics, "http://"), "$(pidof xds-relay)", strconv.Itoa(s.cmd.Process.Pid))
	ran := 0
	var shown []string
	for _, name := range []string{"sidecar", "tier", "edge", "versions", "operations"} { // which drains, last
		shown = append(shown, blocksOf(t, "../../docs/"+name+".md", "console")...)
	}
	for _, block := range shown {
		command, said := "", ""
		for line := range strings.Lines(block) {
			line = strings.TrimSpace(line)
			if next, ok := strings.CutPrefix(line, "$ "); ok {
				command = next
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				sh := exec.CommandContext(ctx, "sh", "-c", real.Replace(command))
				sh.Dir = dir
				sh.Env = append(os.Environ(), asProgram+"=1", addressEnv+"="+admin, "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1", "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
				out, err := sh.CombinedOutput()
				cancel()
				if err != nil {
					t.Errorf("%s: %v\n%s", command, err, out)
				}
				said = strings.ReplaceAll(string(out), s.plane, "127.0.0.1:15010")
				ran++
				continue
			}
			if !strings.Contains(alike(said), alike(line)) {
				t.Errorf("%s does not print\n%s\nbut\n%s", command, line, said)
			}
		}
	}
	if ran < 26 {
		t.Errorf("%d commands were run, want those of the documents", ran)
	}
	if log := s.stop(t); !strings.Contains(log, `"trigger":"SIGHUP"`) {
		t.Errorf("the SIGHUP did nothing:\n%s", log)
	}
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
