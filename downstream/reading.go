package downstream

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/xds-relay/xds-relay/downstream/session"
)

// reading is the edge around inflight: its lock, its clock, and what the log and an Observer get.
type reading struct {
	log      *slog.Logger
	observer Observer

	mu       sync.Mutex
	inflight *inflight
	timer    *time.Timer // it runs while requests are not taken in
	runs     bool
	stopped  bool
	seldom   seldom
}

// lookEvery is how often reading looks for requests that do not go on.
const lookEvery = time.Second

// newReading returns nil if there is no bound.
func newReading(bound int, log *slog.Logger, o Observer) *reading {
	if bound == 0 {
		return nil
	}
	return &reading{log: log, observer: o, inflight: newInflight(bound)}
}

// look ends the requests that do not go on.
func (r *reading) look() {
	r.mu.Lock()
	found := r.inflight.tick(time.Now())
	if r.runs = len(r.inflight.holders) > 0 && !r.stopped; r.runs {
		r.timer.Reset(lookEvery)
	}
	r.mu.Unlock()
	for _, s := range found {
		s.end(halfSent(s.why))
	}
}

// watch makes sure that look is called while there is something to look at.
func (r *reading) watch() {
	switch {
	case r.runs || r.stopped || len(r.inflight.holders) == 0:
		return
	case r.timer == nil:
		r.timer = time.AfterFunc(lookEvery, r.look)
	default:
		r.timer.Reset(lookEvery)
	}
	r.runs = true
}

// stop ends all looking.
func (r *reading) stop() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	if r.timer != nil {
		r.timer.Stop()
	}
}

// used is how many bytes of memory requests take that are not taken in.
func (r *reading) used() int {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inflight.used
}

// waits tells that a connection has to wait. The log gets it now and then.
func (r *reading) waits(c *conn) {
	r.observer.ClientReadingWaits()
	r.mu.Lock()
	used, bound := r.inflight.used, r.inflight.bound
	r.mu.Unlock()
	r.seldom.warn(r.log, "waits", "requests of clients wait to be read: those that have begun and are not taken in take what they may; if the clients are as they should be, raise downstream.max_inflight_bytes",
		"peer", PeerName(c.RemoteAddr()), "bytes", used, "max_inflight_bytes", bound)
}

// halfSent is the reason with which a stream ends whose request does not go on.
func halfSent(why lateness) *session.End {
	const others = "while other requests waited for room (downstream.max_inflight_bytes)"
	text := ""
	switch why {
	case silent:
		text = fmt.Sprintf("nothing of it came for %v", silentAfter)
	case dripping:
		text = fmt.Sprintf("less than %d KiB of it came in %v, %s", slowBytes>>10, slowAfter, others)
	case turnOver:
		text = fmt.Sprintf("in its turn it did not come in %v and a second for each MiB, %s", slowAfter, others)
	}
	return &session.End{Reason: session.HalfSent, Message: "a request is not complete, and " + text + "; send it again"}
}

// flow is what a connection's reading has to do with the bound. Its reader is the one goroutine of gRPC
// that reads from the connection.
type flow struct {
	conn    *conn
	reading *reading // nil: there is no bound
	frames  frames   // the reader's
	holder  holder
	parts   atomic.Int32 // len(holder.parts), which only the reader increases
	most    int          // the reader's: bytes that the next read may bring; 0: as many as it likes
}

// init prepares the flow of a connection.
func (f *flow) init(c *conn, r *reading) {
	f.conn, f.reading = c, r
	f.holder.init()
}

// name says whose connection it is. It is called once, before the reader reads.
func (f *flow) name(holder string) {
	f.holder.name = holder
}

// arrived takes note of bytes that were read, and waits until the connection may be read on. Of the small
// whole requests that a client usually sends it costs no lock.
func (f *flow) arrived(b []byte) {
	f.frames.follow(b, f)
	f.most = 0
	if f.parts.Load() == 0 {
		return
	}
	for {
		may, begins := f.mayRead()
		if may {
			return
		}
		if begins {
			f.reading.waits(f.conn)
		}
		<-f.holder.wake
	}
}

// mayRead reports whether the connection may be read on, and otherwise whether it begins to wait.
func (f *flow) mayRead() (may, begins bool) {
	f.with(func(in *inflight) {
		waited, pardon := f.holder.waits, false
		f.holder.within = f.frames.left > 0
		if may, pardon = in.mayRead(&f.holder, time.Now()); pardon {
			f.most = pardonBytes
		}
		begins = !waited
	})
	return may, begins
}

// atMost returns how many of n bytes may be read next.
func (f *flow) atMost(n int) int {
	if f.most == 0 {
		return n
	}
	return min(n, f.most)
}

// with calls do under the lock.
func (f *flow) with(do func(*inflight)) {
	if f.reading == nil {
		return
	}
	f.reading.mu.Lock()
	defer f.reading.mu.Unlock()
	do(f.reading.inflight)
	f.parts.Store(int32(len(f.holder.parts))) //nolint:gosec // a part takes more than a byte of an int's worth
	f.reading.watch()
}

// piece implements pieces.
func (f *flow) piece(stream uint32, frame int, b []byte) {
	if f.parts.Load() == 0 && f.holder.passes(b) {
		return
	}
	f.with(func(in *inflight) { in.piece(&f.holder, stream, frame, b, time.Now()) })
}

// opens implements pieces.
func (f *flow) opens() { f.conn.opened() }

// resets implements pieces.
func (f *flow) resets() { f.conn.reset() }

// over implements pieces.
func (f *flow) over(stream uint32) {
	if f.parts.Load() > 0 {
		f.with(func(in *inflight) { in.over(&f.holder, stream) })
	}
}

// takenIn says that a request of a stream is taken in, of n bytes with its header.
func (f *flow) takenIn(stream uint32, n int) {
	switch {
	case f == nil:
	case f.parts.Load() == 0:
		f.holder.passed(n)
	default:
		f.with(func(in *inflight) { in.takenIn(&f.holder, stream, n) })
	}
}

// close says that the connection is closed.
func (f *flow) close() {
	f.with(func(in *inflight) { in.close(&f.holder) })
}

// inside returns a field of gRPC's own of a stream or call, which gRPC keeps to itself, and whether there is one of that type.
func inside[T any](ctx context.Context, field string) (value T, ok bool) {
	of := reflect.ValueOf(grpc.ServerTransportStreamFromContext(ctx))
	if of.Kind() != reflect.Pointer || of.Elem().Kind() != reflect.Struct {
		return value, false
	}
	f := of.Elem().FieldByName(field)
	if !f.IsValid() {
		return value, false
	}
	value, ok = reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem().Interface().(T)
	return value, ok
}

// receiver is a stream or call whose requests are accounted for.
type receiver struct {
	flow *flow
	id   uint32
}

// receiver returns the one of a context. end ends it from outside its handler; the handler calls leave when it returns.
func (c *conn) receiver(ctx context.Context, end func(*session.End)) receiver {
	if c == nil {
		return receiver{}
	}
	id, ok := inside[uint32](ctx, "id") // that of its HTTP/2 stream
	if !ok {
		return receiver{}
	}
	c.flow.with(func(in *inflight) { in.join(&c.flow.holder, id, end) })
	return receiver{&c.flow, id}
}

// takenIn says that a message of n bytes is taken in.
func (r receiver) takenIn(n int) { r.flow.takenIn(r.id, n+grpcHeader) }

// goesThrough says that what comes is handed on to the control plane, which may take its time.
func (r receiver) goesThrough() {
	if r.flow != nil {
		r.flow.with(func(in *inflight) { in.goesThrough(&r.flow.holder, r.id) })
	}
}

func (r receiver) leave() {
	if r.flow != nil {
		r.flow.with(func(in *inflight) { in.leave(&r.flow.holder, r.id) })
	}
}

// secured is a connection after its TLS handshake.
type secured struct {
	net.Conn
	flow *flow
}

// Read implements net.Conn.
func (s secured) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b[:s.flow.atMost(len(b))])
	s.flow.arrived(b[:n])
	return n, err
}
