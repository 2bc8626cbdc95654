package main

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	csds "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	channelz "google.golang.org/grpc/channelz/grpc_channelz_v1"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/xds-relay/xds-relay/cache"
)

// accepts opens a stream that accepts the first answer, and asks for a name that is not there. It stays until the
// test ends.
func accepts(t *testing.T, conn *grpc.ClientConn, id string) {
	t.Helper()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: id}, TypeUrl: string(cache.Cluster), ResourceNamesSubscribe: []string{"checkout"}}) // Recv has the reason
	r, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}) // the relay is asked whether it came
	_ = stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResourceNamesSubscribe: []string{"awaited"}})
}

func connected(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(strings.TrimPrefix(address, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// TestGRPCDebug makes the calls of grpcdebug, as it makes them, to a relay that runs: "xds status" and "xds config",
// "health", and "channelz"; and it lists services, as grpcurl does. What CSDS says is what /resources says.
func TestGRPCDebug(t *testing.T) {
	s := serveProgram(t, "--upstream", serveClusters(t, insecure.NewCredentials()), "--set", "downstream.drain=0s", "--set", "admin.csds=bodies")
	accepts(t, connected(t, s.address), "envoy-0")
	rejects(t, connected(t, s.address), "envoy-1")
	eventually(t, "a client has accepted, and one has rejected, what it was sent", func() bool {
		_, body := s.get(t, "/clients")
		return strings.Contains(body, `"nacked"`) && strings.Contains(body, `"synced"`)
	})
	conn := connected(t, s.admin)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	status := csds.NewClientStatusDiscoveryServiceClient(conn)
	own, err := status.FetchClientStatus(ctx, &csds.ClientStatusRequest{})
	if err != nil || len(own.GetConfig()) != 1 {
		t.Fatalf("xds status: %v, %v", own, err)
	}
	versions, told := make(map[string]string), make(map[string]string)
	for _, g := range own.GetConfig()[0].GetGenericXdsConfigs() {
		versions[g.GetName()] = g.GetVersionInfo()
		if g.GetName() == "checkout" && (g.GetClientStatus().String() != "ACKED" || g.GetLastUpdated() == nil || g.GetXdsConfig() == nil) {
			t.Errorf("xds config: %v", g)
		}
	}
	_, body := s.get(t, "/resources")
	var resources struct {
		Resources []struct {
			Name, Version string
			Upstream      string `json:"upstream_version"`
		}
	}
	if err := json.Unmarshal([]byte(body), &resources); err != nil {
		t.Fatal(err)
	}
	current := ""
	for _, r := range resources.Resources {
		if told[r.Name] == "" {
			told[r.Name] = r.Upstream
		}
		if r.Name == "checkout" {
			current = r.Version
		}
	}
	if !maps.Equal(versions, told) || versions["checkout"] == "" {
		t.Errorf("CSDS says %v, and /resources %v", versions, told)
	}
	if id := own.GetConfig()[0].GetNode().GetId(); id != "xds-relay" {
		t.Errorf("the node is %q", id)
	}

	clients, err := status.FetchClientStatus(ctx, &csds.ClientStatusRequest{NodeMatchers: []*matcher.NodeMatcher{
		{NodeId: &matcher.StringMatcher{MatchPattern: &matcher.StringMatcher_Prefix{Prefix: "envoy-"}}},
	}})
	if err != nil || len(clients.GetConfig()) != 2 {
		t.Fatalf("by matcher: %v, %v", clients, err)
	}
	states := make(map[string]string)
	for _, c := range clients.GetConfig() {
		for _, g := range c.GetGenericXdsConfigs() {
			states[c.GetNode().GetId()+" "+g.GetName()] = g.GetConfigStatus().String()
			if g.GetName() == "checkout" && g.GetVersionInfo() != current {
				t.Errorf("the version is %q, and /resources has %q", g.GetVersionInfo(), current)
			}
		}
	}
	if want := map[string]string{"envoy-0 checkout": "SYNCED", "envoy-1 checkout": "ERROR", "envoy-0 awaited": "NOT_SENT"}; !maps.Equal(states, want) {
		t.Errorf("clients are %v, want %v", states, want)
	}

	for _, service := range []string{"", "envoy.service.discovery.v3.AggregatedDiscoveryService"} {
		resp, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: service})
		if err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health %q: %v, %v", service, resp, err)
		}
	}
	inspects(t, ctx, channelz.NewChannelzClient(conn))

	list, err := reflection.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_ = list.Send(&reflection.ServerReflectionRequest{MessageRequest: &reflection.ServerReflectionRequest_ListServices{}}) // Recv has the reason
	if resp, err := list.Recv(); err != nil || len(resp.GetListServicesResponse().GetService()) != 5 {
		t.Errorf("reflection: %v, %v", resp, err)
	}

	// Clients see nothing of it on their port.
	if _, err := csds.NewClientStatusDiscoveryServiceClient(connected(t, s.address)).FetchClientStatus(ctx, &csds.ClientStatusRequest{}); err == nil || !strings.Contains(err.Error(), "Unimplemented") {
		t.Errorf("on the port of clients CSDS says %v", err)
	}
	watch, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
	if err == nil {
		_, err = watch.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	s.stop(t) // although somebody watches
}

// inspects walks from servers to their sockets, and from channels to theirs, as "channelz" does.
func inspects(t *testing.T, ctx context.Context, client channelz.ChannelzClient) {
	t.Helper()
	servers, err := client.GetServers(ctx, &channelz.GetServersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	sockets := 0
	for _, server := range servers.GetServer() {
		all, err := client.GetServerSockets(ctx, &channelz.GetServerSocketsRequest{ServerId: server.GetRef().GetServerId()})
		if err != nil {
			t.Error(err)
		}
		for _, ref := range all.GetSocketRef() {
			if socket, err := client.GetSocket(ctx, &channelz.GetSocketRequest{SocketId: ref.GetSocketId()}); err != nil || socket.GetSocket().GetData().GetStreamsStarted() != 1 {
				t.Errorf("the socket of a client: %v, %v", socket, err)
			}
			sockets++
		}
	}
	if sockets != 2 {
		t.Errorf("channelz has %d clients in %v", sockets, servers)
	}
	channels, err := client.GetTopChannels(ctx, &channelz.GetTopChannelsRequest{})
	if err != nil || len(channels.GetChannel()) == 0 {
		t.Errorf("channels: %v, %v", channels, err)
	}
	for _, channel := range channels.GetChannel() {
		for _, ref := range channel.GetSubchannelRef() {
			if _, err := client.GetSubchannel(ctx, &channelz.GetSubchannelRequest{SubchannelId: ref.GetSubchannelId()}); err != nil {
				t.Error(err)
			}
		}
	}
}

// asPython is what has to be set for TestPythonDecodesCSDS: a python with the packages grpcio and xds-protos
// (make csds-python).
const asPython = "XDS_RELAY_PYTHON"

// TestPythonDecodesCSDS: the messages of another implementation of protobuf take the answers.
func TestPythonDecodesCSDS(t *testing.T) {
	python := os.Getenv(asPython)
	if python == "" {
		t.Skip(asPython, " names no python with xds-protos")
	}
	s := serveProgram(t, "--upstream", serveClusters(t, insecure.NewCredentials()), "--set", "downstream.drain=0s", "--set", "admin.csds=bodies")
	accepts(t, connected(t, s.address), "envoy-0")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "testdata/csds.py", strings.TrimPrefix(s.admin, "http://"))
	cmd.Env = append(os.Environ(), "no_proxy=127.0.0.1", "NO_PROXY=127.0.0.1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "own ACKED checkout") || !strings.Contains(string(out), "envoy-0 SYNCED checkout") {
		t.Errorf("%v\n%s", err, out)
	}
	s.stop(t)
}

// rejects opens a stream that rejects the first answer, and stays until the test ends.
func rejects(t *testing.T, conn *grpc.ClientConn, id string) {
	t.Helper()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: id}, TypeUrl: string(cache.Cluster)}) // Recv has the reason
	r, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce(), ErrorDetail: &statuspb.Status{Message: "no such transport socket"}}) // the relay is asked whether it came
}
