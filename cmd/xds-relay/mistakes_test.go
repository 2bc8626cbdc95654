package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/certs/certstest"
	"github.com/xds-relay/xds-relay/internal/test/e2e/loopback"
)

// mistakesDoc is where operators find the line that each mistake gets.
const mistakesDoc = "../../docs/operations.md"

// documented reports whether the table of mistakes has a line. ADDRESS and FILE stand there
// for what differs.
func documented(t *testing.T, line string) {
	t.Helper()
	doc, err := os.ReadFile(mistakesDoc)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), "| `"+strings.ReplaceAll(line, "|", `\|`)+"` |") {
		t.Errorf("the table in docs/operations.md does not have the line\n%s", line)
	}
}

// TestMistakesAtTheStart: what is wrong with a configuration or with its surroundings is said
// before anything is served, in the words that docs/operations.md has.
func TestMistakesAtTheStart(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	taken, err := net.Listen("tcp", loopback.Reserve(t))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	key := write("key", strings.Repeat("k", 32), 0o644)
	if err := os.Chmod(key, 0o644); err != nil { // whatever the umask
		t.Fatal(err)
	}
	authority := certstest.NewAuthority(t, "ours")
	cert, _ := authority.Issue(t, x509.Certificate{})
	_, anothers := authority.Issue(t, x509.Certificate{})
	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"an unknown key":        {[]string{"-c", write("a.yaml", "upstream:\n  backoff:\n    grce: 5s\n", 0o600)}, `FILE:3:5: unknown field "grce"`},
		"a duplicate key":       {[]string{"-c", write("b.yaml", "upstream:\n  address: 127.0.0.1:1\n  address: 127.0.0.1:2\n", 0o600)}, `FILE:3:3: duplicate field "address"`},
		"a tab":                 {[]string{"-c", write("t.yaml", "upstream:\n\taddress: 127.0.0.1:1\n", 0o600)}, `FILE:2:1: a tab, where YAML takes spaces only`},
		"a wrong value":         {[]string{"-c", write("c.yaml", "timers:\n  dne_timeout: soon\n", 0o600)}, `FILE:2:16: timers.dne_timeout: wants a duration such as 30s, found "soon"`},
		"a missing variable":    {[]string{"-c", write("d.yaml", "upstream:\n  address: \"${env:XDS_UPSTREAM}\"\n", 0o600)}, `FILE:2:12: upstream.address: environment variable XDS_UPSTREAM is not set`},
		"a missing file":        {[]string{"-c", filepath.Join(dir, "none.yaml")}, `FILE: cannot read the configuration: no such file or directory`},
		"a missing cert":        {[]string{"--set", "downstream.tls.cert=/no/cert", "--set", "downstream.tls.key=/no/key"}, `downstream.tls.cert: cannot read "/no/cert": no such file or directory`},
		"plaintext elsewhere":   {[]string{"--upstream", "10.0.0.1:15010"}, `upstream.address: "10.0.0.1:15010" is not on this host and would be spoken to in plaintext`},
		"wrong rules":           {[]string{"--set", "authz.rules_file=" + write("wrong.yaml", "rules:\n  - identity: anonymous\n    read: [{types: [SDS], names: ['**']}]\n", 0o600)}, `FILE:3:35: rules[0].read[0].names[0]: "**" is not allowed for Secrets`},
		"missing rules":         {[]string{"--set", "authz.rules_file=" + filepath.Join(dir, "norules.yaml")}, `authz.rules_file: cannot read "FILE": no such file or directory`},
		"unbound rules":         {[]string{"--set", "groups.key=[id]", "--set", "authz.rules_file=" + write("free.yaml", "rules:\n  - identity: anonymous\n    read: [{types: [CDS], names: ['**']}]\n", 0o600)}, `FILE:2:5: rules[0].node: does not say what id may be, which clients are grouped by: a client could choose its group`},
		"a public admin":        {[]string{"--admin", "0.0.0.0:18001"}, `admin.listen: "0.0.0.0:18001" can be reached from other hosts, and the endpoint has no authentication`},
		"another's key":         {[]string{"--set", "downstream.tls.cert=" + write("tls.crt", string(cert), 0o600), "--set", "downstream.tls.key=" + write("tls.key", string(anothers), 0o600)}, `downstream.tls.key: "FILE" is not the key of downstream.tls.cert: tls: private key does not match public key`},
		"a readable key":        {[]string{"--set", "cache.snapshot.dir=" + dir, "--set", "cache.snapshot.key_file=" + key}, `cache.snapshot.key_file: "FILE": everybody can read or write it (mode 0644); chmod o-rwx`},
		"a port in use":         {[]string{"--admin", "", "--listen", taken.Addr().String()}, `downstream.listen: listen tcp ADDRESS: bind: address already in use; another process has it: give downstream.listen (--listen) another address`},
		"an admin port in use":  {[]string{"--listen", "127.0.0.1:0", "--admin", taken.Addr().String()}, `admin.listen: listen tcp ADDRESS: bind: address already in use; another process has it: give admin.listen (--admin) another address`},
		"a metrics port in use": {[]string{"--listen", "127.0.0.1:0", "--admin", "", "--set", "metrics.listen=" + taken.Addr().String()}, `metrics.listen: listen tcp ADDRESS: bind: address already in use; another process has it: give metrics.listen another address`},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := program(t, append([]string{"serve"}, tt.args...)...)
			out, err := cmd.CombinedOutput()
			said := strings.NewReplacer(taken.Addr().String(), "ADDRESS").Replace(string(out))
			for _, path := range append(tt.args, key, filepath.Join(dir, "tls.key")) {
				path = strings.TrimPrefix(path, "authz.rules_file=")
				if strings.HasPrefix(path, dir) {
					said = strings.ReplaceAll(said, path, "FILE")
				}
			}
			if err == nil || !strings.Contains(said, tt.says) {
				t.Errorf("it says (%v)\n%s\nwant\n%s", err, said, tt.says)
			}
			documented(t, tt.says)
		})
	}
}

// TestFatalErrorsAreInTheLog: what keeps a relay from starting, when its log has begun, is a line
// of the log like those before it.
func TestFatalErrorsAreInTheLog(t *testing.T) {
	taken, err := net.Listen("tcp", loopback.Reserve(t))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, port := range [][]string{
		{"--listen", taken.Addr().String(), "--admin", ""},
		{"--listen", "127.0.0.1:0", "--admin", taken.Addr().String()},
		{"--listen", "127.0.0.1:0", "--admin", "", "--set", "metrics.listen=" + taken.Addr().String()},
	} {
		cmd := program(t, append([]string{"serve", "--upstream", loopback.Reserve(t)}, port...)...)
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != exitFailure {
			t.Errorf("%v: it ends with %v, want exit code %d", port, err, exitFailure)
		}
		var last struct{ Level, Msg, Err string }
		for line := range strings.Lines(string(out)) {
			if err := json.Unmarshal([]byte(line), &last); err != nil {
				t.Errorf("%v: a line is no JSON: %s", port, line)
			}
		}
		if last.Level != "ERROR" || last.Msg != "the relay cannot start" || !strings.Contains(last.Err, ".listen: listen tcp "+taken.Addr().String()) {
			t.Errorf("%v: the last line is %+v", port, last)
		}
	}
}

// plane serves ADS at an address, as f has it.
func plane(t *testing.T, f func(method string, s grpc.ServerStream) error) string {
	t.Helper()
	l, err := net.Listen("tcp", loopback.Reserve(t))
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.StreamInterceptor(func(_ any, stream grpc.ServerStream, info *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
		return f(info.FullMethod, stream)
	}))
	discovery.RegisterAggregatedDiscoveryServiceServer(s, discovery.UnimplementedAggregatedDiscoveryServiceServer{})
	var serves sync.WaitGroup
	serves.Go(func() { _ = s.Serve(l) }) // it ends with Stop
	t.Cleanup(func() { s.Stop(); serves.Wait() })
	return l.Addr().String()
}

// answering answers whatever is asked for with one resource.
func answering(_ string, s grpc.ServerStream) error {
	for {
		var req discovery.DeltaDiscoveryRequest
		if err := s.RecvMsg(&req); err != nil {
			return err
		}
		if req.GetResponseNonce() != "" {
			continue
		}
		body := &discovery.Resource{Name: "checkout", Version: "1"}
		body.Resource = &anypb.Any{TypeUrl: req.GetTypeUrl()}
		if err := s.SendMsg(&discovery.DeltaDiscoveryResponse{TypeUrl: req.GetTypeUrl(), Nonce: "1", Resources: []*discovery.Resource{body}}); err != nil {
			return err
		}
	}
}

// TestMistakesThatShowLater: what turns out to be wrong with a control plane, or with clients,
// is said in one line of the log that names the address and what to do.
func TestMistakesThatShowLater(t *testing.T) {
	accepts, err := net.Listen("tcp", loopback.Reserve(t)) // and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { accepts.Close() })
	own := loopback.Reserve(t)
	hang := func(_ string, s grpc.ServerStream) error { <-s.Context().Done(); return nil }
	quick := []string{"--set", "timers.dne_timeout=600ms", "--set", "timers.unavailable_after=500ms"}
	for name, tt := range map[string]struct {
		upstream string
		args     []string
		does     func(discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient)
		says     string
	}{
		"a port that is shut": {upstream: loopback.Reserve(t),
			says: `WARN cannot reach the control plane address=ADDRESS reason=unavailable code=Unavailable err="ADDRESS refuses connections: see whether the control plane runs, and whether upstream.address has its port for xDS (connection error: desc = \"transport: Error while dialing: dial tcp ADDRESS: connect: connection refused\")"`},
		"a server that says nothing": {upstream: accepts.Addr().String(),
			says: `WARN cannot reach the control plane address=ADDRESS reason=unavailable code=Unavailable err="ADDRESS accepts connections and sends nothing within 10s: it hangs, or upstream.address is not its port for gRPC`},
		"permission denied": {upstream: plane(t, func(string, grpc.ServerStream) error { return status.Error(codes.PermissionDenied, "no such node") }),
			says: `WARN the control plane refuses the relay: see upstream.headers and upstream.tls address=ADDRESS reason=refused code=PermissionDenied err="no such node"`},
		"no reason": {upstream: plane(t, func(string, grpc.ServerStream) error { return status.Error(codes.Internal, "") }),
			says: `WARN the control plane ends the stream address=ADDRESS reason=error code=Internal err="it gave no reason but the status Internal"`},
		"a wrong node": {upstream: plane(t, hang),
			says: `WARN the control plane is alive but does not answer for a type that clients wait for: it may not know the node (see upstream.node, groups.key, groups.profile), want a token (upstream.headers), or have no resource of this type`},
		"no Delta": {upstream: plane(t, func(method string, s grpc.ServerStream) error {
			if strings.Contains(method, "Delta") {
				return status.Error(codes.Unimplemented, "unknown method")
			}
			return hang(method, s)
		}), says: `WARN the control plane does not implement Delta; speaking SotW to it address=ADDRESS`},
		"a loop": {upstream: own, args: []string{"--listen", own},
			says: `WARN client refused reason=loop`},
		"too many groups": {upstream: plane(t, hang), args: []string{"--set", "groups.key=[id]", "--set", "groups.max=1"},
			says: `WARN client refused reason=too_many`},
		"too many groups for one type": {upstream: plane(t, hang), args: []string{"--set", "groups.max=1"},
			does: func(s discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient) {
				_ = s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Secret), ResourceNamesSubscribe: []string{"cert"}})
			},
			says: `WARN client refused a type type=SDS reason=too_many`},
		"a type that is not relayed": {upstream: plane(t, hang), args: []string{"--set", "upstream.types=[LDS]"},
			says: `WARN clients ask for a type that is not among upstream.types; they are told so type=CDS`},
		"a client that rejects": {upstream: plane(t, answering),
			does: func(s discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient) {
				if r, err := s.Recv(); err == nil {
					_ = s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce(), ErrorDetail: &statuspb.Status{Message: "no such transport socket"}})
				}
			},
			says: `WARN client rejected a response type=CDS nonce=CDS.1-0 nack="no such transport socket" resources=1 first=checkout`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--upstream", tt.upstream, "--set", "log.format=text"}, append(quick, tt.args...)...)
			cmd := program(t, append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "", "--set", "downstream.drain_delay=0s", "--set", "downstream.drain=0s"}, args...)...)
			said := new(lines)
			cmd.Stderr = said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() }() // what it said is looked at
			eventually(t, "it serves", func() bool { return said.after("serving  listener=") != "" })
			for i := range 2 {
				conn, err := grpc.NewClient(said.after("serving  listener="), grpc.WithTransportCredentials(insecure.NewCredentials()))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
				if err != nil {
					t.Fatal(err)
				}
				_ = s.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: fmt.Sprint("envoy-", i)}, TypeUrl: string(cache.Cluster), ResourceNamesSubscribe: []string{"checkout"}})
				if tt.does != nil {
					tt.does(s)
				}
			}
			defer func() {
				if t.Failed() {
					t.Logf("it said\n%s", said)
				}
			}()
			eventually(t, tt.says, func() bool { return said.has(tt.says, tt.upstream) })
			documented(t, tt.says)
		})
	}
}
