package relay

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	lrs "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/header"
	"github.com/xds-relay/xds-relay/internal/loadreport"
	"github.com/xds-relay/xds-relay/internal/passthrough"
)

// Load reports can be added up (LRS-4): the calls of a group's clients end here, as reporters, and a loadGroup has one call
// to the control plane in their place (loadstream.go). Package loadreport adds up. For their server, reporters are calls
// like others that go through, with the same bounds, rules and metrics.

// LoadObserver hears of sums of load reports. Its methods may be called from any goroutine, and must not block.
type LoadObserver interface {
	// LoadReported: a sum was sent to the control plane.
	LoadReported(bytes int)
	// LoadDropped: n parts of clients' reports are in no sum.
	LoadDropped(reason loadreport.Reason, n int)
}

// loadMethod is the one method of the service.
const loadMethod = "/" + config.LoadReporting + "/StreamLoadStats"

// sumsAll is what an LRS client can do that the relay can, too: report all clusters without being told their names.
const sumsAll = "envoy.lrs.supports_send_all_clusters"

// loadRoom bounds the sums of all groups, in bytes of memory.
const loadRoom = 64 << 20

// loads are the groups whose load is added up.
type loads struct {
	passage  *passage
	observer LoadObserver // may be nil
	room     *loadreport.Room

	mu     sync.Mutex // comes before that of a loadGroup
	groups map[string]*loadGroup
	closed bool
}

func newLoads(p *passage, o LoadObserver) *loads {
	return &loads{passage: p, observer: o, room: loadreport.NewRoom(loadRoom), groups: make(map[string]*loadGroup)}
}

// loadGroup is the load of the clients that are in one group for their Clusters.
type loadGroup struct {
	of       *loads
	name     string
	clusters string // the name of the group of discovery
	node     *core.Node
	headers  []header.Header
	log      *slog.Logger
	wake     chan struct{} // one slot: its goroutine is to look
	done     chan struct{} // its goroutine has ended
	later    *time.Timer   // it wakes when the last client has been away for long enough

	mu        sync.Mutex
	sum       *loadreport.Sum
	reporters map[*reporter]bool
	lacking   int           // of the reporters, do not understand send_all_clusters
	left      time.Time     // when the last one left
	via       []string      // the longest way by which one has come (NODE-11)
	answer    *loadAnswer   // the control plane's last; nil: it has not answered yet
	rules     *Rules        // under which reporters have looked at it
	changed   chan struct{} // closed when reporters are to look at the answer
}

// loadAnswer is what the control plane asks for. It never changes.
type loadAnswer struct {
	*lrs.LoadStatsResponse
	wire  []byte
	names []string // of the group's Clusters, for clients that do not understand send_all_clusters
}

// open takes in a client's call.
func (l *loads) open(ctx context.Context, o downstream.Opening) (downstream.ThroughCall, error) {
	if o.Method != loadMethod {
		return nil, status.Errorf(codes.Unimplemented, "xds-relay: unknown method %.200s; load reports are added up here", o.Method)
	}
	node, err := passthrough.ReadNode(o.Node)
	if err != nil {
		return nil, err
	}
	at, end := l.placeOf(o.Client, node)
	if end != nil {
		return nil, end
	}
	most, _ := l.passage.settings()
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.groups[at.name]
	switch {
	case l.closed:
		return nil, &session.End{Reason: session.ShuttingDown, Message: "xds-relay: the relay is shutting down"}
	case g == nil && len(l.groups) >= most:
		return nil, &session.End{Reason: session.Overcrowded, Message: "xds-relay: there are groups.max groups that report load already; raise it, or use a coarser groups.key"}
	case g == nil:
		g = l.start(at)
	}
	return g.join(ctx, o, at, slices.Contains(node.GetClientFeatures(), sumsAll)), nil
}

// loadPlace is where a client's load belongs.
type loadPlace struct {
	name, clusters string
	node           *core.Node
	headers        []header.Header
}

// placeOf finds it: with the group that has the client's Clusters. All load goes to upstream itself (UP-27), to which the
// group shows the node that it would show if its Clusters came from there (NODE-7).
func (l *loads) placeOf(client session.Peer, node *core.Node) (loadPlace, *session.End) {
	g := l.passage.groups
	p, end := g.Place(client, node, cache.Cluster, nil)
	if end != nil {
		return loadPlace{}, end
	}
	at := loadPlace{clusters: p.groupName(), headers: p.Headers}
	p.provider = provider{}
	at.name, at.node = p.groupName(), proto.CloneOf(g.Node(p, node))
	at.node.ClientFeatures = append(at.node.ClientFeatures, sumsAll)
	return at, nil
}

// start makes a group. The mutex is held.
func (l *loads) start(at loadPlace) *loadGroup {
	g := &loadGroup{
		of: l, name: at.name, clusters: at.clusters, node: at.node, headers: at.headers, log: l.passage.log.With("group", nameOf(at.name)),
		wake: make(chan struct{}, 1), done: make(chan struct{}), reporters: make(map[*reporter]bool), changed: make(chan struct{}),
	}
	g.sum, g.left = loadreport.New(l.room, l.dropped, time.Now()), time.Now()
	g.later = time.AfterFunc(leaveWithin, g.look) // its first client is here by then
	l.groups[g.name] = g
	l.passage.groups.run(g.run)
	return g
}

func (l *loads) dropped(reason loadreport.Reason, n int) {
	if l.observer != nil {
		l.observer.LoadDropped(reason, n)
	}
}

// leaveWithin is how long the last report of a group may take.
const leaveWithin = time.Second

// close has all groups report what they have left, and end. No client is there any more.
func (l *loads) close() {
	l.mu.Lock()
	l.closed = true
	var last []*loadGroup
	for _, g := range l.groups {
		g.look()
		last = append(last, g)
	}
	l.mu.Unlock()
	late := time.After(2 * leaveWithin)
	for _, g := range last {
		select {
		case <-g.done:
		case <-late:
			return // it waits for a control plane that does not read
		}
	}
}

// over says whether the group's last client has left for good, and if so has it gone.
func (g *loadGroup) over(gone bool) bool {
	_, linger := g.of.passage.settings()
	g.of.mu.Lock()
	defer g.of.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	lingers := len(g.reporters) > 0 || time.Since(g.left) < linger
	if lingers && !g.of.closed {
		return false
	}
	if gone {
		g.later.Stop()
		delete(g.of.groups, g.name)
		g.sum.Abandon()
	}
	return true
}

// deserted: nobody reports load just now.
func (g *loadGroup) deserted() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.reporters) == 0
}

// way is the longest by which a reporter has come.
func (g *loadGroup) way() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.via
}

// join makes a reporter.
func (g *loadGroup) join(ctx context.Context, o downstream.Opening, at loadPlace, all bool) *reporter {
	r := newReporter(ctx, g, o, all)
	g.mu.Lock()
	defer g.mu.Unlock()
	r.client = g.sum.Join()
	g.reporters[r] = true
	if !all {
		g.lacking++
	}
	if way := o.Client.Way(); len(way) > len(g.via) {
		g.via = way
		g.look()
	}
	return r
}

// leave takes a reporter out.
func (g *loadGroup) leave(r *reporter) {
	_, linger := g.of.passage.settings()
	g.mu.Lock()
	defer g.mu.Unlock()
	r.client.Leave()
	delete(g.reporters, r)
	if !r.all {
		g.lacking--
	}
	if len(g.reporters) == 0 {
		g.left = time.Now()
		g.look()
		g.later.Reset(linger)
	}
}

// look wakes the group's goroutine.
func (g *loadGroup) look() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// tell has reporters look at the answer. The mutex is held.
func (g *loadGroup) tell() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// refuse ends all reporters with what the control plane has said: it has no such service.
func (g *loadGroup) refuse(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for r := range g.reporters {
		r.stop(err)
	}
}

// ask takes in an answer of the control plane, and returns the interval that it wants.
func (g *loadGroup) ask(r *lrs.LoadStatsResponse) time.Duration {
	wire, err := proto.Marshal(r)
	if err != nil {
		return defaultInterval // what came over the wire can be encoded
	}
	g.mu.Lock()
	g.sum.Ask(r)
	g.answer = &loadAnswer{LoadStatsResponse: r, wire: wire}
	g.tell()
	g.mu.Unlock()
	g.refresh()
	every := r.GetLoadReportingInterval().AsDuration()
	if every <= 0 {
		return defaultInterval
	}
	return max(every, minInterval)
}

// refresh has reporters look at the answer again if there are other rules, or clients that do not understand
// send_all_clusters and for which the group has other Clusters now (LRS-4).
func (g *loadGroup) refresh() {
	g.mu.Lock()
	a := g.answer
	names := a != nil && a.GetSendAllClusters() && g.lacking > 0
	g.mu.Unlock()
	var has []string
	if names {
		has = g.of.passage.groups.clusterNames(g.clusters)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if names && !slices.Equal(a.names, has) {
		g.answer = &loadAnswer{a.LoadStatsResponse, a.wire, has}
		g.tell()
	}
	if rules := g.of.passage.groups.rules.now.Load(); rules != g.rules {
		g.rules = rules
		g.tell()
	}
}

// clusterNames are the names of the Clusters that a group has.
func (g *groups) clusterNames(group string) (names []string) {
	g.mu.Lock()
	gr := g.byName[group]
	g.mu.Unlock()
	if gr == nil {
		return nil
	}
	all, _ := gr.hub.Of(cache.Cluster).Describe(fanout.Place{}, math.MaxInt, func(string) bool { return true })
	for _, d := range all {
		if d.Resource != nil {
			names = append(names, d.Resource.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
