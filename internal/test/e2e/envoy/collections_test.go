package envoy

import (
	"slices"
	"strings"

	"github.com/xds-relay/xds-relay/cache"
)

// The plane serves globs: an xdstp name that ends in "/*" stands for what is one path segment below, with the same
// context parameters. This is said here again, and not taken from the relay.

// isGlob: a name is one.
func isGlob(name string) bool {
	path, _, _ := strings.Cut(name, "?")
	return strings.HasPrefix(path, "xdstp://") && strings.HasSuffix(path, "/*")
}

// globOf is the glob that an xdstp name is a member of, as an Envoy asks for it: with its context parameters in order.
func globOf(name string) string {
	path, parameters, has := strings.Cut(name, "?")
	if !strings.HasPrefix(path, "xdstp://") {
		return ""
	}
	glob := path[:strings.LastIndexByte(path, '/')] + "/*"
	if has {
		sorted := strings.Split(parameters, "&")
		slices.Sort(sorted)
		glob += "?" + strings.Join(sorted, "&")
	}
	return glob
}

// asksGlobs takes in globs that a request names: their members are sent, except for those that the client brings.
func (t *topic) asksGlobs(r request) {
	for _, name := range r.names {
		if !isGlob(name) {
			continue
		}
		for member := range t.sent {
			if _, brought := r.known[member]; !brought && globOf(member) == name {
				delete(t.sent, member)
			}
		}
		t.fresh[name] = true
	}
}

// leavesGlob forgets what was sent because of a glob.
func (t *topic) leavesGlob(glob string) {
	for member := range t.sent {
		if isGlob(glob) && globOf(member) == glob && !t.names[member] {
			delete(t.sent, member)
		}
	}
}

// answersGlobs returns those that have no members, and takes all as answered: members are sent, and a client that has
// all of them is told nothing.
func (t *topic) answersGlobs(has map[string]resource, silent bool) (empty []string) {
	for name := range t.fresh {
		if !isGlob(name) {
			continue
		}
		delete(t.fresh, name)
		leads := false
		for member := range has {
			leads = leads || globOf(member) == name
		}
		if !leads && !silent {
			empty = append(empty, name)
		}
	}
	slices.Sort(empty)
	return empty
}

// at is the xdstp name of a resource.
func at(u cache.TypeURL, path string) string {
	return "xdstp://e2e/" + strings.TrimPrefix(string(u), "type.googleapis.com/") + "/" + path
}
