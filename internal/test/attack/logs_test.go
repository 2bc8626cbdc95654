//go:build linux

package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xds-relay/xds-relay/cache"
)

// injected is what would be a line of the log.
const injected = "x\r\n{\"level\":\"ERROR\",\"msg\":\"injected\"}\n"

// injects puts it wherever a client can say something.
func injects(ctx context.Context, at *target) (string, error) {
	c, err := dial(at)
	if err != nil {
		return "", err
	}
	defer c.Close()
	text := structpb.NewStringValue(injected)
	for i := 0; ctx.Err() == nil; i++ {
		node := &core.Node{Id: injected + strconv.Itoa(i%50), Cluster: injected, Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{injected: text}}, UserAgentName: injected, Locality: &core.Locality{Zone: injected}}
		s, err := discovery.NewAggregatedDiscoveryServiceClient(c).DeltaAggregatedResources(ctx)
		if err != nil {
			break
		}
		kind := cache.TypeURL("type.googleapis.com/" + injected)
		if i%2 == 0 {
			kind = cache.Endpoint
		}
		_ = s.Send(&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: string(kind), ResourceNamesSubscribe: []string{injected}})
		r, err := s.Recv()
		if err == nil {
			_ = s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(kind), ResponseNonce: r.GetNonce(), ErrorDetail: &status.Status{Message: injected}})
			_ = s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(kind), ResponseNonce: injected})
		}
		_ = s.CloseSend() // whatever it says, it has been heard
		if err := injectHeaders(ctx, at); err != nil && !over(ctx, err) {
			return "", err
		}
		pause(ctx, 20*time.Millisecond)
	}
	return "", nil
}

// injectHeaders does it in headers, of a connection that may be refused for it.
func injectHeaders(ctx context.Context, at *target) error {
	for _, headers := range [][]string{{"x-xds-relay-via", injected}, {"user-agent", injected}, {"grpc-encoding", injected}, {"x-token", injected}, {"grpc-timeout", injected}, {injected, "x"}} {
		r, err := dialRaw(ctx, at)
		if err != nil {
			return err
		}
		if _, err := r.open("/"+injected, headers...); err == nil {
			_, _ = r.open(deltaMethod, headers...) // it may be gone
		}
		pause(ctx, 5*time.Millisecond)
		r.Close()
	}
	return nil
}

// oneObjectEach: each line of the log is one JSON object, and what was injected is none.
func oneObjectEach(w *world) error {
	lines, quoted := w.relay.Output.Lines(), 0
	for _, line := range lines {
		var l struct{ Level, Msg string }
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Level == "" || l.Msg == "injected" {
			return fmt.Errorf("a line of the log is no object, or a client's: %.300q", line)
		}
		if strings.Contains(line, "injected") {
			quoted++
		}
	}
	if quoted == 0 {
		return errors.New("the log has nothing of what the attacker said")
	}
	w.t.Logf("%d lines, %d of them with what the attacker said", len(lines), quoted)
	return nil
}
