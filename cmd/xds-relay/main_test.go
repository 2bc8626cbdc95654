package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// asProgram makes the test binary behave as the program itself.
const asProgram = "XDS_RELAY_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// programEnds is how long a program may run.
var programEnds = 3 * time.Minute

// program is a command line that has not run yet.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programEnds)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

func TestExitCodesAndMessages(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "relay.yaml")
	if err := os.WriteFile(bad, []byte("upstream:\n  backoff:\n    grce: 5s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "relay.yaml")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(open, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()

	for _, tt := range []struct {
		args []string
		code int
		out  string // on standard output
		err  string // on standard error
	}{
		{[]string{}, 0, "Available Commands", ""},
		{[]string{"--version"}, 0, "protos", ""},
		{[]string{"version"}, 0, "protos", ""},
		{[]string{"version", "-o", "json"}, 0, `"protos"`, ""},
		{[]string{"version", "-o", "xml"}, 2, "", `-o is "xml"; use text or json`},
		{[]string{"validate"}, 0, "the configuration is valid", ""},
		{[]string{"validate", "-c", empty}, 0, "note: " + empty + ": the file sets nothing, so that every key has its default\n  hint: ", ""},
		{[]string{"validate", "--set", "groups.key=[cluster]", "--set", "upstream.node_mode=static", "--set", "upstream.node.cluster=eg"}, 0, "note: --set upstream.node_mode=static: upstream.node_mode: clients are grouped by cluster, but", ""},
		{[]string{"serve", "--set", "groups.key=[cluster]", "--set", "upstream.node_mode=static", "--set", "upstream.node.cluster=eg", "--admin", "", "--listen", taken.Addr().String()}, 1, "", `"level":"WARN","msg":"clients are grouped by cluster, but`},
		{[]string{"validate", "--set", "groups.profile=sidecar"}, 0, "note: --set groups.profile=sidecar: groups.profile: with profile sidecar and cache.mass_removal_guard off", ""},
		{[]string{"print-config", "--set", "timers.settle=50ms", "--set", "upstream.headers={x-a-token: canary}"}, 0, "value: \"[redacted]\"", ""},
		{[]string{"print-config", "--format", "json"}, 0, `"ack_timeout": "10s"`, ""},
		{[]string{"print-config", "--mode", "full"}, 2, "", `--mode is "full"; use redacted or full-unsafe`},
		{[]string{"print-config", "--format", "xml"}, 2, "", `--format is "xml"; use yaml or json`},
		{[]string{"print-config", "-c", bad}, 2, "", ":3:5:"},
		{[]string{"schema"}, 0, `"$schema": "https://json-schema.org/draft/2020-12/schema"`, ""},
		{[]string{"validate", "-c", bad}, 2, "", bad + ":3:5: unknown field \"grce\"\n    3 |     grce: 5s\n      |     ^"},
		{[]string{"serve", "-c", bad}, 2, "", ":3:5:"},
		{[]string{"serve", "-c", bad + ".not"}, 2, "", "no such file"},
		{[]string{"serve", "--set", "upstream.adress=x"}, 2, "", `did you mean "address"`},
		{[]string{"serve", "--upstream", "192.0.2.1:15010"}, 2, "", "--upstream=192.0.2.1:15010: upstream.address"},
		{[]string{"serve", "extra"}, 2, "", `unexpected argument "extra"`},
		{[]string{"serve", "--nonsense"}, 2, "", "unknown flag: --nonsense; see xds-relay serve --help"},
		{[]string{"nonsense"}, 2, "", `unknown command "nonsense"; see xds-relay --help`},
		{[]string{"serve", "relay.yaml"}, 2, "", `unexpected argument "relay.yaml"; did you mean xds-relay serve -c relay.yaml?`},
		{[]string{"validate", "dir/my.yml"}, 2, "", `did you mean xds-relay validate -c dir/my.yml?`},
		{[]string{"relay.yaml"}, 2, "", `unknown command "relay.yaml"; did you mean xds-relay serve -c relay.yaml?`},
		{[]string{"serve", "-c"}, 2, "", "flag needs an argument"},
		{[]string{"completion", "tcsh"}, 2, "", `unknown shell "tcsh"; use bash, zsh, fish or powershell`},
		{[]string{"sreve"}, 2, "", `unknown command "sreve"; did you mean "serve"?`},
		{[]string{"serve", "--admin", "192.0.2.1:18001"}, 2, "", "--admin=192.0.2.1:18001: admin.listen"},
		{[]string{"serve", "--set", "version_key_file=/no/key"}, 2, "", `version_key_file: cannot read "/no/key"`},
		{[]string{"serve", "--set", "cache.snapshot={dir: /no/dir, key_file: '" + open + "'}"}, 2, "", "everybody can read or write it (mode 0644)"},
		{[]string{"validate", "--set", "cache.snapshot={dir: /dev/null, key_file: '" + open + "'}"}, 2, "", "everybody can read or write it (mode 0644)"},
		{[]string{"validate", "--set", "cache.snapshot={dir: /dev/null, key_file: '" + open + "'}"}, 2, "", `"/dev/null" cannot be used: it is not a directory`},
		{[]string{"demo", "--clients", "1"}, 2, "", "--clients is 1"},
		{[]string{"demo", "--listen", "0.0.0.0:18000"}, 2, "", `"0.0.0.0:18000" is no address of the demo; use 127.0.0.1:port`},
		{[]string{"demo", "--listen", taken.Addr().String()}, 1, "", "another process has it: give --control-plane, --listen or --admin another address"},
		{[]string{"serve", "--admin", "", "--listen", taken.Addr().String()}, 1, "", "another process has it: give downstream.listen (--listen) another address"},
		{[]string{"serve", "--set", "groups.profile=sidecar", "--admin", "", "--listen", taken.Addr().String()}, 1, "", "with profile sidecar and cache.mass_removal_guard off"},
		{[]string{"validate", "--set", "downstream.tls.cert=/no/cert", "--set", "downstream.tls.key=/no/key"}, 2, "", "/no/cert"},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			cmd := program(t, tt.args...)
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			_ = cmd.Run() // the exit code tells
			if code := cmd.ProcessState.ExitCode(); code != tt.code {
				t.Errorf("exit %d, want %d\n%s", code, tt.code, errs.String())
			}
			if !strings.Contains(out.String(), tt.out) || tt.code != 0 && out.Len() > 0 {
				t.Errorf("standard output: %q, want it to contain %q", out.String(), tt.out)
			}
			if !strings.Contains(errs.String(), tt.err) {
				t.Errorf("standard error: %q, want it to contain %q", errs.String(), tt.err)
			}
		})
	}
}

// served is a running relay.
type served struct {
	cmd     *exec.Cmd
	address string
	admin   string
	metrics string
	log     *bufio.Scanner
	early   string // of the log, until it served
}

// serveProgram runs serve on ports that the system picks, and learns them from its
// log. Its endpoints need no time to notice when it ends, unless args say otherwise.
func serveProgram(t *testing.T, args ...string) *served {
	t.Helper()
	return serveWith(t, func(*served) {}, args...)
}

// serveWith is serveProgram, of which something is changed before it starts.
func serveWith(t *testing.T, change func(*served), args ...string) *served {
	t.Helper()
	s := &served{cmd: program(t, append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--set", "downstream.drain_delay=0s"}, args...)...)}
	change(s)
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			_ = s.cmd.Process.Kill() // it may have ended
			_ = s.cmd.Wait()
		}
	})
	s.log = bufio.NewScanner(stderr)
	for s.address == "" && s.log.Scan() {
		var line struct{ Msg, Listener string }
		if err := json.Unmarshal(s.log.Bytes(), &line); err != nil {
			t.Fatalf("not JSON: %s", s.log.Text())
		}
		s.early += s.log.Text() + "\n"
		switch line.Msg {
		case "admin endpoint":
			s.admin = "http://" + line.Listener
		case "metrics endpoint":
			s.metrics = "http://" + line.Listener
		case "serving":
			s.address = line.Listener
		}
	}
	if s.address == "" {
		t.Fatal("the relay does not serve")
	}
	return s
}

// stop ends it as an operator would. It returns the log since the last look.
func (s *served) stop(t *testing.T) (log string) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var rest strings.Builder
	for s.log.Scan() {
		rest.WriteString(s.log.Text() + "\n")
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("it did not end well: %v", err)
	}
	return rest.String()
}

func (s *served) get(t *testing.T, path string) (code int, body string) {
	t.Helper()
	return get(t, s.admin+path)
}

func get(t *testing.T, url string) (code int, body string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// TestServe runs the program against an upstream that is not there: it is ready all
// the same, shows its clients, and sends them away with UNAVAILABLE.
func TestServe(t *testing.T) {
	s := serveProgram(t, "--upstream", "127.0.0.1:1", "--node-id", "edge-1", "--set", "downstream.drain=100ms")
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	health, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || health.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", health, err)
	}
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	req := &discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "envoy-1"}, TypeUrl: string(cache.Cluster)}
	if err := stream.Send(req); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 500 {
		if _, body := s.get(t, "/clients"); strings.Contains(body, "envoy-1") {
			break
		}
		<-tick.C
	}
	for path, want := range map[string]string{
		"/readyz": "ready", "/livez": "live", "/clients": `"node": "envoy-1"`,
		"/resources?type=CDS": `"resources"`, "/metrics": `xds_relay_clients{protocol="delta"} 1`,
	} {
		if code, body := s.get(t, path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d, want %q in\n%.2000s", path, code, want, body)
		}
	}
	ended := make(chan error, 1)
	go func() {
		_, err := stream.Recv()
		ended <- err
	}()
	s.stop(t)
	if err := <-ended; status.Code(err) != codes.Unavailable || !strings.Contains(fmt.Sprint(err), "shutting down") {
		t.Errorf("the client was told %v, want UNAVAILABLE and why", err)
	}
}

// TestNothingElseIsBound: without an admin address there is none.
func TestNothingElseIsBound(t *testing.T) {
	s := serveProgram(t, "--admin", "")
	if s.admin != "" || s.metrics != "" {
		t.Errorf("endpoints at %q and %q that nobody asked for", s.admin, s.metrics)
	}
	s.stop(t)
}
