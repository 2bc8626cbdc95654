package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/config"
)

// File is the schema of authz.rules_file.
type File struct {
	// Rules only allow. What no rule allows is denied.
	Rules []Rule `yaml:"rules"`
}

// Rule says what the clients of an identity may read.
type Rule struct {
	// Identity is whom the rule is for: spiffe://… or another URI, dns:NAME, subject:NAME, unix:uid=N or
	// anonymous. {name} captures a segment.
	Identity string `yaml:"identity"`
	// Node is what the client's node must say for the rule to hold: id, cluster, locality.region,
	// locality.zone, locality.sub_zone and metadata.<path>, each with a pattern.
	Node map[string]any `yaml:"node"`
	// Read lists what the rule allows.
	Read []Read `yaml:"read"`
}

// Read allows names of types.
type Read struct {
	// Types are type URLs or short names.
	Types []string `yaml:"types"`
	// Names are patterns; "*" alone is the wildcard, and "**" every name.
	Names []string `yaml:"names"`
	// Share lets identities share a Secret, and the stream that it comes by (NODE-6).
	Share bool `yaml:"share"`
}

// Bounds of a rule: more of them are a mistake, and matching costs their number.
const maxStars = 8

// Load reads a file of rules for a configuration and its type table. Its errors are those of package config.
func Load(path string, c *config.Config, types cache.Types) (*Policy, error) {
	var f File
	doc, err := config.ReadDocument(path, &f)
	if err != nil {
		return nil, err
	}
	return compile(doc, &f, c, types)
}

// Parse does the same with a text; the name is used in messages only.
func Parse(name string, data []byte, c *config.Config, types cache.Types) (*Policy, error) {
	var f File
	doc, err := config.ParseDocument(name, data, &f)
	if err != nil {
		return nil, err
	}
	return compile(doc, &f, c, types)
}

// compiler reads rules and gathers their mistakes.
type compiler struct {
	doc    *config.Document
	config *config.Config
	types  cache.Types
	errs   []error
}

func compile(doc *config.Document, f *File, c *config.Config, types cache.Types) (*Policy, error) {
	co := &compiler{doc: doc, config: c, types: types}
	p := &Policy{doc: doc, config: c, types: types, constant: make(map[string][]*rule)}
	if len(f.Rules) == 0 {
		co.fail("rules", "write rules, or leave authz.rules_file out to allow everything but Secrets", "there are no rules, so that nobody could connect")
	}
	for i := range f.Rules {
		at := fmt.Sprintf("rules[%d]", i)
		r := co.rule(at, &f.Rules[i])
		r.order = i
		p.rules = append(p.rules, r)
		if r.identity.constant() {
			p.constant[r.identity.text] = append(p.constant[r.identity.text], r)
		} else {
			p.patterned = append(p.patterned, r)
		}
	}
	if err := config.Join(co.errs...); err != nil {
		return nil, err
	}
	return p, nil
}

func (c *compiler) fail(key, hint, format string, args ...any) {
	c.errs = append(c.errs, c.doc.Mistake(key, hint, format, args...))
}

func (c *compiler) rule(at string, f *Rule) *rule {
	r := &rule{place: c.doc.Place(at), reads: make(map[cache.TypeURL]*reads)}
	var err error
	if r.identity, err = parseIdentity(f.Identity); err != nil {
		c.fail(at+".identity", "", "%q %v", f.Identity, err)
		return r
	}
	c.node(at+".node", f.Node, r)
	for i := range f.Read {
		c.read(fmt.Sprintf("%s.read[%d]", at, i), &f.Read[i], r)
	}
	if len(r.reads) > 0 {
		c.binds(at, r)
	}
	return r
}

// captures are those of a rule; never nil, so that no other is new.
func (r *rule) captures() []string { return append([]string{}, r.identity.captures...) }

func (c *compiler) node(at string, fields map[string]any, r *rule) {
	for _, field := range flat("", fields) {
		key := at + "." + field.name
		if nodeFields[field.name] == nil && !strings.HasPrefix(field.name, metadataPrefix) {
			c.fail(key, "use "+NodeFields, "unknown node field %q", field.name)
			continue
		}
		text, is := field.value.(string)
		if !is {
			c.fail(key, "put it in quotes; only text of a node is compared", "wants a pattern, found %v", field.value)
			continue
		}
		p, err := parsePattern(text, r.captures())
		if err != nil {
			c.fail(key, "", "%q %v", text, err)
		}
		r.node = append(r.node, nodePattern{field.name, p})
	}
}

type field struct {
	name  string
	value any
}

// flat lists fields in order. {metadata: {a: b}} is the same as {metadata.a: b}.
func flat(prefix string, fields map[string]any) (all []field) {
	for name, value := range fields {
		if within, is := value.(map[string]any); is {
			all = append(all, flat(prefix+name+".", within)...)
		} else {
			all = append(all, field{prefix + name, value})
		}
	}
	slices.SortFunc(all, func(a, b field) int { return strings.Compare(a.name, b.name) })
	return all
}

func (c *compiler) read(at string, f *Read, r *rule) {
	if len(f.Types) == 0 {
		c.fail(at+".types", "for example [CDS, EDS]", "names no types")
	}
	if len(f.Names) == 0 {
		c.fail(at+".names", `for example ["*", "**"]: the wildcard, and every name`, "allows no names")
	}
	patterns, places := c.names(at+".names", f.Names, r)
	for i, name := range f.Types {
		key := fmt.Sprintf("%s.types[%d]", at, i)
		url, known := config.TypeURL(name)
		if !known {
			c.fail(key, "use a short name such as CDS, or a type URL", "%q is no type", name)
			continue
		}
		t := cache.TypeURL(url)
		secret := c.types.Of(t).Secret
		if r.reads[t] == nil {
			r.reads[t] = &reads{names: make(map[string]bool)}
		}
		of := r.reads[t]
		of.private = of.private || secret && !f.Share
		for i, p := range patterns {
			switch {
			case secret && (p.text == Wildcard || p.any()):
				c.fail(fmt.Sprintf("%s.names[%d]", at, i), "name them, such as kubernetes://{ns}/{sa}/**", "%q is not allowed for Secrets", p.text)
			case p.text == Wildcard:
				of.wildcard = true
			case p.constant() && !cache.IsGlob(p.text):
				of.names[p.text] = true
			default:
				of.patterns = append(of.patterns, namePattern{p, places[i]})
			}
		}
	}
}

func (c *compiler) names(at string, names []string, r *rule) (patterns []pattern, places []string) {
	for i, text := range names {
		key := fmt.Sprintf("%s[%d]", at, i)
		p, err := parsePattern(text, r.captures())
		stars := strings.Count(text, "*")
		switch {
		case err != nil:
			c.fail(key, "", "%q %v", text, err)
		case stars > maxStars:
			c.fail(key, "", "%q has %d stars, and may have %d", text, stars, maxStars)
		case cache.Canonical(text) != text:
			c.fail(key, fmt.Sprintf("write %q", cache.Canonical(text)), "the parameters of %q are not in order, so that no name would match", text)
		}
		patterns, places = append(patterns, p), append(places, c.doc.Place(key))
	}
	return patterns, places
}

// binds sees to it that a client cannot choose its group: each field of the node that a key of groups is made
// of must be bound by each rule that reads something.
func (c *compiler) binds(at string, r *rule) {
	for _, field := range Bound(c.config) {
		if !r.binds(field) {
			c.fail(at+".node", fmt.Sprintf("add %s: with a pattern, or %s: \"**\" if clients may choose it", field, field),
				"does not say what %s may be, which clients are grouped by: a client could choose its group", field)
		}
	}
}

func (r *rule) binds(field string) bool {
	return slices.ContainsFunc(r.node, func(n nodePattern) bool { return n.field == field })
}

// Bound are the fields of a node that decide on a client's group and that rules can bind.
func Bound(c *config.Config) (fields []string) {
	add := func(field string) {
		if !slices.Contains(fields, field) {
			fields = append(fields, field)
		}
	}
	for _, entry := range c.KeyEntries() {
		switch {
		case entry == config.WholeNode:
			add("id")
		case nodeFields[entry] != nil, strings.HasPrefix(entry, metadataPrefix):
			add(entry)
		}
	}
	return fields
}
