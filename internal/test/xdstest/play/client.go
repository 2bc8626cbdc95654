package play

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/policy"
	"github.com/xds-relay/xds-relay/internal/test/xdstest"
)

// client is a client and the relay's end of its stream: it takes the
// place of downstream's stream.
type client struct {
	actor    string
	peer     session.Peer
	dialogue *xdstest.Dialogue
	session  *session.Session // nil: it has no stream
	fetches  bool             // the session is a unary call's
	evicted  *session.End     // the relay's reason to end the stream
	knows    known            // what it holds
	kind     cache.TypeURL    // of a per-type stream
}

func (p *player) client(actor string) *client {
	for _, c := range p.clients {
		if c.actor == actor {
			return c
		}
	}
	c := &client{actor: actor, peer: session.Peer{Local: true, Principal: policy.Anonymous}}
	p.clients = append(p.clients, c)
	return c
}

// say takes in what a client does on its stream.
func (c *client) say(p *player, cmd xdstest.Command) error {
	switch {
	case cmd.Verb == "open" && c.session != nil:
		return fmt.Errorf("%s has a stream open: close it first, or use another client", c.actor)
	case cmd.Verb == "fetch" && c.session != nil:
		return fmt.Errorf("%s has a stream or a call open: use another client", c.actor)
	case cmd.Verb == "fetch":
		c.open(p, xdstest.Command{Variant: "sotw", TypeURL: cmd.TypeURL, Options: cmd.Options})
		c.fetches = true
		cmd.Verb = "req"
	case cmd.Verb == "open":
		c.open(p, cmd)
		return nil
	case c.dialogue == nil:
		c.open(p, xdstest.Command{Verb: "open", Variant: "delta"})
	case c.session == nil:
		return fmt.Errorf("%s has no open stream: say open first", c.actor)
	}
	switch cmd.Verb {
	case "close":
		c.close(p)
		return nil
	case "garbage":
		c.end(p, errGarbled)
		return nil
	}
	m, err := c.dialogue.Request(cmd)
	if err != nil {
		return err
	}
	var end *session.End
	switch req := proto.Clone(m).(type) { // the client keeps its own
	case *discovery.DeltaDiscoveryRequest:
		_, end = c.session.DeltaRequest(req, p.now)
	case *discovery.DiscoveryRequest:
		_, end = c.session.SotWRequest(req, p.now)
	}
	if end != nil {
		c.end(p, status.Error(codes.Code(end.Code()), end.Message))
		return nil
	}
	t := cmp.Or(cache.TypeURL(m.(interface{ GetTypeUrl() string }).GetTypeUrl()), c.kind)
	c.knows.asks(m, t, p.emptyIsWildcard(t))
	p.fault = cmp.Or(p.fault, c.recorded(p.now))
	return nil
}

func (c *client) open(p *player, cmd xdstest.Command) {
	if from, ok := cmd.Options["from"]; ok && c.dialogue == nil {
		c.peer.Local, c.peer.Holder = net.ParseIP(from).IsLoopback(), from
	}
	c.peer.Relay = c.peer.Local || c.peer.Identity != "" && slices.Contains(p.session.Relays, c.peer.Identity)
	c.peer.Via = nil
	if via := cmd.Options["via"]; via != "" {
		c.peer.Via = strings.Split(via, ",")
	}
	pairs, err := cmd.Headers()
	p.fault = cmp.Or(p.fault, err)
	headers := make(map[string][]string)
	for _, h := range pairs {
		headers[h[0]] = append(headers[h[0]], h[1])
	}
	c.peer.Sent(headers, &p.session)
	c.evicted = nil
	c.peer.End = func(e *session.End) { c.evicted = e }
	c.dialogue = xdstest.NewDialogue(c.actor, cmd, p.transcript)
	kind := session.Stream{Delta: !c.dialogue.SotW, Type: cache.TypeURL(cmd.TypeURL), V2: cmd.V2()}
	c.knows, c.kind = known{}, kind.Type
	c.session = session.New(&p.session, kind, c.peer, p, p.deliveries, func() {})
}

// flush sends the next response if there is one, through the wire's own form.
func (p *player) flush(c *client) (busy bool) {
	if c.session == nil {
		return false
	}
	next := c.session.Next
	if c.fetches {
		next = c.session.Whole
	}
	r, end := next(p.now)
	if c.evicted != nil {
		r, end = nil, c.evicted
	}
	if end != nil {
		c.end(p, status.Error(codes.Code(end.Code()), end.Message))
		return true
	}
	if r == nil {
		return false
	}
	var m proto.Message = new(discovery.DeltaDiscoveryResponse)
	if c.dialogue.SotW {
		m = new(discovery.DiscoveryResponse)
	}
	err := proto.Unmarshal(downstream.Marshal(r), m)
	text, fault := c.dialogue.Hear(m)
	p.hear(c.actor, c.heard(text))
	c.knows.told(r, c.dialogue.SotW && p.full(r.Type))
	p.fault = cmp.Or(p.fault, err, fault, c.recorded(p.now))
	if p.told != nil {
		p.told(c, m)
	}
	if c.fetches {
		c.close(p)
	}
	return true
}

// heard is what is heard, in the words for a stream or for a call.
func (c *client) heard(text string) string {
	if c.fetches {
		return xdstest.Fetched(text)
	}
	return text
}

// end is how the relay ends a client's stream.
func (c *client) end(p *player, err error) {
	p.hear(c.actor, c.heard(xdstest.Ending(err)))
	c.close(p)
}

func (c *client) close(p *player) {
	c.session.Close(p.now)
	c.session, c.fetches = nil, false
}
