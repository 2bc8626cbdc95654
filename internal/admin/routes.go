package admin

import (
	"net/http"
	"slices"
)

// Face is what a relay shows over HTTP. It knows its routes, so that a test can hold each of them against the
// list of those that are meant.
type Face struct {
	http.Handler
	routes []string
}

// Routes lists the paths at which it answers.
func (f *Face) Routes() []string { return slices.Clone(f.routes) }

// routes are a face's while it is made. Nothing else in the relay makes a mux.
type routes struct {
	mux   *http.ServeMux
	paths []string
}

func newRoutes() *routes { return &routes{mux: http.NewServeMux()} }

func (r *routes) handle(path string, h http.Handler) {
	r.mux.Handle(path, h)
	r.paths = append(r.paths, path)
}
