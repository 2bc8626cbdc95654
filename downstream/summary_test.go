package downstream

import (
	"fmt"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
)

// summed is a Server with streams of sessions that have no connection: what one sums up, not what one sends.
type summed struct {
	*Server
	hub  *fanout.Hub
	last map[*stream]*session.Response
}

func newSummed(tb testing.TB) *summed {
	s := &summed{NewServer(ServerConfig{}), fanout.NewHub(fanout.Config{}), make(map[*stream]*session.Response)}
	tb.Cleanup(func() {
		clear(s.streams)
		s.Close(0)
	})
	return s
}

// Key and Join implement session.Groups.
func (s *summed) Key(session.Peer, *core.Node) (string, *session.End) { return "", nil }
func (s *summed) Join(session.Peer, *core.Node, cache.TypeURL) (session.Membership, *session.End) {
	return session.Membership{Hub: s.hub, Leave: func() {}}, nil
}

// opens adds a stream that subscribes to a name of some types.
func (s *summed) opens(tb testing.TB, name string, at time.Time, types ...cache.TypeURL) *stream {
	config := &session.Config{MaxName: 100, MaxNames: 100, AckTimeout: time.Hour}
	st := &stream{id: uint64(len(s.streams) + 1), kind: session.Stream{Delta: true}}
	st.session = session.New(config, st.kind, session.Peer{}, s, s.clusterDeliveries, func() {})
	for _, t := range types {
		req := &discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "n"}, TypeUrl: string(t), ResourceNamesSubscribe: []string{name}}
		if _, end := st.session.DeltaRequest(req, at); end != nil {
			tb.Fatal(end)
		}
	}
	s.streams[st.id] = st
	return st
}

// change has upstream change a name, and the relay send it to the streams.
func (s *summed) change(tb testing.TB, t cache.TypeURL, name, version string, at time.Time, streams ...*stream) {
	in := &discovery.Resource{Name: name, Resource: &anypb.Any{TypeUrl: string(t), Value: []byte(version)}}
	s.hub.Apply(fanout.Lane{Type: t}, &cache.Update{At: at, Source: cache.NewSource(at, nil), Set: []cache.Received{{Resource: cache.NewResource(t, in, cache.Fingerprint{})}}})
	for _, st := range streams {
		r, end := st.session.Next(at)
		if end != nil {
			tb.Fatal(end)
		}
		if r != nil {
			s.last[st] = r
		}
	}
}

// TestLaggards: a client counts by how long it has not been in step with one of its types, however often it is sent
// something.
func TestLaggards(t *testing.T) {
	s := newSummed(t)
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	s.opens(t, "nothing came", ago(time.Hour), cache.Cluster)
	for name, of := range map[string]struct {
		acks bool
		at   []time.Duration // of changes
	}{
		"in step":        {true, []time.Duration{time.Hour, time.Minute, time.Second}},
		"just sent":      {false, []time.Duration{3 * time.Second}},
		"busy":           {false, []time.Duration{10 * time.Second}},
		"behind":         {false, []time.Duration{2 * time.Minute, time.Second}},
		"since an hour":  {false, []time.Duration{time.Hour, time.Minute, time.Second}},
		"since too long": {false, []time.Duration{10 * time.Minute}},
	} {
		st := s.opens(t, name, ago(2*time.Hour), cache.Cluster, cache.Endpoint)
		for i, d := range of.at {
			s.change(t, cache.Cluster, name, fmt.Sprint(i), ago(d), st)
			if of.acks {
				if _, end := st.session.DeltaRequest(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Cluster), ResponseNonce: s.last[st].Nonce}, ago(d)); end != nil {
					t.Fatal(end)
				}
			}
		}
	}
	if got, want := s.Summary().Lagging, [len(LagSteps)]int{4, 3, 2}; got != want {
		t.Errorf("so many lag by more than %v: %v, want %v", LagSteps, got, want)
	}
}

// BenchmarkSummary is what a scrape costs with 10,000 clients that are in step, or all of which owe an ACK.
func BenchmarkSummary(b *testing.B) {
	for _, owe := range []bool{false, true} {
		b.Run(map[bool]string{false: "in step", true: "all late"}[owe], func(b *testing.B) {
			s := newSummed(b)
			now := time.Now()
			var all []*stream
			for range 10_000 {
				all = append(all, s.opens(b, "name", now, cache.Cluster, cache.Endpoint, cache.Listener, cache.Route))
			}
			if owe {
				for _, t := range []cache.TypeURL{cache.Cluster, cache.Endpoint, cache.Listener, cache.Route} {
					s.change(b, t, "name", "1", now, all...)
					s.change(b, t, "name", "2", now, all...)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				s.Summary()
			}
		})
	}
}
