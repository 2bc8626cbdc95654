package twin

import "fmt"

// Games of many names, beside the few that have aliases. What is quadratic in the relay is
// felt here, and what is split is split into many parts.

// manyNames are the first n of them.
func manyNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("r%d", i)
	}
	return names
}

// isAlias: a name may be an alias.
func isAlias(name string) bool { return name == poolAliases[0] || name == poolAliases[1] }

// aliased are the names to look at, beside the asked one itself, for what it leads to: those
// that may have aliases.
func aliased(asked string) []string {
	if isAlias(asked) {
		return poolNames[:len(poolNames):len(poolNames)]
	}
	return nil
}

// names are all that a control plane has ever had, the few first.
func (p *controlPlane) names() []string {
	if p.many > len(p.all) {
		p.all = manyNames(p.many)
	}
	return append(poolNames[:len(poolNames):len(poolNames)], p.all[:p.many]...)
}

// playMany is what is done with many names at once.
func (g *Game) playMany(o Op, k kind) {
	n := min(max(o.N, 0), 10000)
	switch o.Verb {
	case "many":
		p := g.plane(o)
		for _, q := range g.planes {
			q.many = max(q.many, n)
		}
		for _, name := range manyNames(n) {
			p.set(k, name, nil)
		}
	case "few":
		p := g.plane(o)
		for _, name := range manyNames(n) {
			delete(p.world[k.name], name)
		}
	case "subs", "unsubs":
		p := g.player(o.Who)
		g.checker.now = g.relay.Now()
		g.checker.heard()
		switch names := manyNames(n); {
		case o.Verb == "subs":
			g.subscribe(p, k, names, nil)
		case p.sotw:
			g.subscribe(p, k, []string{"r0"}, nil)
		default:
			g.subscribe(p, k, nil, names)
		}
	}
}
