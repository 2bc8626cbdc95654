package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	gcp "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	gcpserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xds-relay/xds-relay/cache"
)

// steers finds what would do something to a terminal.
var steers = regexp.MustCompile(`[^\P{C}\n]|[\x{2028}\x{2029}]`)

// shop is a control plane whose clusters can change, a relay, and clients.
type shop struct {
	*served
	clusters *gcp.LinearCache
	plane    string
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{clusters: gcp.NewLinearCache(string(cache.Cluster))}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.plane = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	server := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(server, gcpserver.NewServer(ctx, s.clusters, nil))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // it ends with the test
	}()
	t.Cleanup(func() {
		cancel()
		server.Stop()
		<-done
	})
	return s
}

// serve starts the relay.
func (s *shop) serve(t *testing.T, args ...string) {
	t.Helper()
	s.served = serveProgram(t, append([]string{"--set", "metrics.listen=127.0.0.1:0", "--set", "downstream.drain=0s"}, args...)...)
}

// sells gives the control plane a cluster, or another version of it.
func (s *shop) sells(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	if err := s.clusters.UpdateResource(c.GetName(), c); err != nil {
		t.Fatal(err)
	}
}

// changes gives the one cluster, which has a canary in it, another timeout.
func (s *shop) changes(t *testing.T, timeout time.Duration) {
	t.Helper()
	inline, err := anypb.New(&core.DataSource{Specifier: &core.DataSource_InlineString{InlineString: canary}})
	if err != nil {
		t.Fatal(err)
	}
	s.sells(t, &cluster.Cluster{Name: "checkout", ConnectTimeout: durationpb.New(timeout), TypedExtensionProtocolOptions: map[string]*anypb.Any{"x": inline}})
}

// shopper is a Delta client of all clusters, that answers when the test says so.
type shopper struct {
	t      *testing.T
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
}

func (s *shop) opens(t *testing.T, node string) *shopper {
	t.Helper()
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := &shopper{t, stream}
	_ = stream.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: node}, TypeUrl: string(cache.Cluster)}) // Recv has the reason
	return c
}

func (c *shopper) send(req *discovery.DeltaDiscoveryRequest) {
	c.t.Helper()
	if err := c.stream.Send(req); err != nil {
		c.t.Fatal(err)
	}
}

// hears takes the next response, and answers it: with an ACK, or with a NACK if there is a message.
func (c *shopper) hears(message string) {
	c.t.Helper()
	r, err := c.stream.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	req := &discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}
	if message != "" {
		req.ErrorDetail = &statuspb.Status{Message: message}
	}
	c.send(req)
}

// asks runs a command against the relay, in this process, and holds what it prints against its promises: data on
// standard output and messages on standard error, nothing that steers a terminal, and no secret.
func (s *shop) asks(t *testing.T, code int, args ...string) (out, errs string) {
	t.Helper()
	t.Setenv(addressEnv, "")
	if !slices.Contains(args, "-c") { // else the file says where
		t.Setenv(addressEnv, strings.TrimPrefix(s.admin, "http://"))
	}
	var stdout, stderr bytes.Buffer
	got := execute(args, &stdout, &stderr)
	out, errs = stdout.String(), stderr.String()
	if got != code {
		t.Errorf("%v: exit %d, want %d\n%s%s", args, got, code, out, errs)
	}
	if (errs != "") != (code != 0) && args[0] != "dump" {
		t.Errorf("%v: exit %d, and on standard error %q", args, code, errs)
	}
	if steers.MatchString(out + errs) {
		t.Errorf("%v prints what steers a terminal: %q", args, out+errs)
	}
	if strings.Contains(out+errs, canary) {
		t.Errorf("%v shows a secret: %s", args, out+errs)
	}
	return out, errs
}

// prints fails unless a command prints each of some expressions, in this order.
func (s *shop) prints(t *testing.T, command string, lines ...string) (out string) {
	t.Helper()
	out, _ = s.asks(t, 0, strings.Fields(command)...)
	if !regexp.MustCompile("(?s)" + strings.Join(lines, ".*")).MatchString(out) {
		t.Errorf("%s does not print\n%s\nbut\n%s", command, strings.Join(lines, "\n"), out)
	}
	return out
}

// until waits until a command prints something.
func (s *shop) until(t *testing.T, command, line string) {
	t.Helper()
	re := regexp.MustCompile(line)
	eventually(t, command+" prints "+line, func() bool {
		out, _ := s.asks(t, 0, strings.Fields(command)...)
		return re.MatchString(out)
	})
}

// nasty is a node id, and objects what its client says of a cluster, in the words of an attacker.
const (
	nasty   = "evil\x1b[2J\u009b\u202e"
	objects = "bad timeout\nsecond line\x1b]0;title\x07"
	evil    = `evil\\x1b\[2J\\u009b\\u202e`
)

// TestTerminal is the day of somebody on call: of four clients one rejects a change, and one does not answer. It shows
// who, since when, why and what would change, and the end of that.
func TestTerminal(t *testing.T) {
	s := newShop(t)
	s.changes(t, 5*time.Second)
	s.serve(t, "--upstream", s.plane)
	s.prints(t, "ps", "relay +version .*, 0 clients, ready", "control plane +not asked for anything yet", "no clients\n")
	var clients []*shopper
	for _, node := range []string{"good", "good-2", nasty, "paused"} {
		clients = append(clients, s.opens(t, node))
		clients[len(clients)-1].hears("") // so that streams are numbered in this order
	}
	good, second, rejects, paused := clients[0], clients[1], clients[2], clients[3]
	s.until(t, "ps", "4 clients: 4 in step\n")
	s.changes(t, 10*time.Second)
	good.hears("")
	second.hears("")
	rejects.hears(objects)
	s.until(t, "ps", `4 clients: 2 in step, 2 not \(1 REJECTED, 1 STALE\)`)

	t.Run("ps", func(t *testing.T) { s.psPrints(t) })
	t.Run("ps CLIENT", func(t *testing.T) {
		client := []string{`client +` + evil, `stream +3, delta, connected \d+s ago`, `sent +2 responses, .*; 1 NACK`, `CDS  REJECTED \(1, \d+s\)`, `asks for +everything`, `group +default`,
			`it rejected, \d+s ago, a response with 1 resource, checkout:\n    bad timeout\n    second line\\x1b\]0;title\\x07\n`, `checkout +rejected +1:\w+ +1:\w+ +\d+s ago`, `xds-relay diff 3 CDS`}
		s.prints(t, "ps 3", client...)
		s.prints(t, "ps evil", client...)
		s.prints(t, "ps paused --type CDS", `CDS  STALE \(1, \d+s\)`, `checkout +sent, not acknowledged`)
		s.prints(t, "ps paused --type EDS", "it does not ask for this type")
		s.prints(t, "ps good", `CDS  SYNCED`)
		s.prints(t, "ps good -o json", `"step": "synced"`)
		if _, errs := s.asks(t, 2, "ps", "go"); !strings.Contains(errs, "2 clients have a node id like") || !strings.Contains(errs, "\n  2  good-2 from ") {
			t.Error(errs)
		}
		for _, nobody := range []string{"nobody", "99", "-1"} {
			if _, errs := s.asks(t, map[string]int{"-1": 2}[nobody]+map[string]int{"nobody": 1, "99": 1}[nobody], "ps", nobody); errs == "" {
				t.Error(nobody)
			}
		}
	})
	t.Run("diff", func(t *testing.T) {
		s.prints(t, "diff evil", `CDS checkout: rejected, changed \d+s ago\n  --- client  version 1:\w+, .*, probably\n  \+\+\+ relay   version 1:\w+, .*\n  ~ connect_timeout: "5s" → "10s"\n$`)
		s.prints(t, "diff paused CDS", `sent, not acknowledged`, `~ connect_timeout: "5s" → "10s"`)
		s.prints(t, "diff good", `^good \(stream 1\) has what the relay has\n$`)
		s.prints(t, "diff paused -o json", `"path": "connect_timeout",\s+"old": "\\"5s\\""`)
		s.prints(t, "diff paused -o yaml", `path: connect_timeout`)
		s.asks(t, 2, "diff")
		s.asks(t, 2, "diff", "good", "x")
		s.asks(t, 2, "diff", "good", "--limit", "0")
		s.asks(t, 1, "diff", "nobody")
	})
	t.Run("resources", func(t *testing.T) {
		s.prints(t, "resources", `CDS +default +1 +`)
		s.prints(t, "resources CDS", `NAME`, `checkout +default +by wildcard +present +1:\w+ `, `\d+s ago`)
		s.prints(t, "resources CDS checkout", `previous version +1:`, `2 of 4 clients in step`, `1 of 4 were sent version 1:\w+: `, `1 of 4 were sent version`)
		s.prints(t, "resources CDS -o json", `"previous_version": "1:`)
		s.prints(t, "resources EDS", `no resources`)
		s.prints(t, "resources CDS --prefix x", `no resources`)
		s.asks(t, 1, "resources", "CDS", "nothing")
		s.asks(t, 2, "resources", "x")
		s.asks(t, 2, "resources", "CDS", "--limit", "0")
	})
	t.Run("top", func(t *testing.T) {
		s.prints(t, "top --once", `control plane`, `4 clients: 2 in step, 2 not`, `CLIENT`, evil+` +3 +REJECTED`, `paused +4 +STALE`, `good `)
		if out := s.prints(t, "top --turns 2 --every 100ms --rows 1 --sort nacks", evil, evil); strings.Contains(out, "paused") {
			t.Error(out)
		}
		s.prints(t, "top --sort bytes --once", `by bytes`)
		s.asks(t, 2, "top", "--sort", "x")
		s.asks(t, 2, "top", "--every", "1ms")
	})
	t.Run("dump", func(t *testing.T) { s.dumps(t) })
	t.Run("check", func(t *testing.T) {
		s.prints(t, "check --running", `ok +relay`, `ok +control plane +`+s.plane+` connected`, `note +clients +4 clients: 2 not in step, 1 of them REJECTED`, `hint: xds-relay ps --stale`, `ok +certificates`, `ok +descriptors`, `ok +snapshot`)
		s.asks(t, 2, "check", "--address", "x")
	})

	s.changes(t, 15*time.Second) // what the client takes again
	for _, c := range []*shopper{good, second, rejects} {
		c.hears("")
	}
	s.until(t, "ps", `4 clients: 3 in step, 1 not \(1 STALE\)`)
	s.drains(t, good, paused)
	s.stop(t)
}

// psPrints: the worst come first, filters hold, and every form has the same.
func (s *shop) psPrints(t *testing.T) {
	s.prints(t, "ps", `relay +version .*, 4 clients, ready\n`, `control plane +`+s.plane+` connected, since \d+s \(delta\), last message \d+s ago\n`,
		`CLIENT +STREAM +GROUP +PROTOCOL +CONNECTED +CDS\n`, evil+` +3 +default +delta +\d+s +REJECTED \(1, \d+s\)\n`, `paused +4 .* STALE \(1, \d+s\)\n`, `good +1 .* SYNCED\n`, `good-2`)
	for command, want := range map[string]string{
		"ps --stale":                "evil paused",
		"status --stale":            "evil paused",
		"ps --nacked":               "evil",
		"ps --node good":            "good",
		"ps --prefix good":          "good good-2",
		"ps --type CDS --stale":     "evil paused",
		"ps --type EDS":             "",
		"ps --group default --all":  "evil paused good good-2",
		"ps --group other":          "",
		"ps --stale --prefix good":  "",
		"ps --nacked --type CDS -w": "evil",
	} {
		args := append(strings.Fields(strings.TrimSuffix(command, " -w")), "-o", "json")
		out, _ := s.asks(t, 0, args...)
		var view struct {
			Clients []struct {
				Node, State string
				Types       []struct{ State, Type string }
			}
		}
		if err := json.Unmarshal([]byte(out), &view); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range view.Clients {
			got = append(got, strings.TrimSuffix(c.Node, nasty[4:]))
			if len(c.Types) != 1 || c.Types[0].State != c.State {
				t.Errorf("%+v", c)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
	s.prints(t, "ps -o yaml", `control_planes:`, `state: REJECTED`)
	s.prints(t, "ps -o wide", `IDENTITY +PEER`, `- +127.0.0.1:\d+`)
	for _, bad := range [][]string{{"-o", "xml"}, {"--type", "x"}, {"a", "b"}, {"--every", "1ms", "-w"}} {
		s.asks(t, 2, append([]string{"ps"}, bad...)...)
	}
}

// dumps: a dump has everything, is for its owner only, and is replaced as a whole.
func (s *shop) dumps(t *testing.T) {
	config := filepath.Join(t.TempDir(), "relay.yaml")
	text := fmt.Sprintf("upstream: {address: %q, headers: {authorization: %q}}\nadmin: {listen: %q}\n", s.plane, "Bearer "+canary, strings.TrimPrefix(s.admin, "http://"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dump.json")
	if err := os.WriteFile(file, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.asks(t, 0, "dump", "-o", file, "-c", config)
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	printed, _ := s.asks(t, 0, "dump")
	for _, dump := range []string{string(written), printed} {
		var d struct {
			Answers        map[string]json.RawMessage
			Clients        []any
			ClientDetails  []struct{ Names []any } `json:"client_details"`
			Resources      []any
			Config, Errors map[string]any
		}
		if err := json.Unmarshal([]byte(dump), &d); err != nil {
			t.Fatal(err)
		}
		if len(d.Clients) != 4 || len(d.ClientDetails) != 4 || len(d.ClientDetails[0].Names) != 1 || len(d.Resources) != 1 || len(d.Errors) > 0 || (d.Config != nil) != (dump == string(written)) {
			t.Errorf("%.4000s", dump)
		}
		for _, path := range []string{"/server_info", "/groups", "/readyz", "/livez", "/startupz", "/debug/check", "/metrics"} {
			if len(d.Answers[path]) < 4 {
				t.Errorf("the dump has no %s", path)
			}
		}
		if strings.Contains(dump, canary) || steers.MatchString(dump) {
			t.Error("the dump has a secret, or what steers a terminal")
		}
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(file), ".*")); err != nil || len(left) > 0 {
		t.Errorf("%q is left, %v", left, err)
	}
	s.asks(t, 1, "dump", "-o", "/no/such/directory/dump.json")
}

// drains: with a time the clients go, and nobody new comes, until the drain ends.
func (s *shop) drains(t *testing.T, good, paused *shopper) {
	s.prints(t, "drain", "^draining: the relay is not ready, and goes on serving 4 clients; --for sends them away\n$")
	s.prints(t, "ps", "NOT READY: an operator drains the relay")
	if out, errs := s.asks(t, 1, "check", "--running"); !strings.Contains(out, "FAIL  ready") || !strings.Contains(errs, "1 of the checks failed") {
		t.Errorf("%s%s", out, errs)
	}
	s.prints(t, "drain --for 0s", "sends 4 clients away over 0s")
	for _, c := range []*shopper{good, paused} {
		var err error
		for err == nil {
			_, err = c.stream.Recv()
		}
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "an operator drains this relay") {
			t.Errorf("a client is told %v", err)
		}
	}
	late := s.opens(t, "late")
	if _, err := late.stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("a newcomer is told %v", err)
	}
	s.prints(t, "drain --undo", "the drain is over")
	s.opens(t, "again").hears("")
	s.prints(t, "ps", "ready\n", "again")
	s.asks(t, 2, "drain", "--undo", "--for", "1s")
	s.asks(t, 2, "drain", "--for", "-1s")
}
