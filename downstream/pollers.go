package downstream

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/time/rate"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/internal/logging"
	"github.com/xds-relay/xds-relay/internal/share"
	"github.com/xds-relay/xds-relay/internal/xdsjson"
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
	shown     string    // by it
	told      string    // in the last answer with resources; "": none
	toldAt    time.Time
	size      int // its resources
	old       int // polls in a row that showed something else than was told before
	responses int64
}

// mayBeOld is how many polls in a row may show an old version.
const mayBeOld = 3

// polled takes note of a poll that showed a version and got an answer.
func (p *sofar) polled(shown string, a answered, now time.Time) {
	p.last, p.shown = now, shown
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

// pollers are all of them.
type pollers struct {
	server *Server
	work   sync.WaitGroup // what ends some of them

	mu     sync.Mutex
	by     map[pollerKey]*poller
	bySum  map[fingerprint]*poller // by the sum of their current interest
	byID   map[uint64]*poller
	shares share.Ledger[*poller]
	closed bool
}

func (ps *pollers) init(s *Server) {
	ps.server, ps.by, ps.bySum, ps.byID = s, make(map[pollerKey]*poller), make(map[fingerprint]*poller), make(map[uint64]*poller)
}

// answered is what a poll is answered with.
type answered struct {
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
	if end = p.pace(ctx); end != nil {
		return a, end
	}
	s.rest.bodies.give(q)
	return p.await(ctx, i, q.hold)
}

// keeps reports whether the interest of a poll lasts although it ended in this way: also while the control plane has not
// answered yet, or if the client has not waited for that.
func keeps(end *session.End) bool {
	return end == nil || end.Reason == session.Unreachable || end.Reason == closedByClient
}

// admitPoll says why no poll is taken in, if that is so.
func (s *Server) admitPoll(on *conn) *session.End {
	if end := s.refuses(on, time.Now()); end != nil {
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

// begin takes in a request.
func (ps *pollers) begin(q *poll) (*poller, *interest, *session.End) {
	s := ps.server
	q.sum = sumOf(q)
	s.observer.ClientRequest(q.t, session.FetchRequest)
	if p, i := ps.again(q.sum); i != nil {
		i.with(func(of *session.Session) { of.Reconfigure(&s.now.Load().Config) })
		s.showPoll(p, q.t, func() *events.Message { return &events.Message{Bytes: q.body.Len(), Version: p.version(i.version)} })
		return p, i, nil
	}
	req, end := readPoll(q, s.config.MaxRequest)
	if end != nil {
		return nil, nil, end
	}
	p, end := ps.enter(q, req)
	if end != nil {
		return nil, nil, end
	}
	s.showPoll(p, q.t, func() *events.Message {
		return &events.Message{Bytes: q.body.Len(), Version: p.version(req.GetVersionInfo()), Names: req.GetResourceNames(), Asked: len(req.GetResourceNames())}
	})
	i, end := ps.ask(p, q, req)
	if end != nil {
		ps.finish(p, nil, false, answered{})
	}
	return p, i, end
}

// readPoll decodes a request.
func readPoll(q *poll, limit int) (*discovery.DiscoveryRequest, *session.End) {
	req, mistake := xdsjson.Request(q.body.Bytes(), cmp.Or(limit, maxInt32))
	switch {
	case mistake != nil && mistake.TooLarge:
		return nil, &session.End{Reason: session.OverLimit, Message: "xds-relay: " + mistake.Error()}
	case mistake != nil:
		return nil, &session.End{Reason: session.BadRequest, Message: "xds-relay: " + mistake.Error()}
	case req.GetTypeUrl() != "" && req.GetTypeUrl() != string(q.t):
		return nil, &session.End{Reason: session.BadRequest, Message: fmt.Sprintf("xds-relay: the request says type_url %.200q, and this path is for %s", req.GetTypeUrl(), q.t)}
	}
	return req, nil
}

// sumOf returns the fingerprint of a poll.
func sumOf(q *poll) (sum fingerprint) {
	h := sha256.New()
	p := &q.peer
	sumText(h, string(q.t), p.Identity, p.Principal, p.Holder, p.Withheld, fmt.Sprint(p.Local, p.Relay, len(p.Via), len(p.Headers)))
	sumText(h, p.Via...)
	for _, header := range p.Headers {
		sumText(h, header.Name, string(header.Value))
	}
	_, _ = h.Write(q.body.Bytes()) // a hash takes everything
	h.Sum(sum[:0])
	return sum
}

// sumText adds texts, each with its length.
func sumText(h hash.Hash, texts ...string) {
	var size [8]byte
	for _, text := range texts {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(size[:0], uint64(len(text))))
		_, _ = io.WriteString(h, text)
	}
}

// again returns the poller of an equal request, and its interest, if no other poll uses that; else nil.
func (ps *pollers) again(sum fingerprint) (*poller, *interest) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.bySum[sum]
	if p == nil || p.used || p.current.rules != ps.server.rules.Load() {
		return nil, nil
	}
	p.used = true
	p.polls++
	return p, p.current
}

// enter returns the poller of a request.
func (ps *pollers) enter(q *poll, req *discovery.DiscoveryRequest) (*poller, *session.End) {
	key := keyOf(q, req)
	ps.mu.Lock()
	p := ps.by[key]
	if p != nil {
		p.polls++
	}
	ps.mu.Unlock()
	if p != nil {
		return p, nil
	}
	return ps.add(key, q.peer)
}

func keyOf(q *poll, req *discovery.DiscoveryRequest) pollerKey {
	names := slices.Clone(req.GetResourceNames())
	slices.Sort(names)
	key := pollerKey{t: q.t, holder: q.peer.Holder, principal: q.peer.Principal, node: req.GetNode().GetId()}
	h := sha256.New()
	sumText(h, names...)
	h.Sum(key.names[:0])
	return key
}

// add makes a poller, if there is room for it.
func (ps *pollers) add(key pollerKey, peer session.Peer) (p *poller, end *session.End) {
	s := ps.server
	var displaced []served
	defer func() { displace(displaced) }() // after the locks are released
	p = &poller{server: s, key: key, node: key.node, peer: peer, since: time.Now(), over: make(chan struct{}), polls: 1}
	if config := s.now.Load(); config.RequestRate > 0 {
		p.limiter = rate.NewLimiter(rate.Limit(config.RequestRate), config.RequestBurst)
	}
	s.mu.Lock()
	if p.place, displaced, end = s.takePlace(&peer, p); end == nil {
		s.lastID++
		p.id = s.lastID
	}
	s.mu.Unlock()
	if end != nil {
		return nil, end
	}
	most := s.now.Load().REST.MaxPollers
	ps.mu.Lock()
	p.entry = ps.shares.Enter(peer.Holder, peer.Relay, p)
	got, less := ps.shares.Take(p.entry, 1, most, nil)
	other := ps.by[key]
	in := got > 0 && other == nil && !ps.closed
	if in {
		ps.by[key], ps.byID[p.id] = p, p
	} else {
		ps.shares.Leave(p.entry)
	}
	if other != nil {
		other.polls++
	}
	ps.mu.Unlock()
	for _, of := range less {
		of.end(&session.End{Reason: session.DisplacedStream, Message: fmt.Sprintf("xds-relay: there are downstream.rest.max_pollers, and a client with fewer needed one of %d", most)})
	}
	if in {
		s.observer.ClientConnected(protocolREST)
		return p, nil
	}
	s.leavePlace(p.place)
	if other != nil {
		return other, nil
	}
	return nil, &session.End{Reason: session.StreamsFull, Message: fmt.Sprintf("xds-relay: %d polls are remembered, and this client has its share; see downstream.rest.max_pollers", most)}
}

func (s *Server) leavePlace(p *place) {
	s.mu.Lock()
	s.places.Leave(p)
	s.mu.Unlock()
}

// protocolREST is what clients that poll are called in metrics and logs.
const protocolREST = "rest"

// ask makes the session of a request.
func (ps *pollers) ask(p *poller, q *poll, req *discovery.DiscoveryRequest) (*interest, *session.End) {
	s := ps.server
	i := &interest{sum: q.sum, version: req.GetVersionInfo(), rules: s.rules.Load(), wake: make(chan struct{}, 1), names: s.names.enter(&p.peer, p)}
	peer := q.peer
	peer.End, peer.Stream = p.end, p
	i.session = session.New(&s.now.Load().Config, session.Stream{Type: q.t}, peer, s.config.Groups, s.clusterDeliveries, i.kick)
	i.session.Within(i.names)
	_, end := i.session.SotWRequest(req, time.Now())
	i.names.displace()
	if end != nil {
		ps.forget(i)
		return nil, end
	}
	s.tellRefusals(i.session.Refusals(), p.log)
	if p.first() {
		p.log().Info("client polls", "type", q.t, "group", groupsOf(i.session), "names", len(req.GetResourceNames()))
	}
	return i, nil
}

// first reports whether it has not been answered yet.
func (p *poller) first() bool {
	p.server.rest.pollers.mu.Lock()
	defer p.server.rest.pollers.mu.Unlock()
	return p.current == nil
}

func (i *interest) kick() {
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// forget ends an interest that no poll uses.
func (ps *pollers) forget(i *interest) {
	if i == nil {
		return
	}
	i.with(func(of *session.Session) {
		of.Close(time.Now())
		for _, u := range of.Untold() {
			if tracer := ps.server.config.Tracer; tracer != nil {
				tracer.Untold(u.Source, u.Behind)
			}
		}
	})
}

// finish keeps the interest of a poll that is over, if it was good, in place of the one before.
func (ps *pollers) finish(p *poller, i *interest, good bool, a answered) {
	ttl, now := ps.server.now.Load().REST.InterestTTL, time.Now()
	ps.mu.Lock()
	p.polls--
	gone := ps.by[p.key] != p
	replaced := p.current
	switch {
	case gone || i == nil:
		replaced = i
	case i == p.current:
		p.used, replaced = false, nil
	case !good:
		replaced = i
	default:
		if p.used {
			replaced = nil // whoever uses it will replace this one
		}
		if p.current != nil {
			delete(ps.bySum, p.current.sum)
		}
		p.current, p.used = i, false
		ps.bySum[i.sum] = p
	}
	fresh := p.current == nil
	if a.response != nil || a.unchanged {
		p.polled(i.version, a, now)
	}
	if !gone && p.polls == 0 && !fresh {
		if p.timer == nil {
			p.timer = time.AfterFunc(ttl, func() { ps.expire(p) })
		} else {
			p.timer.Reset(ttl)
		}
	}
	unused := fresh && p.polls == 0
	ps.mu.Unlock()
	ps.forget(replaced)
	if unused && !gone {
		ps.drop(p, &session.End{Reason: closedByClient})
	}
}

// expire ends a poller that has not polled for a while.
func (ps *pollers) expire(p *poller) {
	ps.mu.Lock()
	polls := p.polls
	ps.mu.Unlock()
	if polls == 0 {
		ps.drop(p, &session.End{Reason: closedByClient, Message: "the client polls no more"})
	}
}

// end implements served. It may be called under any lock.
func (p *poller) end(e *session.End) {
	ps := &p.server.rest.pollers
	ps.work.Go(func() { ps.drop(p, e) })
}

// drop ends a poller: its interest, and the polls that are waiting.
func (ps *pollers) drop(p *poller, why *session.End) {
	ps.mu.Lock()
	if ps.by[p.key] != p {
		ps.mu.Unlock()
		return
	}
	delete(ps.by, p.key)
	delete(ps.byID, p.id)
	ps.shares.Leave(p.entry)
	i := p.current
	if i != nil {
		delete(ps.bySum, i.sum)
	}
	if p.used {
		i = nil // its poll forgets it
	}
	if p.timer != nil {
		p.timer.Stop()
	}
	told := p.current != nil
	responses := p.responses
	p.why = why
	close(p.over)
	ps.mu.Unlock()
	ps.forget(i)
	p.server.leavePlace(p.place)
	p.server.observer.ClientDisconnected(protocolREST, why.Reason)
	if told {
		p.log().Info("client is not waited for any more", "type", p.key.t, "reason", why.Reason, "err", why.Message, "dur_ms", time.Since(p.since).Milliseconds(), "responses", responses)
	}
}

// close ends all of them.
func (ps *pollers) close() {
	ps.mu.Lock()
	ps.closed = true
	ps.mu.Unlock()
	for _, p := range ps.list() {
		ps.drop(p, shuttingDown())
	}
	ps.work.Wait()
}

func (ps *pollers) list() (all []*poller) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.by {
		all = append(all, p)
	}
	return all
}

// rejudge applies rules that have changed: what a poll waits for is judged again, and what none waits for by the next one.
func (ps *pollers) rejudge() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.by {
		if p.current != nil {
			p.current.kick()
		}
	}
}

// pace waits if a poller polls faster than a stream may send requests.
func (p *poller) pace(ctx context.Context) *session.End {
	if p.limiter == nil {
		return nil
	}
	wait := p.limiter.Reserve().Delay()
	if wait <= 0 {
		return nil
	}
	p.server.observer.ClientRateLimited()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return &session.End{Reason: closedByClient, Message: "the client is gone"}
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
		case <-timer.C:
		case <-ctx.Done():
			return answered{}, &session.End{Reason: closedByClient, Message: "the client is gone"}
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

// showPoll shows a poll or its answer to whoever watches.
func (s *Server) showPoll(p *poller, t cache.TypeURL, of func() *events.Message) {
	if s.config.Watch.Wants(p.id, p.node, t) {
		m := of()
		m.Stream, m.Node, m.Type = p.id, p.node, t
		m.Kind = cmp.Or(m.Kind, events.MessageKind(session.FetchRequest))
		s.config.Watch.Show(*m)
	}
}

// What people and metrics see of pollers. A poller is in step unless it has shown an old version too often: REST has no NACK.

// inStep and behind are the states that a poller may be in.
var inStep, isBehind = session.SyncStates()[0], session.SyncStates()[2]

// describe describes a poller for the admin endpoint.
func (ps *pollers) describe(p *poller) Client {
	ps.mu.Lock()
	i, at := p.current, p.sofar
	ps.mu.Unlock()
	c := Client{
		Stream: p.id, Node: p.node, Peer: p.peer.Address, Identity: p.peer.Identity, Protocol: protocolREST, Since: p.since, Sync: inStep,
		Responses: at.responses,
	}
	if i == nil {
		return c
	}
	i.with(func(of *session.Session) { c.Cluster, c.Types = of.Node().GetCluster(), of.Describe() })
	for j := range c.Types {
		at.tell(&c.Types[j])
		c.Sync = c.Types[j].Sync
	}
	return c
}

// tell says of a type how far the poller is.
func (p *sofar) tell(t *session.ClientType) {
	t.Sync, t.Behind, t.Since, t.Nonce = inStep, 0, time.Time{}, ""
	t.LastSent = p.toldAt
	if p.old == 0 {
		t.LastAck = p.last
	}
	if p.old >= mayBeOld {
		t.Sync, t.Behind, t.Since = isBehind, max(p.size, 1), p.toldAt
	}
}

// summarize counts pollers.
func (ps *pollers) summarize(sum *Summary, now time.Time) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.by {
		sum.Protocols[protocolREST]++
		if p.old < mayBeOld {
			sum.Sync[inStep]++
			continue
		}
		sum.Sync[isBehind]++
		sum.lags(p.toldAt, now)
	}
}

// find returns the poller of a number, or nil.
func (ps *pollers) find(id uint64) *poller {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.byID[id]
}

// interestOf returns the interest of the poller of a number, or nil.
func (ps *pollers) interestOf(id uint64) *interest {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.byID[id]; p != nil {
		return p.current
	}
	return nil
}

// check returns the invariants that do not hold.
func (ps *pollers) check() []string {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	broken := ps.shares.Check()
	if n := ps.shares.Used(); n != len(ps.by) || n != len(ps.byID) {
		broken = append(broken, fmt.Sprintf("pollers: %d have a share, %d have a key and %d a number", n, len(ps.by), len(ps.byID)))
	}
	for sum, p := range ps.bySum {
		if p.current == nil || p.current.sum != sum || ps.by[p.key] != p {
			broken = append(broken, fmt.Sprintf("poller %d is found by a request that is not its last one", p.id))
		}
	}
	return broken
}
