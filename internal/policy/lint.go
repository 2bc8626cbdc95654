package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/config"
)

// Lint says what valid rules have that has no effect, or allows more than it seems to. Each line begins with the
// place that it is about, if there is one.
func (p *Policy) Lint() (lines []string) {
	identifies, unix := p.config.Downstream.TLS.AsksClients(), listensOnUnix(p.config)
	fields := p.fields()
	for i, r := range p.rules {
		say := func(format string, args ...any) {
			lines = append(lines, r.place+": "+fmt.Sprintf(format, args...))
		}
		if why := r.identity.unmet(identifies, unix); why != "" {
			say("never matches: %s", why)
		}
		if len(r.reads) == 0 {
			say("reads nothing: its clients may connect, and are refused every type")
		}
		if other := p.covering(i); other != nil {
			say("has no effect: %s allows the same, or more, to the same clients", other.place)
		}
		if free := r.free(fields); len(free) > 0 && len(r.reads) > 0 {
			say("its clients may say what they like in the node's %s", strings.Join(free, ", "))
		}
	}
	return append(append(lines, p.common()...), p.Notes()...)
}

func listensOnUnix(c *config.Config) bool {
	return slices.ContainsFunc(c.Downstream.Listen, func(address string) bool {
		network, _, err := config.SplitListen(address)
		return err == nil && network == "unix"
	})
}

// unmet is why no client can have the identity; empty: one can. identifies: clients must show a certificate, on
// every listener.
func (id *identity) unmet(identifies, unix bool) string {
	proved := id.kind != Anonymous && id.kind != unixUID
	switch {
	case proved && !identifies:
		return "no client proves who it is without downstream.tls.client_ca or downstream.tls.spiffe"
	case !proved && identifies:
		return "every client has to show a certificate (downstream.tls), and is known by that"
	case id.kind == unixUID && !unix:
		return "downstream.listen has no Unix socket"
	}
	return ""
}

// fields are those of the node that rules could bind with some use: by which clients are grouped, or that another
// rule binds, and in any case the id.
func (p *Policy) fields() []string {
	fields := append([]string{"id"}, Bound(p.config)...)
	for _, r := range p.rules {
		for _, n := range r.node {
			fields = append(fields, n.field)
		}
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}

// free are the fields that a rule leaves to its clients.
func (r *rule) free(fields []string) []string {
	return slices.DeleteFunc(slices.Clone(fields), func(field string) bool {
		return slices.ContainsFunc(r.node, func(n nodePattern) bool { return n.field == field && !n.any() })
	})
}

// covering is another rule for the same clients without which this one would allow nothing more; of two rules that
// are the same the earlier one.
func (p *Policy) covering(i int) *rule {
	r := p.rules[i]
	for j, other := range p.rules {
		if i != j && other.covers(r) && (j < i || !r.covers(other)) {
			return other
		}
	}
	return nil
}

func (r *rule) covers(other *rule) bool {
	sameNode := slices.EqualFunc(r.node, other.node, func(a, b nodePattern) bool { return a.field == b.field && a.text == b.text })
	if r.identity.text != other.identity.text || !sameNode {
		return false
	}
	for t, theirs := range other.reads {
		if ours := r.reads[t]; ours == nil || !ours.covers(theirs) {
			return false
		}
	}
	return true
}

// covers compares texts, and knows that "**" is every name.
func (r *reads) covers(other *reads) bool {
	if other.private && !r.private || other.wildcard && !r.wildcard {
		return false
	}
	have := r.texts()
	return !slices.ContainsFunc(other.texts(), func(text string) bool {
		return !slices.Contains(have, text) && (cache.IsGlob(text) || !slices.Contains(have, "**"))
	})
}

// texts are the names and patterns as the file has them, without the wildcard.
func (r *reads) texts() []string {
	texts := slices.Collect(maps.Keys(r.names))
	for _, p := range r.patterns {
		texts = append(texts, p.text)
	}
	return texts
}

// common says what every rule allows, so that everybody who may connect can read it.
func (p *Policy) common() (lines []string) {
	types := make(map[string][]cache.TypeURL) // by the names
	for t := range p.rules[0].reads {
		if names := p.allowedByAll(t); len(names) > 0 {
			key := strings.Join(names, ", ")
			types[key] = append(types[key], t)
		}
	}
	for _, names := range slices.Sorted(maps.Keys(types)) {
		lines = append(lines, fmt.Sprintf("every rule allows %s of %s: whoever may connect can read that", names, strings.Join(calledAll(types[names]), ", ")))
	}
	return lines
}

// allowedByAll are the names of a type that every rule allows, in quotes and in order. A pattern with captures is a
// different one for each client.
func (p *Policy) allowedByAll(t cache.TypeURL) (names []string) {
	for i, r := range p.rules {
		reads := r.reads[t]
		if reads == nil {
			return nil
		}
		var own []string
		if reads.wildcard {
			own = append(own, fmt.Sprintf("%q", Wildcard))
		}
		for _, text := range reads.texts() {
			if !strings.Contains(text, "{") {
				own = append(own, fmt.Sprintf("%q", text))
			}
		}
		if i == 0 {
			names = own
			continue
		}
		names = slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(own, name) })
	}
	slices.Sort(names)
	return slices.Compact(names)
}
