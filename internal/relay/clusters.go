package relay

// clusters notes whether the clients of one group differ in node.cluster. If the relay
// shows the control plane a fixed cluster, and the control plane chooses its answers by it,
// some clients get the answers meant for others (NODE-5).
type clusters struct {
	first string
	mixed bool // there was another
}

// add takes in a client's. It reports whether that is the first that differs.
func (c *clusters) add(cluster string) (news bool) {
	switch {
	case cluster == "": // it has no cluster that could differ
	case c.first == "":
		c.first = cluster
	case c.first != cluster && !c.mixed:
		c.mixed = true
		return true
	}
	return false
}

// compare logs once for each group that its clients differ, if the relay shows the
// control plane a cluster that is not theirs. Where the cluster is in the key they
// cannot differ.
func (g *groups) compare(gr *group, cluster string) {
	fixed := g.config.Upstream.Node.Cluster
	if fixed == "" {
		return // there is none to choose by
	}
	g.mu.Lock()
	news := gr.shown.add(cluster)
	first := gr.shown.first
	g.mu.Unlock()
	if news {
		g.log.Warn("clients of one group differ in node.cluster, and the control plane sees upstream.node.cluster for all of them: if its answers depend on the cluster, put cluster into groups.key",
			"group", gr.hub.Name(), "upstream_cluster", fixed, "cluster", first, "other", cluster)
	}
}
