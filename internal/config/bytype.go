package config

import (
	"fmt"
	"slices"
	"strings"
)

// TypeUpstream is a control plane that is asked for some types, and for nothing else. All that is not said
// here is as in upstream.
type TypeUpstream struct {
	// Name tells it from others, in groups, logs and metrics: lower-case letters,
	// digits and hyphens, at most 32 characters. It must be given.
	// Default: "".
	Name string `yaml:"name"`

	// Types lists the types that are asked of it, as type URLs or short names such as
	// EDS. It must have one.
	// Default: [].
	Types []string `yaml:"types"`

	// Services says which service is called: ads, or per_type, which is each
	// type's own, such as EndpointDiscoveryService. Empty means ads.
	// Default: "".
	Services Services `yaml:"services"`

	// Address is its gRPC target, as upstream.address. It must be given.
	// Default: "".
	Address string `yaml:"address"`

	// Insecure accepts plaintext to it, as upstream.insecure.
	// Default: false.
	Insecure bool `yaml:"insecure"`

	// TLS secures the connection to it; it inherits nothing from upstream.tls.
	TLS ClientTLS `yaml:"tls"`

	// Headers are sent with every stream to it; it inherits none from
	// upstream.headers.
	// Default: {}.
	Headers map[string]Header `yaml:"headers"`

	// ForwardHeaders sends it the client headers that groups.forward_headers
	// names (NODE-13).
	// Default: false.
	ForwardHeaders bool `yaml:"forward_headers"`

	// Mode is the variant spoken to it. Empty means upstream.mode.
	// Default: "".
	Mode FallbackMode `yaml:"mode"`

	// Fallbacks are further control planes for these types, in order of
	// preference (UP-14). Those of upstream are not asked for them.
	// Default: [].
	Fallbacks []Fallback `yaml:"fallbacks"`

	// Node is how the relay introduces itself to it. Without an id it is
	// upstream.node.
	Node Node `yaml:"node"`
}

// Source is where groups get some types from: upstream, or one item of upstream.by_type.
type Source struct {
	// Name is the item's; upstream's is empty.
	Name string
	// Section is the key under which it is written.
	Section string
	// Types lists the only types that are asked of it, as written; upstream's list may be empty, for all
	// that have no other source.
	Types []string
	// PerType: each type has a stream of its own, to its own service.
	PerType bool
	Node    Node
	// Entries are its control planes, in order of preference.
	Entries []Entry
}

// Entry is one control plane of a Source.
type Entry struct {
	// Section is the key under which it is written.
	Section string
	// Name is what logs and metrics call it: its address, after the name of its Source and a slash.
	Name string
	Fallback
}

// Sources are upstream itself, and the items of upstream.by_type.
func (u *Upstream) Sources() []Source {
	first := Fallback{Address: u.Address, Insecure: u.Insecure, TLS: u.TLS, Headers: u.Headers, ForwardHeaders: true}
	all := []Source{{Section: "upstream", Types: u.Types, Node: u.Node, Entries: u.entries("upstream", "", first, u.Fallbacks)}}
	for i, t := range u.ByType {
		at := fmt.Sprintf("upstream.by_type[%d]", i)
		first := Fallback{Address: t.Address, Insecure: t.Insecure, TLS: t.TLS, Headers: t.Headers, ForwardHeaders: t.ForwardHeaders, Mode: t.Mode}
		node := t.Node
		if node.ID == "" {
			node = u.Node
		}
		all = append(all, Source{Name: t.Name, Section: at, Types: t.Types, PerType: t.Services == ServicesPerType, Node: node, Entries: u.entries(at, t.Name+"/", first, t.Fallbacks)})
	}
	return all
}

func (u *Upstream) entries(section, prefix string, first Fallback, others []Fallback) []Entry {
	entries := []Entry{{section, prefix + first.Address, first}}
	for i, f := range others {
		entries = append(entries, Entry{fmt.Sprintf("%s.fallbacks[%d]", section, i), prefix + f.Address, f})
	}
	for i := range entries {
		switch {
		case entries[i].InProcess():
			entries[i].Mode = FallbackMode(UpstreamModeDelta)
		case entries[i].Mode == "":
			entries[i].Mode = FallbackMode(u.Mode)
		}
	}
	return entries
}

// Entries are the control planes of upstream itself in order of preference, upstream.address first.
func (u *Upstream) Entries() []Entry { return u.Sources()[0].Entries }

// AllEntries are the control planes of all Sources.
func (u *Upstream) AllEntries() (all []Entry) {
	for _, s := range u.Sources() {
		all = append(all, s.Entries...)
	}
	return all
}

// SourceOf is the place in [Upstream.Sources] of the one that a type is asked of.
func (u *Upstream) SourceOf(typeURL string) int {
	return 1 + slices.IndexFunc(u.ByType, func(t TypeUpstream) bool {
		return slices.ContainsFunc(t.Types, func(name string) bool { return typeURLOf(name) == typeURL })
	})
}

// maxByType bounds upstream.by_type.
const maxByType = 16

// byType checks upstream.by_type, except for what its items share with upstream.
func (v *validator) byType() {
	const section = "upstream.by_type"
	all := v.c.Upstream.ByType
	if len(all) > maxByType {
		v.fail(section, "give types that one control plane serves to one item", "has %d items, at most %d are possible", len(all), maxByType)
	}
	names, places := map[string]string{}, map[string]string{}
	for i, t := range all {
		at := fmt.Sprintf("%s[%d]", section, i)
		switch first, twice := names[t.Name]; {
		case !isLabel(t.Name):
			v.fail(at+".name", "use lower-case letters, digits and hyphens, at most 32, for example endpoints", "%q cannot be a name in metrics", clip(t.Name))
		case twice:
			v.fail(at+".name", "give it another one", "%q is the name of %s, too", t.Name, first)
		default:
			names[t.Name] = at
		}
		if len(t.Types) == 0 {
			v.fail(at+".types", "for example [EDS]", "lists no type: nothing would be asked of this control plane")
		}
		v.typeNames(at+".types", t.Types)
		for j, name := range t.Types {
			v.typeOfSource(fmt.Sprintf("%s.types[%d]", at, j), at, name, t.Services, places)
		}
	}
}

// typeOfSource checks a type of an item of upstream.by_type. places has the item of each type so far.
func (v *validator) typeOfSource(key, at, name string, services Services, places map[string]string) {
	url := typeURLOf(name)
	if url == "" {
		return
	}
	if first, twice := places[url]; twice && first != at {
		v.fail(key, "remove one of the two", "%q is listed in %s, too; a type has one control plane", clip(name), first)
		return
	}
	places[url] = at
	if services == ServicesPerType && !hasService(url) {
		v.fail(key, "ask for it with services: ads, in an item of its own", "%q has no discovery service of its own", clip(name))
	}
}

// isLabel reports whether a text is short, and can be a part of any name.
func isLabel(s string) bool {
	const limit = 32
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-"
	return s != "" && len(s) <= limit && strings.Trim(s, letters) == ""
}

// hasService reports whether the protocol has a service for the type (protocol.md §0).
func hasService(url string) bool {
	for _, name := range shortNames {
		if typePrefix+name == url {
			return true
		}
	}
	return false
}
