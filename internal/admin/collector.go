package admin

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/certs"
	"github.com/xds-relay/xds-relay/internal/csds"
	"github.com/xds-relay/xds-relay/internal/health"
)

// Relay is what the package asks of the relay it describes. Every method may be
// called at any time and from any goroutine.
type Relay interface {
	// Ready reports whether it can serve, and if not, why.
	Ready() (ready bool, why string)
	// Readiness is what Ready comes of; Started reports whether it was ready at least once.
	Readiness() []health.Check
	Started() bool
	// Liveness says of each part of the relay whether it makes progress; it never waits.
	Liveness() []health.Check
	// Count is the number of open client streams.
	Count() int
	// Clients describes the open client streams, oldest first.
	Clients() []downstream.Client
	// Client describes an open stream, if there is one of this number, and ClientNames the resources that its
	// client has or asks for, in order of their names, after a name and at most so many.
	Client(stream uint64) (c downstream.Client, ok bool)
	ClientNames(stream uint64, t cache.TypeURL, after string, most int) (names []session.ClientName, more bool)
	// ClientName describes one resource, as a client has it; some: the client has to do with it.
	ClientName(stream uint64, t cache.TypeURL, name string) (n session.ClientName, some bool)
	// ClientLacks describes the resources that a client has not accepted as they are, at a cost that does not grow with
	// what it has accepted.
	ClientLacks(stream uint64, t cache.TypeURL) []session.ClientName
	// Disconnect ends a client's stream, and Resync has its client sent again all that it asks for. They report whether
	// there is such a stream.
	Disconnect(stream uint64) bool
	Resync(stream uint64) bool
	// Holders are the versions of a resource that a group's clients have.
	Holders(hub *fanout.Hub, t cache.TypeURL, name string) []downstream.Holder
	// StartDrain has the relay report that it is not ready and, if away is set, refuse new streams and end the open
	// ones over a time. StopDrain ends that.
	StartDrain(away bool, over time.Duration) (clients int)
	StopDrain()
	// Streams, View, Groups and Upstream are what CSDS shows.
	csds.Relay
	// Health is the answer to gRPC's health checks, by the same rule as Ready.
	Health() healthpb.HealthServer
	// Check says what does not hold, of the streams of clients, that has to hold at any time.
	Check() []string
	// Calls counts the open calls of each service that goes through to the control plane.
	Calls() map[string]int
	// Summary counts the open client streams without looking at their names.
	Summary() downstream.Summary
	// ControlPlanes are the addresses of the control planes, in order of preference.
	ControlPlanes() []string
	// Silent counts, for each type, the groups for which the control plane, though
	// alive, says nothing of the type.
	Silent() map[cache.TypeURL]int
	// Certificates are the certificates and authorities in use.
	Certificates() []certs.State
}

// stateCollector reads the relay's state at each scrape, so that a gauge
// cannot drift away from the state.
type stateCollector struct {
	relay Relay

	ready         *prometheus.Desc
	groups        *prometheus.Desc
	clients       *prometheus.Desc
	connections   *prometheus.Desc
	most          *prometheus.Desc
	inflight      *prometheus.Desc
	mostStreams   *prometheus.Desc
	names         *prometheus.Desc
	mostNames     *prometheus.Desc
	pressed       *prometheus.Desc
	sync          *prometheus.Desc
	laggards      *prometheus.Desc
	refused       *prometheus.Desc
	subscriptions *prometheus.Desc
	resources     *prometheus.Desc
	states        *prometheus.Desc
	bytes         *prometheus.Desc
	held          *prometheus.Desc
	absent        *prometheus.Desc
	silent        *prometheus.Desc
	doubtful      *prometheus.Desc
	withheld      *prometheus.Desc
	perGroup      *prometheus.Desc
	warm          *prometheus.Desc
	calls         *prometheus.Desc
}

func newStateCollector(r Relay) *stateCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, help, labels, nil)
	}
	return &stateCollector{
		relay:         r,
		ready:         desc("ready", "1 if /readyz answers 200."),
		groups:        desc("groups", "Groups of clients, each with its own streams to the control plane."),
		clients:       desc("clients", "Open client streams; rest counts the polls that are remembered, each of a client, a type and its names.", "protocol"),
		connections:   desc("client_connections", "Open connections of clients, with and without streams."),
		most:          desc("client_connections_limit", "How many connections clients may have: downstream.max_connections, or what the limit of file descriptors leaves. 0 is no limit."),
		inflight:      desc("client_inflight_bytes", "Bytes of memory that requests of clients take which are not complete or not taken in yet; downstream.max_inflight_bytes bounds it. Small requests that arrive whole do not count."),
		mostStreams:   desc("clients_limit", "How many streams all clients may have together: downstream.max_streams. 0 is no limit."),
		names:         desc("client_names", "Names that the streams of all clients keep: those that they subscribe to, and some that they have just given up."),
		mostNames:     desc("client_names_limit", "How many of these there may be: downstream.max_names. 0 is no limit."),
		pressed:       desc("memory_pressure", "1 while live memory exceeds 90 % of GOMEMLIMIT or of the cgroup's limit, so that the relay takes no new client streams."),
		sync:          desc("client_sync_state", "Open client streams by the worst state of their types: synced, unsent (a response waits to be sent), unacked (the client owes an ACK) or nacked (its last verdict was a rejection).", "state"),
		laggards:      desc("laggards", "Open client streams that have not been in step with some type for longer than 5 s, 30 s or 5 min: a response was not acknowledged or was rejected, or a change was not sent. One that is out of step for longer than 5 min counts in all three.", "over"),
		refused:       desc("client_refused_types", "Types that the relay refuses on open client streams whose other types it serves: the client has no identity (forbidden), or there is no room for another group (too_many). told says what the client gets. errors: an error for each name. nothing: no response, so that the client waits; this is for a client that subscribes to the wildcard, and for a SotW client that came back with a full-state set.", "type", "reason", "told"),
		subscriptions: desc("subscriptions", "Clients with the wildcard of a type, and pairs of a client and a name it subscribes to.", "type", "kind"),
		resources:     desc("cache_resources", "Resources held, by distinct name within a group.", "type"),
		states:        desc("resources_by_state", "Resources that the relay subscribes to, by what it knows of each, in the words of gRPC's xDS client (gRFC A78, A88): acked; requested (the control plane has not answered), nacked (it sent what cannot be used), does_not_exist, received_error, timeout (it was silent about the name); each of the last five with _but_cached if a copy is served all the same. requested_but_cached comes from disk, does_not_exist_but_cached is a removal that the guard holds back.", "type", "state"),
		held:          desc("cache_removals_held", "Removals that the mass-removal guard holds back; somebody should look when it is above 0.", "type"),
		absent:        desc("absent_names", "Names that clients subscribe to and that do not exist, by the reason: the control plane has removed the name or reported it missing (removed, not_found), has listed everything without it (sweep), has not answered it for timers.dne_timeout (timer), or has not renewed it (ttl).", "type", "cause"),
		silent:        desc("upstream_silent_groups", "Groups for which the control plane, though alive, has said nothing of a type for timers.dne_timeout while clients wait: it may not know the node that the relay shows. The log and /groups say more.", "type"),
		doubtful:      desc("doubtful_names", "Names of which the relay has no resource although one may exist: the control plane has announced them in a form that cannot be used, or is silent about them on a stream that has carried nothing of the type. Clients that came with a copy keep it.", "type"),
		withheld:      desc("clients_withheld", "Client streams from which the relay withholds resources or removals of a type because they are not certain: a name is in doubt (doubtful_names), or the resources are from disk and not confirmed (cache_unconfirmed).", "type"),
		perGroup:      desc("group_clients", "Client streams of each group; a stream with types of several groups counts in each."),
		warm:          desc("cache_unconfirmed", "1 while the relay serves resources of a type from disk for which the control plane has not answered yet.", "type"),
		calls:         desc("passthrough_calls", "Open calls of each service that goes through to the control plane (passthrough).", "service"),
		bytes:         desc("cache_bytes", "Bytes of the resources held, in wire form.", "type"),
	}
}

// Describe implements prometheus.Collector.
func (c *stateCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.refused
	ch <- c.connections
	ch <- c.most
	ch <- c.inflight
	ch <- c.mostStreams
	ch <- c.names
	ch <- c.mostNames
	ch <- c.pressed
	ch <- c.laggards
	ch <- c.states
	ch <- c.calls
	for _, d := range []*prometheus.Desc{c.ready, c.groups, c.clients, c.sync, c.subscriptions, c.resources, c.bytes, c.held, c.absent, c.silent, c.doubtful, c.withheld, c.warm, c.perGroup} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *stateCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	ready := 0
	if ok, _ := c.relay.Ready(); ok {
		ready = 1
	}
	gauge(c.ready, ready)

	summary := c.relay.Summary()
	gauge(c.connections, summary.Connections)
	gauge(c.most, summary.MaxConnections)
	gauge(c.inflight, summary.Inflight)
	gauge(c.mostStreams, summary.MaxStreams)
	gauge(c.names, summary.Names)
	gauge(c.mostNames, summary.MaxNames)
	gauge(c.pressed, map[bool]int{true: 1}[summary.Pressed])
	for _, protocol := range protocols {
		gauge(c.clients, summary.Protocols[protocol], protocol)
	}
	for _, state := range session.SyncStates() {
		gauge(c.sync, summary.Sync[state], string(state))
	}
	for service, calls := range c.relay.Calls() {
		gauge(c.calls, calls, service)
	}
	for i, over := range laggards {
		gauge(c.laggards, summary.Lagging[i], over)
	}

	// Types outside the type table share the label "other".
	hubs := c.relay.Groups()
	gauge(c.groups, len(hubs))
	ch <- clientsPerGroup(c.perGroup, summary.Groups, len(hubs))
	totals := map[string]fanout.TypeSummary{}
	for _, hub := range hubs {
		for _, s := range hub.Summarize() {
			t := totals[s.Type.Short()]
			t.Resources += s.Resources
			t.Bytes += s.Bytes
			t.Restored = t.Restored || s.Restored
			t.Wildcards += s.Wildcards
			t.Named += s.Named
			t.Held += s.Held
			t.InDoubt += s.InDoubt
			t.Withheld += s.Withheld
			t.Absent, t.States = added(t.Absent, s.Absent), added(t.States, s.States)
			totals[s.Type.Short()] = t
		}
	}
	silent := map[string]int{}
	for t, n := range c.relay.Silent() {
		silent[t.Short()] += n
	}
	for _, short := range cache.Shorts() {
		t := totals[short]
		gauge(c.silent, silent[short], short)
		for _, r := range refusedTypes(short) {
			gauge(c.refused, summary.Refused[r], short, string(r.Reason), string(r.Notice))
		}
		for cause, name := range causes {
			gauge(c.absent, t.Absent[cause], short, name)
		}
		for _, state := range fanout.ClientStates() {
			gauge(c.states, t.States[state], short, string(state))
		}
		gauge(c.resources, t.Resources, short)
		gauge(c.bytes, t.Bytes, short)
		gauge(c.held, t.Held, short)
		gauge(c.doubtful, t.InDoubt, short)
		gauge(c.withheld, t.Withheld, short)
		gauge(c.warm, map[bool]int{true: 1}[t.Restored], short)
		gauge(c.subscriptions, t.Wildcards, short, "wildcard")
		gauge(c.subscriptions, t.Named, short, "named")
	}
}

// laggards are the labels of downstream.LagSteps.
var laggards = [len(downstream.LagSteps)]string{"5s", "30s", "5m"}

// protocols are the variants that streams of clients speak, and that of clients that poll.
var protocols = []string{"delta", "sotw", "rest"}

// added is the sum of two counts.
func added[K comparable](a, b map[K]int) map[K]int {
	sum := maps.Clone(a)
	if sum == nil {
		sum = make(map[K]int)
	}
	for of, n := range b {
		sum[of] += n
	}
	return sum
}

// groupSizes are the bounds of the buckets of clientsPerGroup.
var groupSizes = []float64{0, 1, 2, 5, 10, 50, 100, 500, 1000, 5000, 10000}

// clientsPerGroup is how groups are spread over sizes at this moment: one client each
// means that the key is too fine, and all in one that it may be too coarse (H-24).
// sizes are those of the groups that have any.
func clientsPerGroup(d *prometheus.Desc, sizes []int, groups int) prometheus.Metric {
	groups = max(groups, len(sizes)) // they were asked one after the other
	sizes = append(slices.Clone(sizes), make([]int, groups-len(sizes))...)
	sum, buckets := 0, make(map[float64]uint64, len(groupSizes))
	for _, size := range sizes {
		sum += size
		for _, bound := range groupSizes {
			if float64(size) <= bound {
				buckets[bound]++
			}
		}
	}
	return prometheus.MustNewConstHistogram(d, uint64(groups), float64(sum), buckets)
}
