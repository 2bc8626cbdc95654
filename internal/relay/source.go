package relay

import (
	"fmt"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/share"
	"github.com/xds-relay/xds-relay/upstream"
	upsession "github.com/xds-relay/xds-relay/upstream/session"
)

// Where a type comes from is a part of the name of its group (UP-27). So the group of a type in upstream.by_type has
// streams, a back-off, fallbacks and a place in the snapshot of its own, and a client's Session, which asks for a group
// for each type, needs to know nothing of it.

// provider is where a type comes from.
type provider struct {
	source int    // in config.Upstream.Sources; 0: upstream itself
	name   string // of the source
	// service is the type that has a group, and so a stream, of its own, because it is asked for by its own service.
	service cache.TypeURL
}

// provider is where a type comes from.
func (g Grouping) provider(t cache.TypeURL) provider {
	at := g.config.Upstream.SourceOf(string(t))
	if at == 0 {
		return provider{}
	}
	from := g.config.Upstream.ByType[at-1]
	o := provider{source: at, name: from.Name}
	if from.Services == config.ServicesPerType {
		o.service = t
	}
	return o
}

// byTypePrefix begins the names of groups whose types upstream.by_type lists. The keys of no others do.
const byTypePrefix = "by_type="

// prefix is the provider's part of a group's name.
func (o provider) prefix() string {
	switch {
	case o.source == 0:
		return ""
	case o.service != "":
		return fmt.Sprintf("%s%s;service=%s;", byTypePrefix, o.name, o.service)
	}
	return fmt.Sprintf("%s%s;", byTypePrefix, o.name)
}

// label is that part of what people call the group.
func (o provider) label() string {
	switch {
	case o.source == 0:
		return ""
	case o.service != "":
		return o.name + ":" + o.service.Name() + ":"
	}
	return o.name + ":"
}

// defaultOf is the Place of the default group of that name.
func (g Grouping) defaultOf(name string) (Place, bool) {
	if name == "" {
		return Place{}, true
	}
	for _, from := range g.config.Upstream.ByType {
		for _, t := range TypeURLs(from.Types) {
			if o := g.provider(t); o.prefix() == name {
				return Place{provider: o}, true
			}
		}
	}
	return Place{}, false
}

// source is what the groups of a source have in common.
type source struct {
	upstream upsession.Config
	conns    []*upstream.Conn     // of its entries
	totals   share.Ledger[*group] // whose its groups are (shares.go)
	groups   int                  // how many there are
}

// configured has the sources take what groups are made of from now on. conns are those of all entries, in order.
func (g *groups) configured(c *config.Config, f cache.Fingerprint, conns []*upstream.Conn) {
	for i, s := range c.Upstream.Sources() {
		if i == len(g.sources) {
			g.sources = append(g.sources, &source{})
		}
		up, was := upstreamConfig(c, s, f), g.sources[i].upstream
		up.Hop, up.Answers = was.Hop, was.Answers
		g.sources[i].upstream, g.sources[i].conns = up, conns[:len(s.Entries):len(s.Entries)]
		conns = conns[len(s.Entries):]
	}
}
