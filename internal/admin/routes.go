package admin

import (
	"net/http"
	"slices"
)

// Face is what a relay shows over HTTP, and over gRPC on the same connections. It knows its routes and methods, so
// that a test can hold each of them against the list of those that are meant.
type Face struct {
	http.Handler
	routes []string
	tools  *services // nil: no gRPC
}

// Methods lists the gRPC methods that it answers, as service/method.
func (f *Face) Methods() []string {
	if f.tools == nil {
		return nil
	}
	return f.tools.methods()
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
