package twin

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// The dumb twin: what every client holds when all is quiet. It resends everything
// all the time, and so needs no memory.

// kind is a row of the type table (protocol.md §0).
type kind struct {
	name string
	url  string
	// full: a SotW response lists everything (DOWN-SOTW-6).
	full bool
	// empty: a first request that names nothing asks for everything (WILD-2).
	empty bool
}

var kinds = []kind{
	{"CDS", string(cache.Cluster), true, true},
	{"EDS", string(cache.Endpoint), false, false},
	{"LDS", string(cache.Listener), true, true},
	{"FOO", "type.googleapis.com/test.Foo", false, true},
	{secrets, string(cache.Secret), false, false},
}

// secrets are played over gRPC by groups that are told apart by identity; all other games are
// about the plain types.
const secrets = "SDS"

var plain = kinds[:4]

// kindOf is the kind of that short name, or of that type URL; none of any other.
func kindOf(name string) kind {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name || k.url == name })
	if i < 0 {
		return kind{}
	}
	return kinds[i]
}

// Resources are named a to d; x and y are aliases, which may move, and may be asked for like any name. That a name is an
// alias and a resource too is left to the transcripts.
var (
	poolNames   = []string{"a", "b", "c", "d", "x", "y"}
	poolAliases = poolNames[4:]
)

// manyNames are n more, which have no aliases. In games of many names what is quadratic in the relay is felt, and what is
// split is split into many parts.
func manyNames(n int) []string {
	names := make([]string, min(max(n, 0), 10000))
	for i := range names {
		names[i] = fmt.Sprintf("r%d", i)
	}
	return names
}

// leading are the names to look at for what a name leads to: itself, and those that may have it as an alias.
func leading(asked string) []string {
	if slices.Contains(poolAliases, asked) {
		return poolNames
	}
	return []string{asked}
}

// Resource is what the control plane has under a name.
type Resource struct {
	// Label stands for the content: another label, another content.
	Label string
	// Version is the control plane's own; it may change though nothing else does.
	Version string
	Aliases []string
	// TTL is for how long it is good, unless it is said again; 0: for good.
	TTL time.Duration
}

// answers reports whether a resource satisfies a subscription (NAME-3).
func answers(name string, aliases []string, asked string) bool {
	return name == asked || slices.Contains(aliases, asked)
}

// World is all that the control plane has: type, name, resource.
type World map[string]map[string]Resource

const wildcard = "*"

// Interest is what one client wants of one type on one stream.
type Interest struct {
	Names    map[string]bool
	Wildcard bool

	fresh  bool // no request yet
	legacy bool // wildcard without ever having named anything
	bare   bool // aliases are nothing to it: SotW has none (NAME-3)
}

func newInterest() Interest { return Interest{Names: map[string]bool{}, fresh: true} }

// Delta takes in one Delta request: rows a to n of the WILD table.
func (i *Interest) Delta(k kind, subscribe, unsubscribe []string) {
	if i.fresh && len(subscribe) == 0 && k.empty {
		i.Wildcard, i.legacy = true, true // a, e
	}
	i.fresh = false
	for _, name := range subscribe {
		if name == wildcard {
			i.Wildcard, i.legacy = true, false // c, j, n
		} else {
			i.Names[name] = true // d, h
		}
	}
	for _, name := range unsubscribe {
		if name == wildcard {
			i.Wildcard, i.legacy = false, false // f, i, k
		} else {
			delete(i.Names, name) // l, m
		}
	}
}

// Replace takes in one SotW request: rows a to d and o to t.
func (i *Interest) Replace(k kind, names []string) {
	switch {
	case len(names) > 0:
		i.legacy = false // c, d, p, q, r
	case i.fresh:
		i.legacy = k.empty // a, b
	}
	i.fresh = false
	i.Wildcard = i.legacy || slices.Contains(names, wildcard) // o, s, t
	i.Names = map[string]bool{}
	for _, name := range names {
		if name != wildcard {
			i.Names[name] = true
		}
	}
}

// Covers reports whether a resource is wanted.
func (i *Interest) Covers(name string, aliases []string) bool {
	return i.Wildcard || i.Named(name, aliases)
}

// Named reports whether a resource is wanted by name.
func (i *Interest) Named(name string, aliases []string) bool {
	return i.Names[name] || slices.ContainsFunc(aliases, func(alias string) bool { return !i.bare && i.Names[alias] })
}

// answeredBy reports whether a resource satisfies a name that is asked for.
func (i *Interest) answeredBy(name string, aliases []string, asked string) bool {
	return name == asked || !i.bare && slices.Contains(aliases, asked)
}

// Empty reports whether nothing is wanted.
func (i *Interest) Empty() bool { return !i.Wildcard && len(i.Names) == 0 }

func (i *Interest) clone() Interest {
	c := *i
	c.Names = maps.Clone(i.Names)
	return c
}

func (i *Interest) same(o *Interest) bool {
	return i.Wildcard == o.Wildcard && maps.Equal(i.Names, o.Names)
}

func (i *Interest) text() string {
	names := slices.Sorted(maps.Keys(i.Names))
	if i.Wildcard {
		names = append(names, wildcard)
	}
	return fmt.Sprintf("%q", names)
}

// View is what a client with an interest holds in the end: name, label.
func (w World) View(k kind, i *Interest) map[string]string {
	view := map[string]string{}
	for name, r := range w[k.name] {
		if i.Covers(name, r.Aliases) {
			view[name] = r.Label
		}
	}
	return view
}
