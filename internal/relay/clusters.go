package relay

// clusters is whether the clients of one group differ in node.cluster. A control plane that
// is shown a fixed one, and chooses by it what it sends, sends some of them what is meant
// for others (NODE-5).
type clusters struct {
	first string
	mixed bool // there was another
}

// add takes in a client's. It reports whether that is the first that differs.
func (c *clusters) add(cluster string) (news bool) {
	switch {
	case cluster == "": // it says nothing of itself that could differ
	case c.first == "":
		c.first = cluster
	case c.first != cluster && !c.mixed:
		c.mixed = true
		return true
	}
	return false
}

// compare tells people once of each group whose clients differ, if the control plane is
// shown a cluster that is not theirs. Where the key has the cluster they cannot differ.
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
		g.log.Warn("clients of one group differ in node.cluster, and the control plane is shown upstream.node.cluster for all of them: if it chooses by that what it sends, put cluster into groups.key",
			"group", gr.hub.Name(), "upstream_cluster", fixed, "cluster", first, "other", cluster)
	}
}
