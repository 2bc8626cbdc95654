package admin

import (
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/xds-relay/xds-relay/upstream/session"
)

// maxGroupLabels is how many groups have series of their own. Those beyond are counted
// together: groups may be as many as clients.
const maxGroupLabels = 100

// What the group without a key is called everywhere, and the groups beyond maxGroupLabels in series.
const (
	defaultGroup = "default"
	otherGroups  = "other"
)

// upstreamCollector asks the relay at each scrape how its groups get on with their control
// planes.
type upstreamCollector struct {
	relay Relay

	up     *prometheus.Desc
	groups *prometheus.Desc
	state  *prometheus.Desc

	mu    sync.Mutex
	named map[string]bool // groups that have series of their own, while they last
}

func newUpstreamCollector(r Relay) *upstreamCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, help, labels, nil)
	}
	return &upstreamCollector{
		relay:  r,
		named:  make(map[string]bool),
		up:     desc("upstream_up", "1 while the control plane keeps everything current that clients hold and wait for, also if nobody subscribes to anything. 0 if a group is waiting, silent, refused or down (see upstream_groups): for some seconds at a reconnect, and longer when somebody should look."),
		groups: desc("upstream_groups", "Groups by state, each by its worst type: idle (no client subscribes), current, waiting (the relay connects or has asked, and has no answer yet), silent (the control plane is alive and says nothing of a type), refused (it ends the streams) or down (it cannot be reached, or has stopped answering).", "state"),
		state:  desc("upstream_state", "Groups by the state of each control plane of the list: as upstream_groups, or standby where another one is in use. A group has its own series, by its name in /groups (default is the group without a key); groups beyond the first 100 are summed in group other.", "group", "address", "state"),
	}
}

// Describe implements prometheus.Collector.
func (c *upstreamCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.up
	ch <- c.groups
	ch <- c.state
}

// of is what a series of upstream_state counts.
type of struct {
	group, address string
	state          session.Condition
}

// Collect implements prometheus.Collector.
func (c *upstreamCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	up := 1
	groups := make(map[session.Condition]int)
	states := make(map[of]int)
	all := c.relay.Upstream()
	label := c.labels(all)
	zero := func(name, address string) {
		for _, state := range session.Conditions() {
			states[of{name, address, state}] += 0
		}
	}
	for _, address := range c.relay.ControlPlanes() {
		zero(defaultGroup, address)
	}
	for name, s := range all {
		for _, e := range s.Entries {
			zero(label[name], e.Name)
			states[of{label[name], e.Name, e.Condition}]++
			if !e.InUse {
				continue
			}
			groups[e.Condition]++
			if e.Condition.Fails() {
				up = 0
			}
		}
	}
	gauge(c.up, up)
	for _, state := range session.Conditions() {
		if state != session.Standby {
			gauge(c.groups, groups[state], string(state))
		}
	}
	for s, n := range states {
		gauge(c.state, n, s.group, s.address, string(s.state))
	}
}

// labels are what the groups are called in series. One that has a series of its own keeps it
// while it lasts.
func (c *upstreamCollector) labels(all map[string]session.State) map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.named, func(name string, _ bool) bool {
		_, lives := all[name]
		return !lives
	})
	labels := make(map[string]string, len(all))
	if _, lives := all[defaultGroup]; lives {
		c.named[defaultGroup] = true // before others take its place
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if len(c.named) < maxGroupLabels {
			c.named[name] = true
		}
		if labels[name] = name; !c.named[name] {
			labels[name] = otherGroups
		}
	}
	return labels
}
