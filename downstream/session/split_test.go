package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// TestSplitIsExact: whatever a Delta response says, its parts say the same in the
// same order, none of them exceeds the limit, and no part could have been part of
// the one before it.
func TestSplitIsExact(t *testing.T) {
	sub := fanout.NewHub(fanout.Config{}).Subscribe(cache.Endpoint, fanout.NewSubscriber(func() {}))
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		limit := 512 + random.IntN(4<<10)
		s := &Session{config: &Config{MaxResponse: limit}, kind: Stream{Delta: true}, counter: random.Uint64N(1000)}
		d := &deltaState{exchange: exchange{url: cache.Endpoint, sub: sub}}
		r := &Response{Delta: true, Type: cache.Endpoint, Version: strings.Repeat("v", random.IntN(40)), Identifier: "xds-relay/a [b]"}
		for i := range random.IntN(60) {
			r.Resources = append(r.Resources, resourceOf(fmt.Sprint("resource-", i), random.IntN(2*limit)))
		}
		for i := range random.IntN(60) {
			r.Removed = append(r.Removed, fmt.Sprint("gone-", i, strings.Repeat("x", random.IntN(100))))
		}
		for i := range random.IntN(10) {
			r.Errors = append(r.Errors, resourceError(fmt.Sprint("failed-", i), &statuspb.Status{Code: 5, Message: strings.Repeat("m", random.IntN(50))}))
		}
		whole := *r
		sp := &candidate{state: d, plan: plan{position: cache.Seq(random.Uint64N(1 << 40)), answer: random.IntN(2) == 0}}
		room := d.room(limit, len(r.Version), len(r.Identifier), sp.position)
		r.Resources = slices.DeleteFunc(slices.Clone(r.Resources), func(res *cache.Resource) bool {
			tooLarge := r.sizeOf(res) > room
			if tooLarge {
				put(&sp.leftOut, res.Name, leftOut{res, r.sizeOf(res)})
			}
			return tooLarge
		})
		r.nameTooLarge(&sp.plan, limit)
		s.chunks, s.chunked = s.fit(r, sp), sp

		var said discovery.DeltaDiscoveryResponse
		left, before := len(s.chunks), 0
		for len(s.chunks) > 0 {
			part := s.chunk(time.Time{})
			size := len(wire(part))
			if size > limit {
				t.Fatalf("seed %d: a part of %d bytes, the limit is %d", seed, size, limit)
			}
			left--
			if !strings.HasSuffix(part.Nonce, fmt.Sprint("-", left)) {
				t.Fatalf("seed %d: nonce %s, and %d parts are left", seed, part.Nonce, left)
			}
			first := part.firstSize()
			if before > 0 && before+first <= limit-nonceSlack {
				t.Fatalf("seed %d: a part of %d bytes had room for %d more, the limit is %d", seed, before, first, limit)
			}
			before = size
			var m discovery.DeltaDiscoveryResponse
			if err := proto.Unmarshal(wire(part), &m); err != nil {
				t.Fatal(err)
			}
			said.Resources = append(said.Resources, m.Resources...)
			said.RemovedResources = append(said.RemovedResources, m.RemovedResources...)
			said.ResourceErrors = append(said.ResourceErrors, m.ResourceErrors...)
		}
		left = len(said.Resources)
		for _, res := range whole.Resources {
			switch {
			case len(said.Resources) > 0 && said.Resources[0].Name == res.Name:
				said.Resources = said.Resources[1:]
			case !strings.Contains(fmt.Sprint(said.ResourceErrors), res.Name+`"`):
				t.Fatalf("seed %d: %s is neither sent nor named", seed, res.Name)
			}
		}
		if fmt.Sprint(said.RemovedResources) != fmt.Sprint(whole.Removed) || left+len(said.ResourceErrors) != len(whole.Resources)+len(whole.Errors) {
			t.Fatalf("seed %d: the parts say %v, want %v", seed, &said, whole)
		}
	}
}

// wire is a response in one piece.
func wire(r *Response) []byte {
	b := r.AppendRest(r.Head())
	limited := func(message []byte, ttl time.Duration) {
		head, tail := Limited(r.Delta, len(message), ttl)
		b = slices.Concat(b, head, message, tail)
	}
	for _, res := range r.Resources {
		switch ttl, ok := r.TTL(res); {
		case ok:
			limited(res.Content(), ttl)
		case r.Delta:
			b = append(b, res.Element()...)
		default:
			b = append(b, res.Body()...)
		}
	}
	for _, res := range r.Heartbeats {
		ttl, _ := r.TTL(res)
		limited(res.Heading(), ttl)
	}
	return b
}

// nonceSlack is by how much a nonce may be shorter than was reckoned with.
const nonceSlack = 16

// firstSize is the size of the first thing that a part says.
func (r *Response) firstSize() int {
	switch {
	case len(r.Resources) > 0:
		return r.sizeOf(r.Resources[0])
	case len(r.Removed) > 0:
		return sizeOf(deltaRemoved, len(r.Removed[0]))
	case len(r.Errors) > 0:
		return sizeOf(deltaErrors, proto.Size(r.Errors[0]))
	}
	return 0
}

func resourceOf(name string, size int) *cache.Resource {
	return cache.NewResource(cache.Endpoint, &discovery.Resource{
		Name: name, Resource: &anypb.Any{TypeUrl: string(cache.Endpoint), Value: make([]byte, size)},
	}, cache.Fingerprint{})
}

// TestTheLastPartAccepts: a response in parts is one push, and is accepted with its last
// part. A client that has accepted the first one, and rejects the second, has rejected what
// has changed since the push before it (NACK-4, DOWN-DELTA-18).
func TestTheLastPartAccepts(t *testing.T) {
	s := newTold(t, Config{MaxResponse: 600}, cache.Cluster)
	s.now = s.now.Add(time.Minute) // the first answer needs no ACK any more
	x := s.find(cache.Cluster).base()
	s.change(cache.Cluster, "a/300", "b/300", "c/300")
	first, second, third := s.read(), s.read(), s.read()
	if first == nil || second == nil || third == nil {
		t.Fatal("want three parts")
	}
	before := x.ackedTo
	s.accept(first)
	if x.ackedTo != before {
		t.Errorf("the first part's ACK accepts what changed up to %d", x.ackedTo)
	}
	note, end := s.DeltaRequest(&discovery.DeltaDiscoveryRequest{
		TypeUrl: string(cache.Cluster), ResponseNonce: second.Nonce, ErrorDetail: &statuspb.Status{Message: "no"},
	}, s.now)
	if end != nil || note.Rejected == nil {
		t.Fatal(note, end)
	}
	if r := note.Rejected; r.From != before || r.To <= r.From {
		t.Errorf("rejected are changes after %d up to %d, want all since %d", r.From, r.To, before)
	}
	if s := x.sync(); s != nackedSync {
		t.Errorf("the client is %s, want %s", s, nackedSync)
	}
	s.accept(third)
	if x.ackedTo <= before {
		t.Error("the last part's ACK accepts nothing")
	}
}
