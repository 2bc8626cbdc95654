package session

import "github.com/xds-relay/xds-relay/fanout"

// listing says, for logs, what a response was about if the client rejects it: its one name, or
// the number of names and the first of them. It has no bodies, so that responses without an ACK
// keep none in memory.
type listing struct {
	one     string
	several *fanout.Listing // nil if there is one name, or none
}

// list returns the listing of a response. All clients that are sent the same News share one.
func (r *Response) list() listing {
	n := len(r.Resources) + len(r.Removed)
	switch {
	case n == 1 && len(r.Resources) == 1:
		return listing{one: r.Resources[0].Name}
	case n == 1:
		return listing{one: r.Removed[0]}
	case n == 0:
		return listing{}
	case r.News != nil && len(r.Removed) == 0 && r.News.Lists(r.Resources):
		return listing{several: r.News.Listing()}
	}
	return listing{several: fanout.List(r.Resources, r.Removed)}
}

// Names returns how many names a response is about, and the first of them.
func (r *Response) Names() (count int, first []string) { return r.list().told() }

// told returns how many names there are, and the first of them.
func (l listing) told() (count int, first []string) {
	switch {
	case l.several != nil:
		return l.several.Count, l.several.First
	case l.one != "":
		return 1, []string{l.one}
	}
	return 0, nil
}
