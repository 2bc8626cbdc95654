//go:build linux

// Package load owns the load: fleets of cheap clients, the schedule of changes, and
// the workloads made of them. It looks at a server only through the system's figures
// about its process and the server's own metrics. Clients and changes are in one
// process, so that there is one clock.
package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xds-relay/xds-relay/bench/internal/h2"
	"github.com/xds-relay/xds-relay/bench/internal/wire"
	"github.com/xds-relay/xds-relay/bench/internal/world"
)

// profile is what a client asks for, in which variant.
type profile struct {
	delta bool
	subs  []*wire.Subscription
	// complete is the number of resources that a client waits for.
	complete int
	// versions, if not nil, is where the client of this profile, which must be the only
	// one, writes down the versions of what it is sent until it is complete.
	versions map[string]string
}

// fleet is clients of one server.
type fleet struct {
	server Target
	rec    *recorder
	// perConn is how many streams share a connection.
	perConn int

	traffic   h2.Traffic // what was on the wire
	responses atomic.Int64
	resources atomic.Int64 // came, changed or not
	bytes     atomic.Int64 // of resources, as they stand in responses
	complete  atomic.Int64 // clients that have all they asked for
	answered  atomic.Int64 // clients that have heard something

	mu       sync.Mutex
	conns    map[*h2.Conn]struct{}
	clients  []*client
	leaving  bool
	firstErr error
	work     sync.WaitGroup
}

func newFleet(server Target, perConn int, rec *recorder) *fleet {
	return &fleet{server: server, rec: rec, perConn: max(perConn, 1), conns: make(map[*h2.Conn]struct{})}
}

// client is one stream.
type client struct {
	fleet   *fleet
	profile *profile
	stream  *h2.Stream
	scanner *wire.Scanner
	at      time.Time // when what is being read came
	begin   time.Time // when it was to connect
	has     int       // resources that have come, until it is complete
	heard   bool
	done    bool

	// A full-state response repeats what was known: the newest step before the one that
	// is being read, and in it.
	seen, newest int
}

// connect connects clients [from, to), each at its time, or as soon after it as can
// be. It returns when all have asked, or one could not.
func (f *fleet) connect(ctx context.Context, of func(i int) *profile, from, to int, at func(i int) time.Time) error {
	const dialers = 64 // at once
	type group struct {
		first    int
		profiles []*profile
	}
	groups := make(chan group)
	var dialing sync.WaitGroup
	for range min(dialers, to-from) {
		dialing.Go(func() {
			for g := range groups {
				f.dial(g.profiles, g.first, at(g.first))
			}
		})
	}
	for i := from; i < to && until(ctx, at(i)) && f.err() == nil; i += f.perConn {
		g := group{first: i}
		for j := i; j < min(i+f.perConn, to); j++ {
			g.profiles = append(g.profiles, of(j))
		}
		groups <- g
	}
	close(groups)
	dialing.Wait()
	if err := f.err(); err != nil {
		return err
	}
	return ctx.Err()
}

// dial opens one connection, with clients on it.
func (f *fleet) dial(profiles []*profile, first int, begin time.Time) {
	conn, err := h2.Dial(f.server.Address, f.server.TLS, &f.traffic)
	if err != nil {
		f.fail(err)
		return
	}
	f.mu.Lock()
	f.conns[conn] = struct{}{}
	f.mu.Unlock()
	for n, p := range profiles {
		if err := f.open(conn, p, first+n, begin); err != nil {
			f.lost(err)
		}
	}
	f.work.Go(func() {
		err := conn.Run()
		f.lost(err)
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.conns, conn)
	})
}

func (f *fleet) open(conn *h2.Conn, p *profile, i int, begin time.Time) error {
	c := &client{fleet: f, profile: p, begin: begin}
	c.scanner = wire.NewScanner(p.delta, c.resource)
	method := wire.SotWMethod
	if p.delta {
		method = wire.DeltaMethod
	}
	var requests [][]byte
	for n, s := range p.subs {
		node := ""
		if n == 0 {
			node = fmt.Sprintf("bench-%d", i)
		}
		requests = append(requests, s.First(p.delta, node))
	}
	f.mu.Lock()
	f.clients = append(f.clients, c)
	f.mu.Unlock()
	stream, err := conn.Open(method, c, requests...)
	if err != nil {
		return err
	}
	c.stream = stream
	return nil
}

func (f *fleet) fail(err error) {
	f.mu.Lock()
	if f.firstErr == nil {
		f.firstErr = err
	}
	f.mu.Unlock()
}

// lost takes in that a stream or a connection has ended, unless the fleet ends it.
func (f *fleet) lost(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leaving || f.firstErr != nil {
		return
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the server has closed a connection: %w", err)
	}
	f.firstErr = fmt.Errorf("%s: %w", f.server.Address, err)
}

func (f *fleet) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.firstErr
}

// look is how often await looks: what it waits for is counted by those who must not
// be kept from it.
const look = 5 * time.Millisecond

// await waits until a count has reached n, or fails.
func (f *fleet) await(ctx context.Context, what string, count *atomic.Int64, n int, limit time.Duration) error {
	timer, tick := time.NewTimer(limit), time.NewTicker(look)
	defer timer.Stop()
	defer tick.Stop()
	for {
		if err := f.err(); err != nil {
			return err
		}
		if count.Load() >= int64(n) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return fmt.Errorf("after %v, %d of %d clients are %s", limit, count.Load(), n, what)
		}
	}
}

// close ends all connections, without a word to the server.
func (f *fleet) close() {
	f.mu.Lock()
	f.leaving = true
	for c := range f.conns {
		c.Close()
	}
	f.mu.Unlock()
	f.work.Wait()
}

// Begin implements h2.Receiver.
func (c *client) Begin(size int) {
	c.scanner.Begin(size)
	c.seen = c.newest
}

// Feed implements h2.Receiver.
func (c *client) Feed(b []byte, at time.Time) error {
	c.at = at
	return c.scanner.Feed(b)
}

// End implements h2.Receiver: it ACKs.
func (c *client) End(reply []byte) ([]byte, error) {
	r, err := c.scanner.Response()
	if err != nil {
		return nil, err
	}
	f := c.fleet
	f.responses.Add(1)
	f.resources.Add(int64(r.Resources))
	f.bytes.Add(int64(r.ResourceBytes))
	if !c.heard {
		c.heard = true
		f.answered.Add(1)
	}
	if !c.done {
		if c.has += r.Resources; c.has >= c.profile.complete {
			c.done = true
			f.rec.synced(c.at.Sub(c.begin))
			f.complete.Add(1)
		}
	}
	for _, s := range c.profile.subs {
		if s.TypeURL == string(r.TypeURL) {
			return s.AppendAck(reply, c.profile.delta, r), nil
		}
	}
	return nil, fmt.Errorf("load: a response of the type %q, which nobody asked for", r.TypeURL)
}

// Closed implements h2.Receiver.
func (c *client) Closed(err error) { c.fleet.lost(err) }

// resource is called with each resource.
func (c *client) resource(r wire.Resource) {
	if v := c.profile.versions; v != nil && !c.done {
		v[string(r.Name)] = string(r.Version)
	}
	n, err := world.Step(r.Step)
	if err != nil || n == 0 || !c.profile.delta && n <= c.seen {
		return
	}
	c.newest = max(c.newest, n)
	c.fleet.rec.delivered(n, c.at)
}

// until waits for a moment; false if ctx ended first.
func until(ctx context.Context, at time.Time) bool {
	d := time.Until(at)
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
