package session

import "github.com/xds-relay/xds-relay/fanout"

// listing is what a response was about, as people are told if the client rejects it: the
// one name in it, or how many there are and the first of them. It holds no body, so that
// what a client leaves unanswered keeps none alive.
type listing struct {
	one     string
	several *fanout.Listing // nil: there is one, or none
}

// list is the listing of a response. That of News is shared by all who are told it.
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

// Names are how many names a response is about, and the first of them.
func (r *Response) Names() (count int, first []string) { return r.list().told() }

// told is how many names there are, and the first of them.
func (l listing) told() (count int, first []string) {
	switch {
	case l.several != nil:
		return l.several.Count, l.several.First
	case l.one != "":
		return 1, []string{l.one}
	}
	return 0, nil
}
