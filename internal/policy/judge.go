package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/cache"
)

// Verdict is whether a client may read a name, and why, for people.
type Verdict struct {
	// Allowed is the answer.
	Allowed bool
	// Place is where the rule stands that allows it, and Pattern what it says there.
	Place, Pattern string
	// Secret: the type is one, so that it matters whether identities share it. Shared: each rule that the client
	// has for the type lets them.
	Secret, Shared bool
	// Because says why not, in lines, of which the first is the reason and the others go into detail.
	Because []string
}

// CheckIdentity says what is wrong with an identity that no client can have, whatever the rules.
func CheckIdentity(who string) error {
	if _, err := kindOf(who); err != nil {
		return fmt.Errorf("%q %w", who, err)
	}
	return nil
}

// Judge decides whether a client may subscribe to a name of a type, or to the wildcard, and says why. It decides by
// what [Policy.Match] returns, like the relay.
func (p *Policy) Judge(who string, node *core.Node, t cache.TypeURL, name string) Verdict {
	name = cache.Canonical(name)
	v := Verdict{Secret: p.types.Of(t).Secret}
	grants := p.Match(who, node)
	reads := grants.Of(t)
	if reads != nil {
		v.Place, v.Pattern, v.Allowed = reads.why(name)
		v.Shared = reads.Shared()
	}
	switch {
	case v.Allowed:
		return v
	case !p.Names(who):
		v.because("no rule names %q", who)
	case len(grants) == 0:
		v.because("rules name %q, but none of them admits this node", who)
	case reads == nil:
		v.because("no rule that the client has reads %s", called(t))
		for _, g := range grants {
			v.because("%s: reads %s", g.rule.place, g.rule.types())
		}
	default:
		v.because("the client's rules for %s do not allow %q", called(t), name)
		for _, a := range reads.of {
			v.Because = append(v.Because, a.list()...)
		}
	}
	v.refusals(p, who, node)
	return v
}

func (v *Verdict) because(format string, args ...any) {
	v.Because = append(v.Because, fmt.Sprintf(format, args...))
}

// refusals adds the rules that name an identity and do not admit its node, with the fields that differ.
func (v *Verdict) refusals(p *Policy, who string, node *core.Node) {
	for _, r := range p.rules {
		captures, is := r.identity.match(who)
		if !is {
			continue
		}
		for _, n := range r.node {
			value, said := Field(node, n.field)
			switch {
			case n.any():
			case !said:
				v.because("%s: does not admit the node: %s must be %s, and the node does not say it as text", r.place, n.field, n.shown(captures))
			case !n.matches(value, captures):
				v.because("%s: does not admit the node: %s must be %s, and is %q", r.place, n.field, n.shown(captures), value)
			}
		}
	}
}

// list is what an allowance has, each with its place.
func (a *allowance) list() (lines []string) {
	if a.wildcard {
		lines = append(lines, fmt.Sprintf("%s: allows %q, the wildcard", a.rule.place, Wildcard))
	}
	for _, name := range slices.Sorted(maps.Keys(a.names)) {
		lines = append(lines, fmt.Sprintf("%s: allows %q", a.rule.place, name))
	}
	for _, p := range a.patterns {
		lines = append(lines, fmt.Sprintf("%s: allows %s", p.place, p.shown(a.captures)))
	}
	return lines
}

// shown is a pattern, and what it is for a client with these captures.
func (p *pattern) shown(captures []string) string {
	if expanded := p.expand(captures); expanded != p.text {
		return fmt.Sprintf("%q, here %q", p.text, expanded)
	}
	return fmt.Sprintf("%q", p.text)
}

// types are those that a rule reads, for people.
func (r *rule) types() string {
	if len(r.reads) == 0 {
		return "nothing"
	}
	return strings.Join(calledAll(slices.Collect(maps.Keys(r.reads))), ", ")
}

// called is what people call a type.
func called(t cache.TypeURL) string {
	return t.Name()
}

func calledAll(types []cache.TypeURL) (names []string) {
	for _, t := range types {
		names = append(names, called(t))
	}
	slices.Sort(names)
	return names
}
