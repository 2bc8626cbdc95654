package cache

import (
	"slices"
	"strings"
)

// The names of the new naming scheme, xdstp://authority/type/path?parameters#directives. All other
// names are opaque, and so are those of this scheme whose parameters cannot be told apart.

const xdstp = "xdstp://"

// parts returns the part of an xdstp name up to its context parameters, and the parameters. tail
// is the rest, which begins with '#' or is empty.
func parts(name string) (path, parameters, tail string) {
	if i := strings.IndexByte(name, '#'); i >= 0 {
		name, tail = name[:i], name[i:]
	}
	path, parameters, _ = strings.Cut(name, "?")
	return path, parameters, tail
}

// Canonical returns the one spelling of all names that are equal: the context parameters of an
// xdstp name stand in the order of their keys (NAME-8). It has the length of the name.
func Canonical(name string) string {
	if !IsXDSTP(name) || !strings.Contains(name, "&") {
		return name
	}
	path, parameters, tail := parts(name)
	pairs := strings.Split(parameters, "&")
	inOrder := slices.IsSortedFunc(pairs, byKey)
	if !inOrder {
		slices.SortFunc(pairs, byKey)
	}
	for i, pair := range pairs {
		opaque := !strings.Contains(pair, "=") || i > 0 && byKey(pairs[i-1], pair) == 0 // which of two values counts is not defined
		if opaque {
			return name
		}
	}
	if inOrder {
		return name
	}
	return path + "?" + strings.Join(pairs, "&") + tail
}

// byKey compares context parameters by their keys. Whole parameters have another order: '=' comes
// after '-'.
func byKey(a, b string) int {
	a, _, _ = strings.Cut(a, "=")
	b, _, _ = strings.Cut(b, "=")
	return strings.Compare(a, b)
}

// Canonicals returns the canonical spellings of names. It is the same list, clipped, if these are
// canonical.
func Canonicals(names []string) []string {
	i := slices.IndexFunc(names, func(name string) bool { return Canonical(name) != name })
	if i < 0 {
		return slices.Clip(names)
	}
	names = slices.Clone(names)
	for ; i < len(names); i++ {
		names[i] = Canonical(names[i])
	}
	return names
}

// IsXDSTP reports whether a name is of this scheme.
func IsXDSTP(name string) bool { return strings.HasPrefix(name, xdstp) }

// IsGlob reports whether a name stands for all resources one path segment below (NAME-11).
func IsGlob(name string) bool {
	if !IsXDSTP(name) {
		return false
	}
	path, _, _ := parts(name)
	return strings.HasSuffix(path[len(xdstp):], "/*")
}

// GlobOf returns the glob that covers a canonical name, or "" if none does. Of a glob it is the glob
// itself, without directives.
func GlobOf(name string) string {
	if !IsXDSTP(name) {
		return ""
	}
	path, parameters, _ := parts(name)
	end := strings.LastIndexByte(path, '/')
	if end < len(xdstp) {
		return "" // it has no path
	}
	glob := path[:end] + "/*"
	if parameters != "" {
		glob += "?" + parameters
	}
	return glob
}
