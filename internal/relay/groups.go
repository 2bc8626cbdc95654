package relay

import (
	"context"
	"log/slog"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/upstream"
)

// groups are the groups that live now, by the name that Grouping gives them. It
// implements downstream.Groups.
type groups struct {
	Grouping
	upstream upstream.Config
	hub      fanout.Config
	options  upstream.ClientOptions
	log      *slog.Logger
	run      func(func(context.Context)) // starts a goroutine that Close ends

	mu     sync.Mutex
	byName map[string]*group
}

// group is one Hub and what fills it.
type group struct {
	hub    *fanout.Hub
	cancel context.CancelFunc
	users  int // streams, one for each of their types
	linger *time.Timer
}

// Hub is the Hub that serves a type to a client.
func (g *groups) Hub(client downstream.Peer, node *core.Node, key string, t cache.TypeURL) (*fanout.Hub, func(), *downstream.End) {
	name, upstreamNode, end := g.Group(client, node, key, t)
	if end != nil {
		return nil, nil, end
	}
	gr, end := g.join(name, upstreamNode)
	if end != nil {
		return nil, nil, end
	}
	return gr.hub, func() { g.leave(name, gr) }, nil
}

// join enters a group, which is made if there is none.
func (g *groups) join(name string, node func() *core.Node) (*group, *downstream.End) {
	g.mu.Lock()
	defer g.mu.Unlock()
	gr := g.byName[name]
	if gr == nil {
		if end := g.Admit(len(g.byName)); end != nil {
			return nil, end
		}
		gr = g.start(name, node())
		g.byName[name] = gr
	}
	gr.users++
	if gr.linger != nil {
		gr.linger.Stop()
		gr.linger = nil
	}
	return gr, nil
}

// leave exits a group; the last one out ends it after a while (NODE-10).
func (g *groups) leave(name string, gr *group) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if gr.users--; gr.users > 0 || name == "" {
		return // the default group stays
	}
	gr.linger = time.AfterFunc(g.config.Timers.GroupLinger, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if gr.users == 0 && g.byName[name] == gr {
			delete(g.byName, name)
			gr.cancel()
		}
	})
}

// start makes a group and opens its streams when somebody wants something.
func (g *groups) start(name string, node *core.Node) *group {
	h := g.hub
	if name != "" {
		h.Name = shortHash(name)
	}
	gr := &group{hub: fanout.NewHub(h)}
	c := g.upstream
	c.Node = node
	o := g.options
	o.Hub = gr.hub
	if name != "" {
		o.Log = o.Log.With("group", shortHash(name))
		g.log.Info("group opened", "group", shortHash(name), "upstream_node", node.GetId())
	}
	client := upstream.NewClient(c, o)
	started := make(chan struct{})
	g.run(func(ctx context.Context) {
		ctx, gr.cancel = context.WithCancel(ctx)
		close(started)
		client.Run(ctx)
	})
	<-started
	return gr
}

// stop ends the timers of groups that linger.
func (g *groups) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, gr := range g.byName {
		if gr.linger != nil {
			gr.linger.Stop()
		}
	}
}

// hubs are the groups' Hubs, by the short names that logs use.
func (g *groups) hubs() map[string]*fanout.Hub {
	g.mu.Lock()
	defer g.mu.Unlock()
	hubs := make(map[string]*fanout.Hub, len(g.byName))
	for name, gr := range g.byName {
		if name != "" {
			name = shortHash(name)
		}
		hubs[name] = gr.hub
	}
	return hubs
}
