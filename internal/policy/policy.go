package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/config"
)

// Policy is what the rules of a file allow. It never changes.
type Policy struct {
	doc    *config.Document
	config *config.Config
	types  cache.Types
	rules  []*rule
	// constant has the rules for one identity each, and patterned the others, by their order.
	constant  map[string][]*rule
	patterned []*rule
}

// rule is one entry of the file.
type rule struct {
	order    int
	place    string // file and line
	identity identity
	node     []nodePattern
	reads    map[cache.TypeURL]*reads
}

// nodePattern is what a field of the client's node must match.
type nodePattern struct {
	field string
	pattern
}

// reads is what a rule allows of one type.
type reads struct {
	wildcard bool
	names    map[string]bool // those without stars and captures
	patterns []namePattern
	private  bool // some part of it does not say share: true
}

type namePattern struct {
	pattern
	place string
}

// Grants are the rules that match a client, in the order of the file.
type Grants []grant

type grant struct {
	rule     *rule
	captures []string
}

// Len is the number of rules.
func (p *Policy) Len() int { return len(p.rules) }

// Text is the file that the rules were read from, as it was then.
func (p *Policy) Text() []byte { return p.doc.Text() }

// Match returns the rules that match an identity and a node. Without any, the client may not connect.
func (p *Policy) Match(who string, node *core.Node) Grants {
	var grants Grants
	for _, r := range p.constant[who] {
		if r.admits(node, nil) {
			grants = append(grants, grant{rule: r})
		}
	}
	for _, r := range p.patterned {
		if captures, ok := r.identity.match(who); ok && r.admits(node, captures) {
			grants = append(grants, grant{r, captures})
		}
	}
	slices.SortFunc(grants, func(a, b grant) int { return a.rule.order - b.rule.order })
	return grants
}

// Names reports whether some rule matches an identity, whatever its node.
func (p *Policy) Names(who string) bool {
	matches := func(r *rule) bool { _, ok := r.identity.match(who); return ok }
	return len(p.constant[who]) > 0 || slices.ContainsFunc(p.patterned, matches)
}

// admits reports whether a client may present a node.
func (r *rule) admits(node *core.Node, captures []string) bool {
	return !slices.ContainsFunc(r.node, func(n nodePattern) bool {
		value, is := Field(node, n.field)
		return !n.any() && (!is || !n.matches(value, captures))
	})
}

// Field is a field of a node as rules name it. Only text of metadata counts.
func Field(node *core.Node, name string) (value string, is bool) {
	path, metadata := strings.CutPrefix(name, metadataPrefix)
	if !metadata {
		value = nodeFields[name](node)
		return value, value != ""
	}
	v := structpb.NewStructValue(node.GetMetadata())
	for _, step := range strings.Split(path, ".") {
		v = v.GetStructValue().GetFields()[step]
	}
	text, is := v.GetKind().(*structpb.Value_StringValue)
	if !is {
		return "", false
	}
	return text.StringValue, true
}

const metadataPrefix = "metadata."

var nodeFields = map[string]func(*core.Node) string{
	"id":                func(n *core.Node) string { return n.GetId() },
	"cluster":           func(n *core.Node) string { return n.GetCluster() },
	"locality.region":   func(n *core.Node) string { return n.GetLocality().GetRegion() },
	"locality.zone":     func(n *core.Node) string { return n.GetLocality().GetZone() },
	"locality.sub_zone": func(n *core.Node) string { return n.GetLocality().GetSubZone() },
}

// Key tells the rules that match apart from others. The identity says the rest.
func (g Grants) Key() string {
	var key []byte
	for _, grant := range g {
		key = append(strconv.AppendInt(key, int64(grant.rule.order), 10), ',')
	}
	return string(key)
}

// Places are where the rules stand, for people.
func (g Grants) Places() string {
	var places []string
	for _, grant := range g {
		places = append(places, grant.rule.place)
	}
	return strings.Join(places, ", ")
}

// Of returns what the client may read of a type, or nil if no rule reads the type.
func (g Grants) Of(t cache.TypeURL) *Reads {
	r := &Reads{wildcard: -1}
	for _, grant := range g {
		of := grant.rule.reads[t]
		if of == nil {
			continue
		}
		if of.wildcard && r.wildcard < 0 {
			r.wildcard = len(r.of)
		}
		r.private = r.private || of.private
		r.of = append(r.of, allowance{of, grant})
	}
	if len(r.of) == 0 {
		return nil
	}
	return r
}

// Reads is what a client may read of a type. It never changes.
type Reads struct {
	of       []allowance
	wildcard int // the first of them that allows it; -1: none
	private  bool
}

type allowance struct {
	*reads
	grant
}

// Wildcard is the name of the wildcard.
const Wildcard = "*"

// Allows reports whether the client may subscribe to a canonical name, or to the wildcard.
func (r *Reads) Allows(name string) bool {
	if name == Wildcard { // it is asked for each response
		return r.wildcard >= 0
	}
	_, _, ok := r.why(name)
	return ok
}

// why is where the rule stands that allows a name, and what it says.
func (r *Reads) why(name string) (place, pattern string, ok bool) {
	if name == Wildcard {
		if r.wildcard < 0 {
			return "", "", false
		}
		return r.of[r.wildcard].rule.place, Wildcard, true
	}
	for _, a := range r.of {
		if place, pattern, ok = a.allows(name); ok {
			return place, pattern, true
		}
	}
	return "", "", false
}

func (a *allowance) allows(name string) (place, pattern string, ok bool) {
	if a.names[name] {
		return a.rule.place, name, true
	}
	glob := cache.IsGlob(name)
	for i := range a.patterns {
		switch p := &a.patterns[i]; {
		case glob && p.says(name, a.captures), !glob && p.matches(name, a.captures):
			return p.place, p.text, true
		}
	}
	return "", "", false
}

// Shared reports whether each rule that reads the type lets identities share it.
func (r *Reads) Shared() bool { return !r.private }

// Rules is where the rules stand that the client has for the type.
func (r *Reads) Rules() string {
	var places []string
	for _, a := range r.of {
		places = append(places, a.rule.place)
	}
	return strings.Join(places, ", ")
}

// Denied is why a client without a rule may not connect.
func (p *Policy) Denied(who string) string {
	if p.Names(who) {
		return fmt.Sprintf("no rule of authz.rules_file allows %q to present this node; see `xds-relay policy test`", who)
	}
	return fmt.Sprintf("no rule of authz.rules_file names %q", who)
}
