package downstream

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
)

// TestCRCsJoin: the CRC of two sequences is made of the CRCs of each.
func TestCRCsJoin(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		b := make([]byte, random.IntN(1<<random.IntN(17)+1))
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		at := random.IntN(len(b) + 1)
		first, second := crc32.ChecksumIEEE(b[:at]), crc32.ChecksumIEEE(b[at:])
		if got, want := crcJoin(first, second, crcShift(len(b)-at)), crc32.ChecksumIEEE(b); got != want {
			t.Fatalf("%d and %d bytes: %#x, want %#x", at, len(b)-at, got, want)
		}
	}
	// Lengths for which no test has the bytes: they add up.
	const long = 1<<40 + 12345
	if got, want := crcShift(long), crcProduct(crcShift(long-1<<39), crcShift(1<<39)); got != want {
		t.Errorf("%#x, want %#x", got, want)
	}
}

// TestMembersAreWhole: a member is one gzip file and nothing more, whatever its parts are.
func TestMembersAreWhole(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		m := newMember()
		var want []byte
		for range 1 + random.IntN(6) {
			part := text(random, random.IntN(1<<random.IntN(18)))
			want = append(want, part...)
			if random.IntN(2) == 0 || !m.put(deflate(mem.BufferSlice{mem.SliceBuffer(part)})) {
				m.store(mem.SliceBuffer(part))
			}
		}
		if bufs := m.end(); m.blocks == 0 {
			if bufs != nil {
				t.Fatal("a member that deflates nothing")
			}
		} else if got := inflate(t, bufs.Materialize()); !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, want %d", len(got), len(want))
		}
	}
}

// inflate reads one member, after which nothing may come.
func inflate(t testing.TB, b []byte) []byte {
	t.Helper()
	in := bytes.NewReader(b)
	z, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	z.Multistream(false)
	got, err := io.ReadAll(z)
	if err != nil || in.Len() > 0 {
		t.Fatalf("%v, and %d bytes after the end", err, in.Len())
	}
	return got
}

// text is what deflates as configuration does.
func text(random *rand.Rand, n int) []byte {
	b := make([]byte, 0, n+32)
	for len(b) < n {
		b = fmt.Appendf(b, "address: 10.0.%d.%d, port: 80%d; ", random.IntN(256), random.IntN(256), random.IntN(100))
	}
	return b[:n]
}

// shop is a server whose group has a control plane in the test.
type shop struct {
	t       *testing.T
	hub     *fanout.Hub
	server  *Server
	address string
	random  *rand.Rand
	version int
}

func openShop(t *testing.T, c ServerConfig) *shop {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{t: t, hub: fanout.NewHub(fanout.Config{Linger: time.Second}), address: l.Addr().String(), random: rand.New(rand.NewPCG(1, 3))}
	c.Config.AckTimeout, c.Config.MaxName, c.Config.MaxNames = time.Minute, 100, 1000
	c.Credentials, c.Groups = insecure.NewCredentials(), oneGroup{s.hub}
	s.server, _ = serving(t, c, l)
	return s
}

// change is what upstream sends of some names: resources of a size, or their removal.
type change struct {
	size  int // 0: they are removed
	names []string
}

func (s *shop) change(lane fanout.Lane, changes ...change) {
	s.version++
	u := &cache.Update{Synced: true, Source: cache.NewSource(epoch, nil)}
	for _, c := range changes {
		if c.size == 0 {
			u.Removed = append(u.Removed, c.names...)
			continue
		}
		for _, name := range c.names {
			body := &anypb.Any{TypeUrl: string(lane.Type), Value: append(fmt.Appendf(nil, "%d %s", s.version, name), text(s.random, c.size)...)}
			in := &discovery.Resource{Name: name, Version: fmt.Sprint(s.version), Resource: body}
			u.Set = append(u.Set, cache.Received{Resource: cache.NewResource(lane.Type, in, cache.Fingerprint{})})
		}
	}
	s.hub.Apply(lane, u)
}

// subscribed waits until n streams have a type.
func (s *shop) subscribed(typ cache.TypeURL, n int) {
	s.t.Helper()
	await(s.t, func() bool {
		have := 0
		for _, c := range s.server.Clients() {
			if slices.ContainsFunc(c.Types, func(of session.ClientType) bool { return of.Type == typ }) {
				have++
			}
		}
		return have == n
	})
}

// raw is gRPC's codec, which shows the responses as they are after inflation.
type raw struct{ encoding.CodecV2 }

func (c raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// reader is a client that reads what it is sent as bytes.
type reader struct {
	t      testing.TB
	delta  bool
	stream grpc.ClientStream
	sizes  sizes
}

// sizes follows what the messages to a client take on the wire, and how they are compressed.
type sizes struct {
	stats.Handler
	mu       sync.Mutex
	by       string
	sent     int // on the wire
	inflated int
	packed   int // messages that were compressed
}

func (s *sizes) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (s *sizes) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (s *sizes) HandleConn(context.Context, stats.ConnStats)                       {}
func (s *sizes) HandleRPC(_ context.Context, of stats.RPCStats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch of := of.(type) {
	case *stats.InHeader:
		s.by = of.Compression
	case *stats.InPayload:
		s.sent += of.CompressedLength
		s.inflated += of.Length
		if of.CompressedLength != of.Length {
			s.packed++
		}
	}
}

func init() { encoding.RegisterCompressor(other{}) }

// other is a compression that the relay does not know; a client that accepts nothing else accepts no gzip.
type other struct{ encoding.Compressor }

func (other) Name() string { return "other" }

// read opens a stream of a client; options tell what it accepts.
func (s *shop) read(delta bool, options ...grpc.CallOption) *reader {
	s.t.Helper()
	r := &reader{t: s.t, delta: delta}
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStatsHandler(&r.sizes))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	method := "StreamAggregatedResources"
	if delta {
		method = "DeltaAggregatedResources"
	}
	options = append(options, grpc.ForceCodecV2(raw{encoding.GetCodecV2("proto")}), grpc.MaxCallRecvMsgSize(64<<20))
	desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	if r.stream, err = conn.NewStream(s.t.Context(), desc, "/envoy.service.discovery.v3.AggregatedDiscoveryService/"+method, options...); err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (r *reader) send(m proto.Message) {
	r.t.Helper()
	if err := r.stream.SendMsg(m); err != nil {
		r.t.Fatal(err)
	}
}

// ask subscribes to names, or as a wildcard.
func (r *reader) ask(typ cache.TypeURL, names ...string) {
	r.t.Helper()
	if r.delta {
		r.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(typ), ResourceNamesSubscribe: names})
	} else {
		r.send(&discovery.DiscoveryRequest{TypeUrl: string(typ), ResourceNames: names})
	}
}

// next receives one response and acknowledges it. It returns the response without its nonce, which tells some of when
// the client spoke.
func (r *reader) next() []byte {
	r.t.Helper()
	var b []byte
	if err := r.stream.RecvMsg(&b); err != nil {
		r.t.Fatal(err)
	}
	if r.delta {
		var m discovery.DeltaDiscoveryResponse
		if err := proto.Unmarshal(b, &m); err != nil {
			r.t.Fatal(err)
		}
		r.send(&discovery.DeltaDiscoveryRequest{TypeUrl: m.GetTypeUrl(), ResponseNonce: m.GetNonce()})
		return cut(b, m.GetNonce())
	}
	var m discovery.DiscoveryResponse
	if err := proto.Unmarshal(b, &m); err != nil {
		r.t.Fatal(err)
	}
	r.send(&discovery.DiscoveryRequest{TypeUrl: m.GetTypeUrl(), ResponseNonce: m.GetNonce(), VersionInfo: m.GetVersionInfo(), ResourceNames: namedBy(&m)})
	return cut(b, m.GetNonce())
}

// cut takes a string and its length out of a message.
func cut(b []byte, s string) []byte {
	return bytes.Replace(b, append([]byte{byte(len(s))}, s...), nil, 1)
}

// namedBy is what the clients of these tests name of a type.
func namedBy(m *discovery.DiscoveryResponse) []string {
	if m.GetTypeUrl() == string(cache.Endpoint) {
		return named
	}
	return nil
}

var (
	clusters  = fanout.Lane{Type: cache.Cluster, Wildcard: true}
	endpoints = fanout.Lane{Type: cache.Endpoint}
	named     = []string{"e0", "e1", "e2"}
	plainly   = experimental.AcceptCompressors("other")
)

// TestGzipIsTheSame: after inflation, each response is byte for byte what a client on the same relay gets that accepts
// no gzip, and what a relay without gzip sends. Each is one member.
func TestGzipIsTheSame(t *testing.T) {
	for _, delta := range []bool{true, false} {
		t.Run(map[bool]string{true: "delta", false: "sotw"}[delta], func(t *testing.T) {
			on, off := openShop(t, ServerConfig{Offers: Offers{Gzip: true, AcceptGzip: true}}), openShop(t, ServerConfig{})
			packed, plain, without := on.read(delta), on.read(delta, plainly), off.read(delta)
			compressing := on.read(delta, grpc.UseCompressor("gzip"))
			deaf := on.read(delta, grpc.UseCompressor("gzip"), plainly) // it compresses, and accepts none
			readers := []*reader{packed, plain, without, compressing, deaf}
			responses := 0
			same := func(what string) {
				t.Helper()
				responses++
				want := without.next()
				for _, r := range []*reader{packed, plain, compressing, deaf} {
					if got := r.next(); !bytes.Equal(got, want) {
						t.Errorf("%s: %d bytes, want %d", what, len(got), len(want))
					}
				}
			}
			ask := func(typ cache.TypeURL, names ...string) {
				for _, r := range readers {
					r.ask(typ, names...)
				}
				on.subscribed(typ, 4)
				off.subscribed(typ, 1)
			}
			changes := func(lane fanout.Lane, c ...change) { on.change(lane, c...); off.change(lane, c...) }
			ask(cache.Cluster)
			changes(clusters, change{3000, []string{"a", "b", "c"}})
			same("a wildcard set")
			changes(clusters, change{100_000, []string{"b", "d"}})
			same("changes")
			changes(clusters, change{10, []string{"a"}})
			same("a small change")
			changes(clusters, change{0, []string{"a", "c"}})
			same("removals")
			changes(clusters, change{2000, []string{"c"}}, change{0, []string{"d"}})
			same("both")
			ask(cache.Endpoint, named...)
			changes(endpoints, change{3000, named[:2]}, change{100, named[2:]})
			same("names")
			changes(endpoints, change{4000, named[1:2]})
			same("a change of one")
			for r, by := range map[*reader]string{packed: "gzip", compressing: "gzip", plain: "", deaf: "", without: ""} {
				if r.sizes.by != by || (r.sizes.packed > 0) != (by != "") || by != "" && r.sizes.sent*2 > r.sizes.inflated {
					t.Errorf("a client is sent %d of %d messages by %q, want %q: %d bytes of %d", r.sizes.packed, responses, r.sizes.by, by, r.sizes.sent, r.sizes.inflated)
				}
			}
		})
	}
}

// TestGzipOfParts: the parts of a response that is split are the same, too, and so is what a unary call answers, which is
// never compressed.
func TestGzipOfParts(t *testing.T) {
	s := openShop(t, ServerConfig{Offers: Offers{Gzip: true}, Config: session.Config{MaxResponse: 20_000}})
	packed, plain := s.read(true), s.read(true, plainly)
	packed.ask(cache.Cluster)
	plain.ask(cache.Cluster)
	s.subscribed(cache.Cluster, 2)
	s.change(clusters, change{6000, []string{"a", "b", "c", "d", "e", "f", "g"}})
	for i := range 3 {
		if got, want := packed.next(), plain.next(); !bytes.Equal(got, want) {
			t.Errorf("part %d: %d bytes, want %d", i, len(got), len(want))
		}
	}
	if packed.sizes.packed != 3 || plain.sizes.packed != 0 {
		t.Errorf("%d and %d parts are compressed", packed.sizes.packed, plain.sizes.packed)
	}
	var sizes sizes
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStatsHandler(&sizes))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fetched, err := cluster.NewClusterDiscoveryServiceClient(conn).FetchClusters(t.Context(), &discovery.DiscoveryRequest{TypeUrl: string(cache.Cluster)})
	if err != nil || len(fetched.GetResources()) != 7 || sizes.by != "" {
		t.Errorf("%d clusters, compressed by %q: %v", len(fetched.GetResources()), sizes.by, err)
	}
}

// TestGzipOnceForAll: what a hundred clients are sent is deflated once.
func TestGzipOnceForAll(t *testing.T) {
	const clients = 100
	s := openShop(t, ServerConfig{Offers: Offers{Gzip: true}})
	var readers []*reader
	for range clients {
		r := s.read(true)
		r.ask(cache.Cluster)
		r.ask(cache.Endpoint, named...)
		readers = append(readers, r)
	}
	s.subscribed(cache.Cluster, clients)
	s.subscribed(cache.Endpoint, clients)
	for _, c := range []struct {
		lane   fanout.Lane
		change change
		blocks int64
	}{
		{clusters, change{1000, []string{"a", "b", "c"}}, 1}, // as a whole
		{clusters, change{100, []string{"a", "b", "c", "d", "e", "f"}}, 1},
		{clusters, change{100, []string{"c"}}, 0},
		{clusters, change{1000, []string{"c"}}, 1},
		{endpoints, change{1000, named}, 3}, // each by itself
		{endpoints, change{1000, named[:1]}, 1},
		{endpoints, change{100, named[:1]}, 0},
	} {
		before := s.server.deflated.made.Load()
		s.change(c.lane, c.change)
		for _, r := range readers {
			r.next()
		}
		if made := s.server.deflated.made.Load() - before; made != c.blocks {
			t.Errorf("%v of %d bytes: deflated %d times for %d clients, want %d", c.change.names, c.change.size, made, clients, c.blocks)
		}
	}
}

// TestGzipRemembersWithinABound: the deflated forms are few, those in use stay, and none is of a resource that nobody
// may keep (VALID-5).
func TestGzipRemembersWithinABound(t *testing.T) {
	const size = 1 << 20
	d, used := new(deflated), span{new(byte), size}
	first := d.find(used)
	for range 200 {
		d.find(span{new(byte), size})
		if d.find(used) != first {
			t.Fatal("what is in use is forgotten")
		}
	}
	if kept := 2 * size * (len(d.young) + len(d.old)); kept > keptDeflated+2*size {
		t.Errorf("%d bytes are kept", kept)
	}
	for _, keep := range []bool{true, false} {
		in := &discovery.Resource{Name: "a", Resource: &anypb.Any{TypeUrl: string(cache.Cluster), Value: make([]byte, 1000)}}
		if !keep {
			in.CacheControl = &discovery.Resource_CacheControl{DoNotCache: true}
		}
		d, r := new(deflated), &session.Response{Delta: true, Resources: []*cache.Resource{cache.NewResource(cache.Cluster, in, cache.Fingerprint{})}}
		if packed := d.pack(r, encode(r)) != nil; packed != keep || len(d.young) > 0 != keep {
			t.Errorf("it may be kept: %v; it is deflated: %v, and %d are kept", keep, packed, len(d.young))
		}
	}
}

// BenchmarkGzip is what a change costs for each client that is sent it: encoding and sending at the relay, and with
// gzip what deflating it once costs. The client is not measured.
func BenchmarkGzip(b *testing.B) {
	const clients = 100
	random := rand.New(rand.NewPCG(1, 4))
	for _, resources := range []int{1, 500} {
		for _, packs := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d resources, gzip %v", resources, packs), func(b *testing.B) {
				lane := clusters
				hub := fanout.NewHub(fanout.Config{Linger: time.Second})
				c := &session.Config{AckTimeout: time.Minute, MaxName: 100, MaxNames: 100}
				var sessions []*session.Session
				for range clients {
					s := session.New(c, session.Stream{Delta: true}, session.Peer{}, oneGroup{hub}, session.NewClusterDeliveries(), func() {})
					if _, end := s.DeltaRequest(&discovery.DeltaDiscoveryRequest{TypeUrl: string(lane.Type)}, epoch); end != nil {
						b.Fatal(end)
					}
					sessions = append(sessions, s)
				}
				var d deflated
				var ack session.Bare
				shop := shop{hub: hub, random: random}
				var names []string
				for i := range resources {
					names = append(names, fmt.Sprint("cluster-", i))
				}
				sent := 0
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					shop.change(lane, change{2000, names})
					b.StartTimer()
					for _, s := range sessions {
						r, _ := s.Next(epoch)
						f := encode(r)
						bufs := f.bufs
						if packs {
							bufs = d.pack(r, f)
						}
						sent += bufs.Len()
						ack.TypeURL, ack.Nonce = append(ack.TypeURL[:0], r.Type...), append(ack.Nonce[:0], r.Nonce...)
						s.Ack(&ack, epoch)
					}
				}
				n := float64(b.N * clients)
				b.ReportMetric(float64(sent)/n, "bytes/delivery")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/n, "ns/delivery")
			})
		}
	}
}

// TestGzipOfTTLs: parts of the same resource are told apart: with its body, without it, and with a TTL of each client's own.
func TestGzipOfTTLs(t *testing.T) {
	var d deflated
	long := strings.Repeat("a long name, ", 100)
	whole := cache.NewResource(cache.Endpoint, &discovery.Resource{
		Name: long, Resource: &anypb.Any{TypeUrl: string(cache.Endpoint), Value: make([]byte, 10_000)},
	}, cache.Fingerprint{})
	for i := range 3 {
		for _, delta := range []bool{true, false} {
			now := epoch.Add(time.Duration(i) * time.Second)
			ends := map[*cache.Resource]time.Time{whole: epoch.Add(time.Minute)}
			for _, r := range []*session.Response{
				{Delta: delta, Resources: []*cache.Resource{whole}, Ends: ends, At: now},
				{Delta: delta, Heartbeats: []*cache.Resource{whole}, Ends: ends, At: now},
				{Delta: delta, Resources: []*cache.Resource{whole}, Removed: []string{long}},
			} {
				if got := inflate(t, d.pack(r, encode(r)).Materialize()); !bytes.Equal(got, Marshal(r)) {
					t.Errorf("%d bytes, want %d", len(got), len(Marshal(r)))
				}
			}
		}
	}
	if made := d.made.Load(); made != 4 { // as an element, a body, a message and a message without a body
		t.Errorf("deflated %d times", made)
	}
}
