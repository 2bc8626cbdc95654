//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// client has a connection of its own, and a stream on it that it opens again
// whenever it ends. It asks for all clusters and for a few endpoint assignments by
// name, remembers names and versions, and judges what it hears by the history.
type client struct {
	fleet *fleet
	id    int
	sotw  bool
	names []string // of endpoint assignments
	conn  *grpc.ClientConn
	// pinned: it connects to the relay that it was told, not to any of the fleet's replicas.
	pinned atomic.Bool

	// Habits; guarded by mu.
	mu      sync.Mutex
	nacks   bool          // it NACKs everything but the first response of a type
	trickle chan struct{} // it reads one byte a second until this is closed; nil: it does not
	stalled chan struct{} // it asks its stream for nothing until this is closed; nil: it does
	owes    bool          // it reads, and ACKs nothing yet
	debts   []func()      // its ACKs, then

	// What it knows; guarded by mu; survives streams.
	held  map[key]held
	floor map[key]int // the newest step it has seen of each name, from relay number epoch on
	best  map[key]int // the same, from any relay
	// accepted is a SotW client's last version of each type, which its next stream
	// begins with, as Envoy's and gRPC's do: it says that the client holds something.
	accepted map[cache.TypeURL]string
	epoch    int64
	// sends counts how often each version came, for clients that nack.
	sends map[string]int

	// The newest connection; guarded by mu.
	sock *socket

	// Of the open stream; guarded by mu.
	open      bool      // something has come
	connected int       // streams that something came on
	left      time.Time // when the last one ended
}

type held struct {
	version string
	step    int
}

// The methods that clients call.
const (
	deltaMethod = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	sotwMethod  = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
)

func newClient(f *fleet, id int, target string, sotw bool, names []string) (*client, error) {
	c := &client{fleet: f, id: id, sotw: sotw, names: names, held: make(map[key]held), floor: make(map[key]int), best: make(map[key]int), accepted: make(map[cache.TypeURL]string)}
	var err error
	c.conn, err = grpc.NewClient(target,
		grpc.WithTransportCredentials(f.credentials),
		grpc.WithContextDialer(c.dial),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newCodec()), grpc.MaxCallRecvMsgSize(64<<20), grpc.WaitForReady(true)),
		grpc.WithReadBufferSize(8<<10), grpc.WithWriteBufferSize(4<<10),
		// Fixed windows, so that a client that does not read is felt soon.
		grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10),
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		}),
	)
	return c, err
}

// dial connects to where the fleet belongs, and keeps hold of the socket.
func (c *client) dial(ctx context.Context, target string) (net.Conn, error) {
	if to := c.fleet.moved.Load(); to != nil {
		target = *to
	}
	if all := c.fleet.replicas.Load(); all != nil && !c.pinned.Load() {
		target = (*all)[rand.IntN(len(*all))]
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, peer.Family(target), target)
	if err != nil {
		return nil, err
	}
	s := &socket{Conn: conn, closed: make(chan struct{})}
	c.mu.Lock()
	c.sock = s
	c.mu.Unlock()
	return s, nil
}

// cut breaks the connection, as a network does.
func (c *client) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sock != nil {
		c.sock.Close()
	}
}

// stall stops reading until the returned function is called: the whole process, or
// only the program that owns the stream, whose transport goes on to answer pings.
func (c *client) stall(process bool) (s *socket, resume func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gate := make(chan struct{})
	c.stalled, s = gate, c.sock
	if process {
		s.stalled.Store(&gate)
	}
	return s, sync.OnceFunc(func() {
		c.mu.Lock()
		c.stalled = nil
		s.stalled.Store(nil)
		c.mu.Unlock()
		close(gate)
	})
}

// owe leaves what comes without an ACK; again false sends all that are owed.
func (c *client) owe(on bool) {
	c.mu.Lock()
	c.owes = on
	debts := c.debts
	c.debts = nil
	c.mu.Unlock()
	for _, ack := range debts {
		ack()
	}
}

// run keeps a stream open until ctx ends.
func (c *client) run(ctx context.Context) {
	for first := true; ; first = false {
		// Clients that lost the same relay do not come back in the same instant.
		if !first && !pause(ctx, time.Duration(20+rand.IntN(80))*time.Millisecond) {
			return
		}
		err := c.stream(ctx)
		if ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		open := c.open
		c.open = false
		if open {
			c.left = time.Now()
		}
		c.mu.Unlock()
		c.fleet.ended(c, open, err)
	}
}

// stream is one stream, from beginning to end.
func (c *client) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	method := deltaMethod
	if c.sotw {
		method = sotwMethod
	}
	s, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	conv := &conversation{client: c, stream: s, acked: make(map[key]string), heard: make(map[cache.TypeURL]bool)}
	if err := conv.open(); err != nil {
		return closingError(s, err)
	}
	for {
		if !c.mayRead(ctx) {
			return ctx.Err()
		}
		n, err := conv.exchange()
		if err != nil {
			return closingError(s, err)
		}
		if !c.digest(ctx, n) {
			return ctx.Err()
		}
	}
}

// closingError is the status of a stream that could not be written to.
func closingError(s grpc.ClientStream, err error) error {
	if !errors.Is(err, io.EOF) {
		return err
	}
	for {
		if err := s.RecvMsg(&deltaEnvelope{}); err != nil {
			return err
		}
	}
}

// mayRead waits while the client is stalled.
func (c *client) mayRead(ctx context.Context) bool {
	c.mu.Lock()
	gate := c.stalled
	c.mu.Unlock()
	if gate == nil {
		return true
	}
	select {
	case <-gate:
		return true
	case <-ctx.Done():
		return false
	}
}

// digest waits as long as so many bytes take a client that reads one a second.
func (c *client) digest(ctx context.Context, bytes int) bool {
	c.mu.Lock()
	slow := c.trickle
	c.mu.Unlock()
	if slow == nil {
		return true
	}
	t := time.NewTimer(time.Duration(bytes) * time.Second)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-slow:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *client) setTrickle(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if on {
		c.trickle = make(chan struct{})
	} else if c.trickle != nil {
		close(c.trickle)
		c.trickle = nil
	}
}

// conversation is what a stream is about. Only the client's goroutine uses it.
type conversation struct {
	client *client
	stream grpc.ClientStream
	acked  map[key]string // what came on this stream, and was ACKed
	heard  map[cache.TypeURL]bool
	sendMu sync.Mutex // held to send, which whoever pays the client's debts does, too
	trail  []string   // the last responses, to be told when something is wrong
}

// open says what the client wants, and what it has.
func (v *conversation) open() error {
	c := v.client
	node := &core.Node{Id: fmt.Sprintf("client-%d", c.id), UserAgentName: "chaos", ClientFeatures: []string{"xds.config.resource-in-sotw"}}
	c.mu.Lock()
	if epoch := c.fleet.epoch.Load(); epoch != c.epoch {
		c.epoch, c.floor = epoch, make(map[key]int)
	}
	versions := map[cache.TypeURL]map[string]string{cache.Cluster: {}, cache.Endpoint: {}}
	for k, h := range c.held {
		versions[k.typ][k.name] = h.version
	}
	accepted := maps.Clone(c.accepted)
	c.mu.Unlock()
	for _, t := range []cache.TypeURL{cache.Cluster, cache.Endpoint} {
		var names []string // none: all clusters
		if t == cache.Endpoint {
			names = c.names
		}
		var err error
		if c.sotw {
			err = v.stream.SendMsg(&discovery.DiscoveryRequest{Node: node, TypeUrl: string(t), VersionInfo: accepted[t], ResourceNames: names})
		} else {
			err = v.stream.SendMsg(&discovery.DeltaDiscoveryRequest{
				Node: node, TypeUrl: string(t), ResourceNamesSubscribe: names, InitialResourceVersions: versions[t],
			})
		}
		if err != nil {
			return err
		}
		node = nil
	}
	return nil
}

// exchange takes a response in and answers it. It returns how many bytes came.
func (v *conversation) exchange() (int, error) {
	if v.client.sotw {
		var e sotwEnvelope
		if err := v.stream.RecvMsg(&e); err != nil {
			return 0, err
		}
		n, nack := v.take(&e.envelope, time.Now())
		c := v.client
		c.mu.Lock()
		if nack == nil {
			c.accepted[e.typ] = e.version
		}
		version := c.accepted[e.typ]
		c.mu.Unlock()
		ack := &discovery.DiscoveryRequest{TypeUrl: string(e.typ), VersionInfo: version, ResponseNonce: e.nonce, ErrorDetail: nack}
		if e.typ == cache.Endpoint {
			ack.ResourceNames = c.names
		}
		return n, v.ack(ack)
	}
	var e deltaEnvelope
	if err := v.stream.RecvMsg(&e); err != nil {
		return 0, err
	}
	n, nack := v.take(&e.envelope, time.Now())
	return n, v.ack(&discovery.DeltaDiscoveryRequest{TypeUrl: string(e.typ), ResponseNonce: e.nonce, ErrorDetail: nack})
}

// ack sends an ACK or NACK, now or when the client pays its debts.
func (v *conversation) ack(request any) error {
	send := func() error {
		v.sendMu.Lock()
		defer v.sendMu.Unlock()
		return v.stream.SendMsg(request)
	}
	c := v.client
	c.mu.Lock()
	if c.owes {
		c.debts = append(c.debts, func() { _ = send() }) // a stream that is gone says so to its reader
		c.mu.Unlock()
		return nil
	}
	c.mu.Unlock()
	return send()
}

// take judges a response and takes it in. It returns its size, and why it is
// rejected, if it is.
func (v *conversation) take(e *envelope, now time.Time) (n int, nack *statuspb.Status) {
	c, f := v.client, v.client.fleet
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open {
		c.open = true
		c.connected++
		if !c.left.IsZero() {
			f.back(now.Sub(c.left))
		}
	}
	first := !v.heard[e.typ]
	v.heard[e.typ] = true
	if c.nacks && !first {
		nack = &statuspb.Status{Code: int32(codes.InvalidArgument), Message: "this client rejects everything"}
	}
	v.note(e, now)
	came := make(map[string]bool, len(e.set))
	for _, i := range e.set {
		k := key{e.typ, i.name}
		n += i.bytes
		came[i.name] = true
		if c.sends != nil {
			c.sends[i.version]++
		}
		rev, at, known := f.history.lookup(i.version)
		if !known || rev.key != k {
			f.fault(&f.inventions, c, "%v came at a version that it never had: %s", k, i.version)
			continue
		}
		old, had := c.held[k]
		if best, ok := c.best[k]; ok && rev.step <= best && !c.sotw {
			f.resent.Add(int64(i.bytes))
		}
		if had && old.version == i.version {
			// A full-state SotW set repeats what has not changed.
			if v.acked[k] == i.version && !(c.sotw && e.typ == cache.Cluster) {
				f.fault(&f.repeats, c, "%v came again on one stream, unchanged since step %d; the last responses:%s", k, rev.step, strings.Join(v.trail, ""))
			}
		}
		if rev.step < c.floor[k] {
			f.fault(&f.regressions, c, "%v came as of step %d after step %d", k, rev.step, c.floor[k])
		}
		if nack != nil {
			continue
		}
		if c.held[k] = (held{i.version, rev.step}); !had || old.version != i.version {
			f.delivered(c, now.Sub(at))
		}
		c.floor[k], c.best[k] = max(c.floor[k], rev.step), max(c.best[k], rev.step)
		v.acked[k] = i.version
	}
	gone := append(e.removed, e.missing...)
	if c.sotw && e.typ == cache.Cluster {
		for k := range c.held {
			if k.typ == e.typ && !came[k.name] {
				gone = append(gone, k.name)
			}
		}
	}
	for _, name := range gone {
		k := key{e.typ, name}
		old, had := c.held[k]
		if !had {
			// It may be told what it knows (MISS-8), but not what is false.
			if f.history.everThere(k) {
				f.fault(&f.spurious, c, "%v was said to be gone, and has always existed", k)
			}
			continue
		}
		f.removals.Add(1)
		if !f.history.removedSince(k, old.step) {
			f.fault(&f.spurious, c, "%v was removed, and has existed since step %d", k, old.step)
		}
		if nack == nil {
			delete(c.held, k)
			delete(v.acked, k)
		}
	}
	f.responses.Add(1)
	f.bytes.Add(int64(n))
	return n, nack
}

// note remembers a response for a while.
func (v *conversation) note(e *envelope, now time.Time) {
	const enough = 100 // of what a response has
	text := fmt.Sprintf("\n\t\t%s %s %s", now.Format("15:04:05.000"), e.typ.Short(), e.nonce)
	for _, i := range e.set[:min(len(e.set), enough)] {
		rev, _, _ := v.client.fleet.history.lookup(i.version)
		text += fmt.Sprintf(" +%s@%d", i.name, rev.step)
	}
	gone := append(e.removed, e.missing...)
	for _, name := range gone[:min(len(gone), enough)] {
		text += " -" + name
	}
	if rest := max(0, len(e.set)-enough) + max(0, len(gone)-enough); rest > 0 {
		text += fmt.Sprintf(" and %d more", rest)
	}
	if v.trail = append(v.trail, text); len(v.trail) > 8 {
		v.trail = v.trail[1:]
	}
}

// streams reports whether the client has a stream.
func (c *client) streams() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// behind says what the client lacks of a target, or "".
func (c *client) behind(target map[key]state) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open {
		return fmt.Sprintf("client %d has no stream", c.id)
	}
	for k, s := range target {
		if k.typ != cache.Cluster {
			continue
		}
		if why := c.lacks(k, s); why != "" {
			return why
		}
	}
	for _, name := range c.names {
		k := key{cache.Endpoint, name}
		if why := c.lacks(k, target[k]); why != "" {
			return why
		}
	}
	return ""
}

// lacks judges one name against what it should have come to; what has happened
// since then is fine, too.
func (c *client) lacks(k key, s state) string {
	h, ok := c.held[k]
	switch {
	case ok && h.step >= s.step && !(s.gone && h.step == s.step):
	case ok && s.gone:
		return fmt.Sprintf("client %d still has %v of step %d, which step %d removed", c.id, k, h.step, s.step)
	case ok:
		return fmt.Sprintf("client %d has %v of step %d, not of step %d", c.id, k, h.step, s.step)
	case !s.gone && !c.fleet.history.removedSince(k, s.step):
		return fmt.Sprintf("client %d has no %v of step %d", c.id, k, s.step)
	}
	return ""
}

// reject makes the client NACK what comes, and count it.
func (c *client) reject(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nacks = on
	if c.sends == nil {
		c.sends = make(map[string]int)
	}
}

// sent counts the versions that came since it first did, and how often one did at
// most.
func (c *client) sent() (versions, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.sends {
		most = max(most, n)
	}
	return len(c.sends), most
}
