package peer

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"github.com/xds-relay/xds-relay/cache"
)

// Talk is a Delta ADS stream on which a test says what it likes, without a client's good
// manners.
type Talk struct {
	// Nonces are those of the last response of each type, by its short name; Versions
	// those of all that came, by type and name; Got is all that came.
	Nonces   map[string]string
	Versions map[string]map[string]string
	Got      []*discovery.DeltaDiscoveryResponse

	// Short makes a name what Hear calls it.
	Short func(name string) string

	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	heard  chan *discovery.DeltaDiscoveryResponse
	end    error // why heard was closed
}

// StartTalk opens a stream, with the metadata of ctx. The test's end ends it.
func StartTalk(ctx context.Context, t testing.TB, conn *grpc.ClientConn) *Talk {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	k := &Talk{
		Nonces: make(map[string]string), Versions: make(map[string]map[string]string),
		Short:  func(name string) string { return name },
		stream: stream, heard: make(chan *discovery.DeltaDiscoveryResponse, 1000),
	}
	go func() {
		defer close(k.heard)
		for {
			r, err := stream.Recv()
			if err != nil {
				k.end = err
				return
			}
			k.heard <- r
		}
	}()
	t.Cleanup(func() {
		cancel()
		for range k.heard { // until the receiver is gone
		}
	})
	return k
}

// Send sends a request. What is wrong is told to the receiver.
func (k *Talk) Send(r *discovery.DeltaDiscoveryRequest) { _ = k.stream.Send(r) }

// Hear is the next response in words: its type, +name for what came, -name for what went,
// in the order of the alphabet. It is empty if nothing came within the limit; err is how
// the stream has ended.
func (k *Talk) Hear(limit time.Duration) (words string, err error) {
	patience := time.NewTimer(limit)
	defer patience.Stop()
	select {
	case r, ok := <-k.heard:
		if !ok {
			return "", k.end
		}
		return k.take(r), nil
	case <-patience.C:
		return "", nil
	}
}

func (k *Talk) take(r *discovery.DeltaDiscoveryResponse) string {
	k.Got = append(k.Got, r)
	typ := cache.TypeURL(r.GetTypeUrl()).Short()
	k.Nonces[typ] = r.GetNonce()
	if k.Versions[typ] == nil {
		k.Versions[typ] = make(map[string]string)
	}
	for _, res := range r.GetResources() {
		k.Versions[typ][res.GetName()] = res.GetVersion()
	}
	return k.Words(r)
}

// Words is a response as Hear tells it.
func (k *Talk) Words(r *discovery.DeltaDiscoveryResponse) string {
	var names []string
	for _, res := range r.GetResources() {
		names = append(names, "+"+k.Short(res.GetName()))
	}
	for _, name := range r.GetRemovedResources() {
		names = append(names, "-"+k.Short(name))
	}
	slices.Sort(names)
	return strings.Join(append([]string{cache.TypeURL(r.GetTypeUrl()).Short()}, names...), " ")
}
