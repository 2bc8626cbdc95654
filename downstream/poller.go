package downstream

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/internal/logging"
	"github.com/xds-relay/xds-relay/internal/share"
)

// poll is a request of a client that polls.
type poll struct {
	t    cache.TypeURL
	conn *conn
	peer session.Peer
	body *body // until it has been taken in
	hold time.Duration
	sum  fingerprint
}

// fingerprint stands for a request and whoever has sent it: of equal ones only the first has to be decoded.
type fingerprint [sha256.Size]byte

// poller is what is known of a client that polls for some names of a type, from its first poll until it has polled no
// more for a while (REST-9).
type poller struct {
	server  *Server
	id      uint64
	key     pollerKey
	node    string
	peer    session.Peer
	since   time.Time
	place   *place                // of all streams
	entry   *share.Entry[*poller] // of all pollers
	limiter *rate.Limiter         // nil: there is none
	over    chan struct{}         // closed at its end
	why     *session.End          // set before that

	// Guarded by pollers.mu.
	current *interest // of the last poll
	used    bool      // a poll uses it
	polls   int       // in progress
	timer   *time.Timer
	sofar
}

// pollerKey tells pollers apart.
type pollerKey struct {
	t         cache.TypeURL
	holder    string
	principal string
	node      string
	names     fingerprint
}

// sofar is how far a poller is. REST has neither ACK nor NACK: the version that the next poll shows says it.
type sofar struct {
	last      time.Time // poll
	told      string    // in the last answer with resources; "": none
	toldAt    time.Time
	size      int // its resources
	old       int // polls in a row that showed something else than was told before
	responses int64
	bytes     int64 // of them
}

// mayBeOld is how many polls in a row may show an old version.
const mayBeOld = 3

// polled takes note of a poll that showed a version and got an answer.
func (p *sofar) polled(shown string, a answered, now time.Time) {
	p.last = now
	if shown == p.told || p.told == "" || a.unchanged {
		p.old = 0
	} else {
		p.old++
	}
	if r := a.response; r != nil {
		if p.told != r.Version {
			p.told, p.toldAt, p.size = r.Version, now, len(r.Resources)
		}
		p.responses++
	} else {
		p.told = shown
	}
}

// interest is the session of one poll. It stays until the next one, so that the names stay subscribed, and that one uses it
// if it asks for the same.
type interest struct {
	sum     fingerprint
	version string // that the client has
	rules   uint64 // by which it was judged
	names   *allowance
	wake    chan struct{}

	mu      sync.Mutex // guards the session
	session *session.Session
}

func (i *interest) with(f func(*session.Session)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f(i.session)
}

// answered is what a poll is answered with.
type answered struct {
	by        *poller
	response  *session.Response
	unchanged bool // the client has it already
}

// firstAnswer is how long a poll waits for a control plane that has not said yet what is asked for. Envoy waits for a
// second; without this each new name would cost it two polls (REST-6).
const firstAnswer = 500 * time.Millisecond

// poll answers a poll.
func (s *Server) poll(ctx context.Context, q *poll) (a answered, end *session.End) {
	if end = s.admitPoll(q.conn); end != nil {
		return a, end
	}
	defer s.pollOver()
	ps := &s.rest.pollers
	p, i, end := ps.begin(q)
	if end != nil {
		return a, end
	}
	defer func() {
		ps.finish(p, i, keeps(end), a)
	}()
	ctx, leave, end := s.besides(ctx, p)
	if end != nil {
		return a, end
	}
	defer leave()
	if end = p.pace(ctx); end != nil {
		return a, end
	}
	s.rest.bodies.give(q)
	a, end = p.await(ctx, i, q.hold)
	a.by = p
	return a, end
}

// extra is a poll beyond the first one of its poller at a time.
type extra struct{ cancel context.CancelCauseFunc }

// end implements served.
func (e *extra) end(why *session.End) { e.cancel(why) }

// besides gives a poll a place of its own among all streams, if its poller's is another poll's already: polls may be held,
// and there may be very many for the same (VALID-8).
func (s *Server) besides(ctx context.Context, p *poller) (_ context.Context, leave func(), end *session.End) {
	ps := &s.rest.pollers
	ps.mu.Lock()
	first := p.polls == 1
	ps.mu.Unlock()
	if first {
		return ctx, func() {}, nil
	}
	var displaced []served
	defer func() { displace(displaced) }() // after the lock is released
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	var own *place
	if own, displaced, end = s.takePlace(&p.peer, &extra{cancel}); end != nil {
		cancel(nil)
	}
	return ctx, func() { cancel(nil); s.leavePlace(own) }, end
}

// gone is why a poll whose context has ended is not answered.
func gone(ctx context.Context) *session.End {
	if end := (*session.End)(nil); errors.As(context.Cause(ctx), &end) {
		return end
	}
	return &session.End{Reason: closedByClient, Message: "the client is gone"}
}

// keeps reports whether the interest of a poll lasts although it ended in this way: also while the control plane has not
// answered yet, or if the client has not waited for that.
func keeps(end *session.End) bool {
	return end == nil || end.Reason == session.Unreachable || end.Reason == closedByClient
}

// admitPoll says why no poll is taken in, if that is so.
func (s *Server) admitPoll(on *conn) *session.End {
	if end := on.expired(time.Now()); end != nil {
		return end
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if end := s.leaving(); end != nil {
		return end
	}
	s.calls++
	return nil
}

func (s *Server) pollOver() {
	s.mu.Lock()
	s.calls--
	s.mu.Unlock()
}

// protocolREST is what clients that poll are called in metrics and logs.
const protocolREST = "rest"

func (i *interest) kick() {
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// end implements served. It may be called under any lock.
func (p *poller) end(e *session.End) {
	ps := &p.server.rest.pollers
	ps.work.Go(func() { ps.drop(p, e) })
}

// mostPace is how long a poll waits at most because others of its poller came before it.
const mostPace = time.Second

// pace waits if a poller polls faster than a stream may send requests. A stream is read more slowly; but polls come all at
// once, and what clients that have left meanwhile had reserved would be waited for, too. So none waits for long.
func (p *poller) pace(ctx context.Context) *session.End {
	if p.limiter == nil {
		return nil
	}
	turn := p.limiter.Reserve()
	wait := turn.Delay()
	if wait <= 0 {
		return nil
	}
	p.server.observer.ClientRateLimited()
	if wait > mostPace {
		turn.Cancel()
		return &session.End{Reason: session.StreamsFull, Message: "xds-relay: clients that cannot be told apart poll for this too often; poll less often, or see downstream.request_rate"}
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return gone(ctx)
	case <-p.over:
		return p.why
	case <-p.server.stopped:
		return shuttingDown()
	}
}

// await answers a poll when there is something new, or when it has waited long enough.
func (p *poller) await(ctx context.Context, i *interest, hold time.Duration) (answered, *session.End) {
	s := p.server
	begin := time.Now()
	timer := time.NewTimer(max(hold, firstAnswer))
	defer timer.Stop()
	for {
		judged := s.rest.pollers.judged() // before the rules are looked at
		r, end := i.look(s)
		if end != nil {
			return answered{}, end
		}
		if r != nil && r.Version != i.version {
			s.oversized(r, 0, p.log)
			s.showPoll(p, r.Type, func() *events.Message { return s.response(r, 0) })
			return answered{response: r}, nil
		}
		limit := max(hold, firstAnswer)
		if r != nil {
			limit = hold
		}
		left := limit - time.Since(begin)
		switch {
		case left <= 0 && r != nil:
			return answered{unchanged: true}, nil
		case left <= 0:
			return answered{}, &session.End{Reason: session.Unreachable, Message: "xds-relay: upstream has not answered for all that was asked for; poll again"}
		}
		timer.Reset(left)
		select {
		case <-i.wake:
		case <-judged:
		case <-timer.C:
		case <-ctx.Done():
			return answered{}, gone(ctx)
		case <-p.over:
			return answered{}, p.why
		case <-s.stopped:
			return answered{}, shuttingDown()
		}
	}
}

// look returns the whole answer, if it is known.
func (i *interest) look(s *Server) (r *session.Response, end *session.End) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if rules := s.rules.Load(); rules != i.rules {
		if end := i.session.Rejudge(time.Now()); end != nil {
			return nil, end
		}
		i.rules = rules
	}
	return i.session.Whole(time.Now())
}

// log is for lines about the client.
func (p *poller) log() *slog.Logger {
	return p.server.log.With("stream_id", p.id, "node_id", p.node, "peer", p.peer.Address, "identity", p.peer.Identity, "protocol", protocolREST)
}

// version is a version that the client shows, as people may see it.
func (p *poller) version(v string) string {
	return logging.Version(p.server.now.Load().Types, p.key.t, v)
}
