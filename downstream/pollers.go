package downstream

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/time/rate"

	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/internal/share"
	"github.com/xds-relay/xds-relay/internal/xdsjson"
)

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
	judges chan struct{} // closed when rules change, and then another one
}

func (ps *pollers) init(s *Server) {
	ps.judges = make(chan struct{})
	ps.server, ps.by, ps.bySum, ps.byID = s, make(map[pollerKey]*poller), make(map[fingerprint]*poller), make(map[uint64]*poller)
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
	if end := s.pressed(); end != nil { // those that are there go on
		return nil, end
	}
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
	switch {
	case gone, fresh, !good: // who is refused keeps nothing alive
	case p.timer == nil:
		p.timer = time.AfterFunc(ttl, func() { ps.dropIdle(p) })
	default:
		p.timer.Reset(ttl)
	}
	ps.mu.Unlock()
	ps.forget(replaced)
	if fresh {
		ps.dropIdle(p)
	}
}

// sent counts the bytes of an answer.
func (ps *pollers) sent(p *poller, bytes int) {
	ps.mu.Lock()
	p.bytes += int64(bytes)
	ps.mu.Unlock()
}

// dropIdle ends a poller that does not poll any more, or that was refused what it polled for first.
func (ps *pollers) dropIdle(p *poller) {
	ps.dropIf(p, &session.End{Reason: closedByClient, Message: "the client polls no more"}, func() bool { return p.polls == 0 })
}

// drop ends a poller: its interest, and the polls that are waiting.
func (ps *pollers) drop(p *poller, why *session.End) {
	ps.dropIf(p, why, func() bool { return true })
}

func (ps *pollers) dropIf(p *poller, why *session.End, ends func() bool) {
	ps.mu.Lock()
	if ps.by[p.key] != p || !ends() {
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

func (ps *pollers) list() []*poller {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return slices.Collect(maps.Values(ps.by))
}

// rejudge applies rules that have changed: what a poll waits for is judged again, and what none waits for by the next one.
func (ps *pollers) rejudge() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	close(ps.judges)
	ps.judges = make(chan struct{})
}

// judged is closed when rules change next.
func (ps *pollers) judged() <-chan struct{} {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.judges
}
