package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"testing"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	lrs "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	gcp "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	gcpserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/certs/certstest"
)

// sotwOnly is a control plane without Delta.
type sotwOnly struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	real gcpserver.Server
}

func (s sotwOnly) StreamAggregatedResources(stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return s.real.StreamAggregatedResources(stream)
}

// locked is one that lets nobody in.
type locked struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
}

func (locked) StreamAggregatedResources(discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return status.Error(codes.PermissionDenied, "who are you?")
}

func (locked) DeltaAggregatedResources(discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return status.Error(codes.PermissionDenied, "who are you?")
}

// onlyClusters is one that has 500 clusters and no listeners, and says nothing over SotW.
type onlyClusters struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
}

func (onlyClusters) StreamAggregatedResources(s discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	<-s.Context().Done()
	return nil
}

func (onlyClusters) DeltaAggregatedResources(s discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	for {
		req, err := s.Recv()
		if err != nil {
			return err
		}
		if req.GetTypeUrl() != string(cache.Cluster) || req.GetResponseNonce() != "" {
			continue
		}
		resp := &discovery.DeltaDiscoveryResponse{TypeUrl: req.GetTypeUrl(), Nonce: "1"}
		for i := range 500 {
			resp.Resources = append(resp.Resources, &discovery.Resource{Name: fmt.Sprint("c", i), Resource: &anypb.Any{TypeUrl: req.GetTypeUrl()}})
		}
		if err := s.Send(resp); err != nil {
			return err
		}
	}
}

// reported is one that takes load reports, too, and asks for none.
type reported struct{ onlyClusters }

func (reported) StreamLoadStats(s lrs.LoadReportingService_StreamLoadStatsServer) error {
	return s.Send(&lrs.LoadStatsResponse{})
}

// serving is the address of a control plane.
func serving(t *testing.T, ads discovery.AggregatedDiscoveryServiceServer) string {
	t.Helper()
	return servingBy(t, func(s *grpc.Server) {
		discovery.RegisterAggregatedDiscoveryServiceServer(s, ads)
		if load, ok := ads.(lrs.LoadReportingServiceServer); ok {
			lrs.RegisterLoadReportingServiceServer(s, load)
		}
	})
}

// servingBy is that of one with other services.
func servingBy(t *testing.T, register func(*grpc.Server)) string {
	t.Helper()
	l := listening(t)
	s := grpc.NewServer()
	register(s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // it ends with the test
	}()
	t.Cleanup(func() { s.Stop(); <-done })
	return l.Addr().String()
}

func listening(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestCheck: one line for each step, the first that fails with what to do, and the exit code.
func TestCheck(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	cert, key, pair := a.issue(t, "plane")
	server := &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: a.pool, ClientAuth: tls.RequireAndVerifyClientCert}
	secured := serveClusters(t, credentials.NewTLS(server))
	plain := serveClusters(t, insecure.NewCredentials())
	closed := listening(t)
	closed.Close()
	silent := listening(t).Addr().String() // whose connections nobody takes
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	clusters := gcp.NewLinearCache(string(cache.Cluster))
	old := serving(t, sotwOnly{real: gcpserver.NewServer(ctx, clusters, nil)})
	shut := serving(t, locked{})
	half, reports := serving(t, onlyClusters{}), serving(t, reported{})
	byName := gcp.NewLinearCache(string(cache.Endpoint))
	if err := byName.UpdateResource("c", &endpoint.ClusterLoadAssignment{ClusterName: "c"}); err != nil {
		t.Fatal(err)
	}
	endpoints := servingBy(t, func(s *grpc.Server) {
		endpointservice.RegisterEndpointDiscoveryServiceServer(s, gcpserver.NewServer(ctx, byName, nil))
	})
	from := func(address, services string) []string {
		return []string{"--upstream", plain, "--within", "1s", "--set", fmt.Sprintf("upstream.by_type=[{name: eds, types: [EDS], address: %q, services: %s}]", address, services)}
	}

	with := func(ca, cert, key string) []string {
		return []string{"--set", "upstream.tls.ca=" + ca, "--set", "upstream.tls.cert=" + cert, "--set", "upstream.tls.key=" + key}
	}
	one, agent := certstest.NewAuthority(t, "one.test"), certstest.NewAgent(t, t.TempDir())
	agent.Give(one.IssueSVID(t, "spiffe://one.test/relay", x509.Certificate{}), []*certstest.Authority{one}, nil)
	agent.Start(t)
	svid := one.IssueSVID(t, "spiffe://one.test/plane", x509.Certificate{})
	own, err := tls.X509KeyPair(svid.Cert, svid.Key)
	if err != nil {
		t.Fatal(err)
	}
	ofOne := serveClusters(t, credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: one.Pool(), ClientAuth: tls.RequireAndVerifyClientCert}))
	by := func(socket, domain, id string) []string {
		return []string{"--upstream", ofOne, "--set", fmt.Sprintf("upstream.tls.spiffe={workload_api: %q, trust_domains: [%s], server_id: %q}", socket, domain, id)}
	}
	for name, tt := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"an agent": {by(agent.Address(), "one.test", svid.ID), 0, []string{
			"ok    upstream.tls.spiffe.workload_api " + agent.Address() + ": spiffe://one.test/relay, until ", ": Delta ADS              1 CDS"}},
		"an agent that is away": {by("unix:///nowhere.sock", "one.test", svid.ID), 1, []string{
			"FAIL  upstream.tls.spiffe.workload_api", "no such file", "hint: see whether the agent runs", "FAIL  upstream: TLS"}},
		"an agent without the bundle": {by(agent.Address(), "two.test", "spiffe://two.test/plane"), 1, []string{
			"note  upstream.tls.spiffe.trust_domains", "has no bundle of \"two.test\"", "FAIL  upstream: TLS", "of a trust domain that is not among upstream.tls.spiffe.trust_domains"}},
		"another server": {by(agent.Address(), "one.test", "spiffe://one.test/other"), 1, []string{"FAIL  upstream: TLS", "is another server than upstream.tls.spiffe.server_id says"}},
		"all is well": {append(with(a.file, cert, key), "--upstream", secured), 0, []string{
			"ok    configuration", "note  upstream.tls.ca", "note  upstream.tls.cert", "CN=plane expires on ", "ok    upstream: address",
			"ok    upstream: connection", "note  upstream: TLS                    the server's certificate: CN=plane expires on ", "ok    upstream: ALPN                   h2",
			": Delta ADS              1 CDS", ": SotW ADS               1 CDS", "ok    upstream: control plane", "open files"}},
		"plaintext": {[]string{"--upstream", plain}, 0, []string{": Delta ADS              1 CDS"}},
		"a wrong CA": {append(with(other.file, cert, key), "--upstream", secured), 1, []string{
			"FAIL  upstream: TLS", "certificate signed by unknown authority", "hint: " + secured + " has a certificate from an authority that is not trusted: set upstream.tls.ca"}},
		"a wrong name": {append(with(a.file, cert, key), "--upstream", secured, "--set", "upstream.tls.server_name=elsewhere"), 1, []string{
			"FAIL  upstream: TLS", "hint: " + secured + " has no certificate for the name that the relay expects: set upstream.tls.server_name"}},
		"no certificate": {[]string{"--upstream", secured, "--set", "upstream.tls.ca=" + a.file}, 1, []string{
			"FAIL  upstream: xDS", "wants a client certificate: set upstream.tls.cert and upstream.tls.key"}},
		"TLS where there is none": {append(with(a.file, cert, key), "--upstream", plain), 1, []string{"FAIL  upstream: TLS", "does not speak TLS"}},
		"a closed port":           {[]string{"--upstream", closed.Addr().String()}, 1, []string{"FAIL  upstream: connection", "nothing listens there"}},
		"a silent port": {[]string{"--upstream", silent, "--within", "300ms"}, 1, []string{
			"ok    upstream: connection", "FAIL  upstream: xDS", "it takes connections and says nothing"}},
		"load reports": {[]string{"--upstream", reports, "--within", "500ms", "--set", "groups.profile=sidecar", "--set", "passthrough=[{service: a.Service}]"}, 0, []string{
			"ok    upstream: envoy.service.load_stats.v3.LoadReportingService it does not refuse load reports", "note  upstream: a.Service              not tried"}},
		"a control plane without load reports": {[]string{"--upstream", plain, "--set", "groups.profile=sidecar"}, 0, []string{
			"note  upstream: envoy.service.load_stats.v3.LoadReportingService the control plane lacks it: unknown service envoy.service.load_stats.v3.LoadReportingService\n      hint: remove it from passthrough"}},
		"clusters, and silence about listeners": {[]string{"--upstream", half, "--within", "2s"}, 0, []string{
			": Delta ADS              500 CDS, LDS: no answer within 2s\n      hint: it answers, and is silent about LDS: it has none for a node with id \"xds-relay\"",
			"note  upstream: SotW ADS               CDS: no answer within 2s, LDS: no answer within 2s\n" + "ok    "}},
		"silence in the variant that is wanted": {[]string{"--upstream", half, "--within", "2s", "--set", "upstream.mode=sotw"}, 1, []string{
			"FAIL  upstream: SotW ADS               CDS: no answer within 2s, LDS: no answer within 2s\n      hint: it answers in the other variant only: set upstream.mode to that one, or to auto"}},
		"a silent port, TLS": {append(with(a.file, cert, key), "--upstream", silent, "--within", "300ms"), 1, []string{"FAIL  upstream: TLS", "says nothing"}},
		"without Delta":      {[]string{"--upstream", old}, 0, []string{"note  upstream: Delta ADS", "method DeltaAggregatedResources not implemented", ": SotW ADS"}},
		"without Delta, which is wanted": {[]string{"--upstream", old, "--set", "upstream.mode=delta"}, 1, []string{
			"FAIL  upstream: Delta ADS", "hint: it has no such variant: set upstream.mode"}},
		"locked":                    {[]string{"--upstream", shut}, 1, []string{"FAIL  upstream: xDS", "who are you?", "see upstream.headers"}},
		"a fallback":                {[]string{"--upstream", plain, "--set", "upstream.fallbacks=[{address: '" + closed.Addr().String() + "'}]"}, 1, []string{"FAIL  upstream.fallbacks[0]: connection"}},
		"another one for endpoints": {from(endpoints, "per_type"), 0, []string{"ok    upstream.by_type[0]: connection", "ok    upstream.by_type[0]: Delta of each type 1 EDS"}},
		"one without ADS":           {from(endpoints, "ads"), 1, []string{"FAIL  upstream.by_type[0]: xDS", "unknown service envoy.service.discovery.v3.AggregatedDiscoveryService", "set upstream.by_type[0].services to per_type"}},
		"one with nothing but ADS":  {from(plain, "per_type"), 1, []string{"FAIL  upstream.by_type[0]: xDS", "unknown service envoy.service.endpoint.v3.EndpointDiscoveryService", "set upstream.by_type[0].services to ads"}},
		"a proxy": {[]string{"--upstream", "control-plane.test:15010", "--set", "upstream.insecure=true"}, 1, []string{
			"ok    upstream: address                control-plane.test:15010, through the proxy " + closed.Addr().String() + " (HTTPS_PROXY)\n",
			"FAIL  upstream: connection", "the proxy of HTTPS_PROXY, " + closed.Addr().String() + ": "}},
		"no config": {[]string{"--upstream", "nothing"}, 2, nil},
		"no file":   {with("/none", cert, key), 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := program(t, append([]string{"check"}, tt.args...)...)
			cmd.Env = append(cmd.Env, "HTTPS_PROXY=http://"+closed.Addr().String(), "NO_PROXY=") // not for what is on loopback
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			_ = cmd.Run() // the exit code tells
			if code := cmd.ProcessState.ExitCode(); code != tt.code {
				t.Errorf("exit %d, want %d", code, tt.code)
			}
			for _, want := range tt.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("lacks %q", want)
				}
			}
			if t.Failed() {
				t.Logf("%s%s", out.String(), errs.String())
			}
		})
	}
}
