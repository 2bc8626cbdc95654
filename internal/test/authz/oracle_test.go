package authz_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	"github.com/xds-relay/xds-relay/cache"
)

// The oracle reads rules by turning each pattern into a regular expression, so that it shares no code with the
// relay.

// who are the clients' identities, and ids what nodes call themselves.
var (
	who = []string{
		"spiffe://td/ns/n1/sa/web", "spiffe://td/ns/n1/sa/web-admin", "spiffe://td/ns/n2/sa/web", "spiffe://td/ns/n2/sa/a.b",
		"spiffe://other/ns/n1/sa/web", "dns:web.example.org", "unix:uid=7", "anonymous",
	}
	ids = []string{"web", "web-admin", "n1~web", "n2~web", "x"}
	// names are asked for, and are what resources are called.
	names = []string{
		"n1/web/key", "n1/web-admin/key", "n2/web/key", "n1/web", "web", "web-admin", "a.b/key", "n1/web/key/old", "shared", "ROOTCA",
		"n1~web", "xdstp://td/t/n1/web?a=1&b=2",
	}
	types = []cache.TypeURL{cache.Cluster, cache.Endpoint, cache.Secret}

	identities = []string{
		"spiffe://td/ns/{ns}/sa/{sa}", "spiffe://td/ns/{ns}/sa/{sa}", "spiffe://td/**", "spiffe://td/ns/*/sa/web", "spiffe://td/ns/n1/sa/web",
		"dns:{host}.example.org", "unix:uid=7", "anonymous",
	}
	nodes    = []string{"", "", "{sa}", "web*", "{ns}~{sa}", "**", "x"}
	patterns = []string{
		"{ns}/{sa}/**", "{ns}/{sa}/*", "{sa}", "{ns}/**", "{ns}~*", "shared", "ROOTCA", "n1/web/key", "*/web/*", "web*", "{ns}/*", "**", "*",
		"xdstp://td/t/{ns}/{sa}?a=1&b=2", "xdstp://td/**", "{host}/key",
	}
)

// ruling is one rule of a file.
type ruling struct {
	identity, node string
	reads          []reading
}

type reading struct {
	types []cache.TypeURL
	names []string
	share bool
}

// someRules returns random rules that are valid.
func someRules(r *rand.Rand) (rules []ruling) {
	for range 1 + r.IntN(4) {
		ru := ruling{identity: pick(r, identities), node: pick(r, nodes)}
		if !known(ru.identity, ru.node) {
			ru.node = ""
		}
		for range 1 + r.IntN(2) {
			rd := reading{types: []cache.TypeURL{pick(r, types)}, share: r.IntN(2) == 0}
			if r.IntN(3) == 0 {
				rd.types = append(rd.types, pick(r, types))
			}
			for range 1 + r.IntN(3) {
				name := pick(r, patterns)
				all := (name == "*" || name == "**") && slices.Contains(rd.types, cache.Secret)
				if known(ru.identity, name) && !all {
					rd.names = append(rd.names, name)
				}
			}
			if len(rd.names) > 0 {
				ru.reads = append(ru.reads, rd)
			}
		}
		rules = append(rules, ru)
	}
	return rules
}

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

var braces = regexp.MustCompile(`\{(\w+)\}`)

// known reports whether a pattern uses only what the identity captures.
func known(identity, pattern string) bool {
	for _, m := range braces.FindAllString(pattern, -1) {
		if !strings.Contains(identity, m) {
			return false
		}
	}
	return true
}

// file is the rules as a file.
func file(rules []ruling) string {
	var b strings.Builder
	b.WriteString("rules:\n")
	for _, ru := range rules {
		fmt.Fprintf(&b, "  - identity: %q\n", ru.identity)
		if ru.node != "" {
			fmt.Fprintf(&b, "    node: {id: %q}\n", ru.node)
		}
		b.WriteString("    read:\n")
		if len(ru.reads) == 0 {
			b.WriteString("      []\n")
		}
		for _, rd := range ru.reads {
			fmt.Fprintf(&b, "      - {types: %s, names: [%s], share: %v}\n", list(rd.types), quoted(rd.names), rd.share)
		}
	}
	return b.String()
}

func list(types []cache.TypeURL) string {
	var all []string
	for _, t := range types {
		all = append(all, t.Short())
	}
	return "[" + strings.Join(all, ",") + "]"
}

func quoted(names []string) string {
	var all []string
	for _, n := range names {
		all = append(all, fmt.Sprintf("%q", n))
	}
	return strings.Join(all, ",")
}

// expression is a pattern as a regular expression: values stand for captures, and a capture without one
// captures a segment that has none of the characters in ends.
func expression(pattern string, values map[string]string, ends string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString("(?s)^")
	for pattern != "" {
		switch m := braces.FindStringSubmatchIndex(pattern); {
		case m != nil && m[0] == 0:
			name := pattern[m[2]:m[3]]
			if value, ok := values[name]; ok {
				b.WriteString(regexp.QuoteMeta(value))
			} else {
				fmt.Fprintf(&b, "(?P<%s>[^%s]+)", name, ends)
			}
			pattern = pattern[m[1]:]
		case strings.HasPrefix(pattern, "**"):
			b.WriteString(".*")
			pattern = pattern[2:]
		case pattern[0] == '*':
			b.WriteString("[^/~]*")
			pattern = pattern[1:]
		default:
			b.WriteString(regexp.QuoteMeta(pattern[:1]))
			pattern = pattern[1:]
		}
	}
	b.WriteString("$")
	return regexp.MustCompile(b.String())
}

var compiled = make(map[string]*regexp.Regexp)

func matches(pattern, text string, values map[string]string, ends string) map[string]string {
	key := pattern + "\x00" + ends + "\x00" + fmt.Sprint(values)
	e := compiled[key]
	if e == nil {
		e = expression(pattern, values, ends)
		compiled[key] = e
	}
	m := e.FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	got := make(map[string]string)
	for i, name := range e.SubexpNames() {
		if name != "" {
			got[name] = m[i]
		}
	}
	return got
}

// allowed reports whether rules let a client read a name of a type; nil rules allow everything.
func allowed(rules []ruling, identity, node string, t cache.TypeURL, name string) bool {
	return ruled(rules, identity, node, func(rd *reading, values map[string]string) bool {
		return slices.Contains(rd.types, t) && slices.ContainsFunc(rd.names, func(pattern string) bool {
			if name == "*" || pattern == "*" {
				return pattern == name
			}
			return matches(pattern, name, values, "/") != nil
		})
	})
}

// admitted reports whether any rule is for a client.
func admitted(rules []ruling, identity, node string) bool {
	return slices.ContainsFunc(rules, func(ru ruling) bool { return ru.holds(identity, node) != nil })
}

func ruled(rules []ruling, identity, node string, says func(*reading, map[string]string) bool) bool {
	for _, ru := range rules {
		values := ru.holds(identity, node)
		if values == nil {
			continue
		}
		for i := range ru.reads {
			if says(&ru.reads[i], values) {
				return true
			}
		}
	}
	return false
}

// holds returns what the rule's identity captures, or nil if it is not for the client.
func (ru *ruling) holds(identity, node string) map[string]string {
	ends := "/"
	if strings.HasPrefix(ru.identity, "dns:") {
		ends = "."
	}
	values := matches(ru.identity, identity, nil, ends)
	if values == nil || ru.node != "" && matches(ru.node, node, values, "/") == nil {
		return nil
	}
	return values
}
