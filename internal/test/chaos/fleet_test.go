//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// fleet is all the clients of a test, and what became of them. It is safe for
// concurrent use.
type fleet struct {
	t       testing.TB
	history *history
	clients []*client
	// epoch numbers the relay's processes: what clients see may go back when one
	// follows another, and only then.
	epoch atomic.Int64
	// moved is where clients connect from now on; nil: where they were told to.
	moved atomic.Pointer[string]
	// replicas are the relays of which each client connects to any, each time; nil: as above.
	replicas atomic.Pointer[[]string]
	// credentials are those of clients that are added from now on.
	credentials credentials.TransportCredentials

	ctx  context.Context // of all streams
	stop context.CancelFunc
	work sync.WaitGroup

	// What must not be.
	spurious    atomic.Int64 // removals of what exists
	regressions atomic.Int64 // older after newer (G2)
	inventions  atomic.Int64 // what upstream never said (G1)
	repeats     atomic.Int64 // the same again on one stream (G5)
	disconnects atomic.Int64 // streams that ended by themselves

	// What is counted.
	failures  atomic.Int64 // attempts that came to nothing
	removals  atomic.Int64
	responses atomic.Int64
	bytes     atomic.Int64
	resent    atomic.Int64 // bytes of what a Delta client had had already, or newer

	mu      sync.Mutex
	endedAt []time.Time
	gaps    []time.Duration // from the end of a client's stream to the first response on its next one
	faults  []string
	ends    map[string]int   // why streams ended
	samples *[]time.Duration // nil: nobody measures
	ignored map[*client]bool
}

// fleetSize is how many clients a test has, and what they ask for.
type fleetSize struct {
	clients int
	sotw    int // of them
	names   int // endpoint assignments of each
	big     int // how many ask for the big one, too
	// old: they ask for what the first of the fleet ask for, not for names of
	// their own.
	old bool
	// habit is given to each, by its number, before it connects; nil: they have none.
	habit func(n int, c *client)
}

func newFleet(t testing.TB, h *history) *fleet {
	ctx, cancel := context.WithCancel(context.Background())
	f := &fleet{t: t, history: h, credentials: insecure.NewCredentials(), ctx: ctx, stop: cancel, ends: make(map[string]int), ignored: make(map[*client]bool)}
	t.Cleanup(f.Stop)
	return f
}

// startFleet connects clients to a relay, and waits until they have everything.
func startFleet(t testing.TB, h *history, target string, size fleetSize) *fleet {
	t.Helper()
	f := newFleet(t, h)
	f.Add(target, size)
	f.Converge()
	return f
}

// Add connects more clients.
func (f *fleet) Add(target string, size fleetSize) (added []*client) {
	f.t.Helper()
	begin := len(f.clients)
	for n := range size.clients {
		id := begin + n
		var names []string
		from := id
		if size.old {
			from = n
		}
		for i := range size.names {
			names = append(names, endpointKey((from*size.names+i)%f.history.world.Endpoints).name)
		}
		if n >= size.clients-size.big {
			names = append(names, big.name)
		}
		c, err := newClient(f, id, "passthrough:///"+target, n < size.sotw, names)
		if err != nil {
			f.t.Fatal(err)
		}
		c.epoch = f.epoch.Load()
		if size.habit != nil {
			size.habit(n, c)
		}
		added = append(added, c)
		f.work.Go(func() { c.run(f.ctx) })
	}
	f.clients = append(f.clients, added...)
	return added
}

func (f *fleet) fault(counter *atomic.Int64, c *client, format string, args ...any) {
	counter.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.faults) < 20 {
		f.faults = append(f.faults, fmt.Sprintf("%s client %d: ", time.Now().Format("15:04:05.000"), c.id)+fmt.Sprintf(format, args...))
	}
}

func (f *fleet) ended(c *client, open bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ignored[c] {
		return
	}
	if !open {
		f.failures.Add(1)
		return
	}
	f.disconnects.Add(1)
	f.endedAt = append(f.endedAt, time.Now())
	f.ends[err.Error()]++
}

// endings is when streams ended.
func (f *fleet) endings() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.endedAt)
}

// back takes note of how long a client was without a stream.
func (f *fleet) back(after time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gaps = append(f.gaps, after)
}

// ignore leaves a client out of the counts and the convergence, because it
// misbehaves on purpose; again false takes it back.
func (f *fleet) ignore(c *client, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if on {
		f.ignored[c] = true
	} else {
		delete(f.ignored, c)
	}
}

// attentive are the clients that are not ignored.
func (f *fleet) attentive() []*client {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.clients), func(c *client) bool { return f.ignored[c] })
}

// Converge waits until every client has at least what the world is now, and tells
// how long that took.
func (f *fleet) Converge() time.Duration {
	f.t.Helper()
	return f.converge(f.attentive())
}

// converge waits for some of them.
func (f *fleet) converge(clients []*client) time.Duration {
	f.t.Helper()
	return f.reach(clients, f.history.target())
}

// reach waits until some of them have at least what the world was at a moment.
func (f *fleet) reach(clients []*client, target map[key]state) time.Duration {
	f.t.Helper()
	return eventually(f.t, func() error {
		for len(clients) > 0 { // who is there stays there: nobody goes back behind a target
			if why := clients[0].behind(target); why != "" {
				return errors.New(why)
			}
			clients = clients[1:]
		}
		return nil
	})
}

// Lost counts the clients whose state is not the world's. The world stands still. A client between two streams, as one
// is whose connection has reached its age, is waited for.
func (f *fleet) Lost() (lost int) {
	target := f.history.target()
	for _, c := range f.attentive() {
		if !c.streams() {
			f.reach([]*client{c}, target)
		}
		if why := c.behind(target); why != "" {
			lost++
			f.mu.Lock()
			f.faults = append(f.faults, why)
			f.mu.Unlock()
		}
	}
	return lost
}

// fullState is how many bytes all Delta clients would be sent that know nothing.
func (f *fleet) fullState() (bytes int64) {
	size := make(map[key]int64)
	for k, s := range f.history.target() {
		if !s.gone {
			size[k] = wireSize(f.history.world, k, s.step)
		}
	}
	for _, c := range f.clients {
		if c.sotw {
			continue
		}
		c.mu.Lock()
		for k := range c.held {
			bytes += size[k]
		}
		c.mu.Unlock()
	}
	return bytes
}

// holdings is what each client has, to be compared later.
func (f *fleet) holdings() []map[key]held {
	var all []map[key]held
	for _, c := range f.clients {
		c.mu.Lock()
		all = append(all, maps.Clone(c.held))
		c.mu.Unlock()
	}
	return all
}

// reconnected waits until every client has heard something on a stream that it did
// not have when before was counted.
func (f *fleet) reconnected(before []int) time.Duration {
	f.t.Helper()
	return eventually(f.t, func() error {
		for i, n := range f.streams() {
			if n <= before[i] {
				return fmt.Errorf("client %d is not back", i)
			}
		}
		return nil
	})
}

// differing counts the clients that do not have what they had.
func (f *fleet) differing(before []map[key]held) (n int) {
	for i, now := range f.holdings() {
		if !maps.Equal(now, before[i]) {
			n++
		}
	}
	return n
}

// Stop sends all clients away for good.
func (f *fleet) Stop() {
	f.stop()
	for _, c := range f.clients {
		c.conn.Close()
	}
	f.work.Wait()
}

// streams counts the streams that each client has heard something on.
func (f *fleet) streams() (all []int) {
	for _, c := range f.clients {
		c.mu.Lock()
		all = append(all, c.connected)
		c.mu.Unlock()
	}
	return all
}

// trouble is what went wrong, for a failure's text.
func (f *fleet) trouble() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := ""
	for _, fault := range f.faults {
		text += "\n\t" + fault
	}
	for _, why := range slices.Sorted(maps.Keys(f.ends)) {
		text += fmt.Sprintf("\n\t%d streams ended: %s", f.ends[why], why)
	}
	return text
}

// measure lets time pass, and adds how long deliveries take meanwhile.
func (f *fleet) measure(span time.Duration, l *latencies) {
	set := func(s *[]time.Duration) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.samples = s
	}
	var s []time.Duration
	set(&s)
	pause(context.Background(), span)
	set(nil)
	slices.Sort(s)
	l.slices = append(l.slices, s)
}

func (f *fleet) delivered(c *client, after time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.samples != nil && !f.ignored[c] {
		*f.samples = append(*f.samples, after)
	}
}

// latencies are times from a step to its arrival at a client, sorted, for each slice
// of time that was measured.
type latencies struct{ slices [][]time.Duration }

// at is the median, over the slices, of a quantile. Whatever else the machine does
// for a while spoils only a few of them.
func (l *latencies) at(q float64) time.Duration {
	var all []time.Duration
	for _, s := range l.slices {
		if len(s) > 0 {
			all = append(all, s[min(len(s)-1, int(q*float64(len(s))))])
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// count is how many there are.
func (l *latencies) count() (n int) {
	for _, s := range l.slices {
		n += len(s)
	}
	return n
}

// trickle makes every client read a byte a second, or as fast as it can.
func (f *fleet) trickle(on bool) {
	for _, c := range f.clients {
		c.setTrickle(on)
	}
}
