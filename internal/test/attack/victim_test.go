//go:build linux

package attack

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/xds-relay/xds-relay/cache"
)

// victim is a client that does nothing but follow beat.
type victim struct {
	plane  *plane
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	heard []hearing
	ends  []error // of its streams
	wrong []string
}

// hearing is an update that has come.
type hearing struct {
	at   time.Time
	late time.Duration // after it was made
}

// startVictim connects to a relay, and again when its stream ends, until the test ends.
func startVictim(t *testing.T, p *plane, addr, node string, creds credentials.TransportCredentials) *victim {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	v := &victim{plane: p, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(v.done)
		for ctx.Err() == nil {
			err := v.follow(ctx, conn, node)
			if ctx.Err() == nil {
				v.mu.Lock()
				v.ends = append(v.ends, err)
				v.mu.Unlock()
			}
			select {
			case <-ctx.Done():
			case <-time.After(every):
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-v.done
		conn.Close()
	})
	return v
}

// follow is one stream.
func (v *victim) follow(ctx context.Context, conn *grpc.ClientConn, node string) error {
	s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	send := func(r *discovery.DeltaDiscoveryRequest) error {
		r.Node, r.TypeUrl = &core.Node{Id: node}, string(cache.Endpoint)
		return s.Send(r)
	}
	if err := send(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{beat}}); err != nil {
		return err
	}
	for {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		v.hear(r)
		if err := send(&discovery.DeltaDiscoveryRequest{ResponseNonce: r.GetNonce()}); err != nil {
			return err
		}
	}
}

func (v *victim) hear(r *discovery.DeltaDiscoveryResponse) {
	now := time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(r.GetRemovedResources()) > 0 || len(r.GetResources()) != 1 || r.GetResources()[0].GetName() != beat {
		v.wrong = append(v.wrong, fmt.Sprintf("%.200s", prototext.Format(r)))
		return
	}
	n, _ := strconv.Atoi(said(r.GetResources()[0].GetResource()))
	made := v.plane.when(n)
	if made.IsZero() {
		v.wrong = append(v.wrong, fmt.Sprintf("beat %.200q, which was never made", said(r.GetResources()[0].GetResource())))
		return
	}
	v.heard = append(v.heard, hearing{now, now.Sub(made)})
}

// since is what has come since a moment.
func (v *victim) since(t time.Time) []hearing {
	v.mu.Lock()
	defer v.mu.Unlock()
	i, _ := slices.BinarySearchFunc(v.heard, t, func(h hearing, t time.Time) int { return h.at.Compare(t) })
	return slices.Clone(v.heard[i:])
}

// gap is the longest time without an update between two moments.
func gap(heard []hearing, from, to time.Time) (longest time.Duration) {
	for _, h := range heard {
		longest, from = max(longest, h.at.Sub(from)), h.at
	}
	return max(longest, to.Sub(from))
}

// p99 is the latency that one of a hundred updates exceeds.
func p99(heard []hearing) time.Duration {
	if len(heard) == 0 {
		return 0
	}
	late := make([]time.Duration, 0, len(heard))
	for _, h := range heard {
		late = append(late, h.late)
	}
	slices.Sort(late)
	return late[(len(late)*99)/100]
}

// trouble is what must not have happened to it.
func (v *victim) trouble() (ends []error, wrong []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.ends), slices.Clone(v.wrong)
}
