package relay

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/hop"
	"github.com/xds-relay/xds-relay/upstream"
)

// passage leads calls of other services to the control plane in use (LRS-2). Each group of discovery chooses its own
// control plane (UP-14), and most calls belong to no group. So the one in use is, for all calls, the one by which most
// groups were answered last; it stays as long as no other has more. passage is a downstream.Through.
type passage struct {
	groups *groups
	hop    string
	log    *slog.Logger
	loads  *loads

	mu    sync.Mutex
	ways  []way // in order of preference
	inUse destination
}

// destination is a way, for as long as it is the one in use.
type destination struct {
	way
	over context.Context //nolint:containedctx // it lasts as long as the destination is in use
	end  context.CancelFunc
}

// lookEvery is how often a passage looks whether another control plane is in use.
const lookEvery = time.Second

func newPassage(g *groups, ways []way, o Options) *passage {
	p := &passage{groups: g, hop: o.Hop, log: o.Log.With("component", "upstream"), ways: ways}
	p.loads = newLoads(p, o.Loads)
	p.use(ways[0])
	return p
}

// services are those that go through by a configuration.
func services(c *config.Config) (all []downstream.Service) {
	for _, p := range c.EffectivePassthrough() {
		all = append(all, downstream.Service{
			Name: p.Service, MaxCalls: p.EffectiveMaxCalls(), ForwardHeaders: p.ForwardHeaders,
			SaysNode: p.Service == config.LoadReporting, Summed: p.Aggregate,
		})
	}
	return all
}

// forCalls are the ways that calls can take: those of upstream itself (UP-27), and files only if there is nothing else.
func forCalls(c *config.Config, ways []way) []way {
	own := ways[:len(c.Upstream.Entries())]
	others := slices.DeleteFunc(slices.Clone(own), func(w way) bool { return w.feed != nil })
	if len(others) == 0 {
		return own
	}
	return others
}

// run looks which control plane is in use, until ctx ends.
func (p *passage) run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.choose()
		}
	}
}

// offer replaces the ways to the control planes. Calls on one that is not among them any more end.
func (p *passage) offer(ways []way) {
	p.mu.Lock()
	p.ways = ways
	p.mu.Unlock()
	p.choose()
}

// choose puts the way to use by which most groups were answered.
func (p *passage) choose() {
	groups := make(map[*upstream.Conn]int)
	for _, c := range p.groups.clients() {
		groups[c.Serving()]++
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	best := p.ways[0]
	if slices.ContainsFunc(p.ways, func(w way) bool { return w.conn == p.inUse.conn }) {
		best = p.inUse.way
	}
	for _, w := range p.ways {
		if groups[w.conn] > groups[best.conn] {
			best = w
		}
	}
	if best.conn != p.inUse.conn {
		p.log.Info("calls of other services go to another control plane", "address", best.made.entry.Address, "instead_of", p.inUse.made.entry.Address)
		p.inUse.end()
		p.use(best)
	}
}

// use puts a way to use. The mutex is held.
func (p *passage) use(w way) {
	over, end := context.WithCancel(context.Background())
	p.inUse = destination{w, over, end}
}

func (p *passage) destination() destination {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inUse
}

// Admit implements downstream.Through. What the client says goes up as it is, so that it may not say whose client it is
// (NODE-6).
func (p *passage) Admit(client session.Peer, node *core.Node) *session.End {
	if identityIn(node) != "" && !p.groups.vouches(client) {
		return &session.End{Reason: session.Forbidden, Message: fmt.Sprintf("xds-relay: the node says %s in its metadata, which only the relays of downstream.relays may say; remove it", config.ClientIdentity)}
	}
	rules := p.groups.rules.now.Load()
	if rules == nil || node == nil && rules.Names(client.Principal) { // what rules say of nodes is about what is shown to the control plane as one
		return nil
	}
	_, end := rules.match(client, node)
	return end
}

// Open implements downstream.Through.
func (p *passage) Open(ctx context.Context, o downstream.Opening) (downstream.ThroughCall, error) {
	client := o.Client
	if loop := hop.Loop(client.Via, client.Way(), p.hop); loop != "" {
		return nil, &session.End{Reason: session.Looped, Message: loop}
	}
	if o.Service.Summed {
		return p.loads.open(ctx, o)
	}
	to, headers := p.destination(), client.Headers
	if !p.forwards(to.made.entry.Address) {
		headers = nil
	}
	via := append(slices.Clip(client.Way()), p.hop)
	call, err := to.calls.Call(ctx, o.Method, via, headers)
	redirected := to.redirected()
	switch {
	case err != nil && to.over.Err() != nil:
		return nil, redirected
	case err != nil:
		return nil, err
	}
	stop := context.AfterFunc(to.over, func() { client.End(redirected) })
	return &led{call, stop}, nil
}

// forwards reports whether an entry gets the headers of clients.
func (p *passage) forwards(address string) bool {
	p.groups.mu.Lock()
	defer p.groups.mu.Unlock()
	return slices.ContainsFunc(p.groups.live.Upstream.Entries(), func(e config.Entry) bool { return e.Name == address && e.ForwardHeaders })
}

// settings are how many groups there may be, and how long one outlives its last client.
func (p *passage) settings() (groups int, linger time.Duration) {
	p.groups.mu.Lock()
	defer p.groups.mu.Unlock()
	return p.groups.live.Groups.Max, p.groups.live.Timers.GroupLinger
}

// redirected is why calls end when another control plane is put to use.
func (d destination) redirected() *session.End {
	return &session.End{Reason: session.Redirected, Message: fmt.Sprintf("xds-relay: the control plane %s is not in use any more, or its settings have changed; call again, and the call goes to the one in use", d.made.entry.Address)}
}

// led is a call to a control plane that may be replaced.
type led struct {
	*upstream.Call
	stop func() bool
}

// Leave implements downstream.ThroughCall.
func (l *led) Leave() {
	l.stop()
	l.Call.Leave()
}
