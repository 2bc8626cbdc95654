package admin

import (
	"bytes"
	"embed"
	"fmt"
	"hash/fnv"
	"html/template"
	"net/http"
	"strconv"
	"time"

	"github.com/xds-relay/xds-relay/internal/console"
)

// The page: what a relay knows, for people. It needs no JavaScript; with it, a view follows what happens. All that it
// shows comes through html/template, since names and messages are those of strangers. It shows no bodies but the fields
// in which a client differs from the relay, and of secrets none of these.

//go:embed ui
var uiFiles embed.FS

// uiCSP lets a view load the two files of its own, ask this relay, and send forms to it.
const uiCSP = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ui answers with views of the page.
type ui struct {
	*handler
	fleets *fleets
	build  string // a number for the files that a browser keeps
}

var views = parseViews("overview", "clients", "client", "resources", "resource", "planes", "events", "error")

func parseViews(names ...string) map[string]*template.Template {
	base := template.Must(template.New("base.html").Funcs(uiFuncs).ParseFS(uiFiles, "ui/base.html"))
	all := make(map[string]*template.Template, len(names))
	for _, name := range names {
		all[name] = template.Must(template.Must(base.Clone()).ParseFS(uiFiles, "ui/"+name+".html"))
	}
	return all
}

func newUI(h *handler) *ui {
	sum := fnv.New32a()
	for _, name := range []string{"page.css", "page.js"} {
		data, _ := uiFiles.ReadFile("ui/" + name) // it is embedded
		_, _ = sum.Write(data)
	}
	return &ui{
		handler: h, build: strconv.FormatUint(uint64(sum.Sum32()), 36),
		fleets: &fleets{relay: h.relay, moves: &h.metrics.observed.moves},
	}
}

// pages are the views by their paths. The overview is at /, which routes to it.
func (u *ui) pages() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"/ui/clients": u.clientsView, "/ui/clients/{stream}": u.clientView,
		"/ui/resources": u.resourcesView, "/ui/resource": u.resourceView,
		"/ui/planes": u.planesView, "/ui/events": u.eventsView, "/ui/live": u.live,
		"/ui/page.css": u.file("page.css", "text/css; charset=utf-8"), "/ui/page.js": u.file("page.js", "text/javascript; charset=utf-8"),
		"/ui/icon.svg": u.file("icon.svg", "image/svg+xml"),
	}
}

// file answers with a file of the page. Its address changes with its content, so a browser may keep it.
func (u *ui) file(name, kind string) http.HandlerFunc {
	data, err := uiFiles.ReadFile("ui/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Cache-Control", "max-age=86400")
		_, _ = w.Write(data)
	}
}

// shown is what a view is made of.
type shown struct {
	Title string
	Nav   string // which view is marked as the one that is looked at
	Build string
	Moves uint64 // what the view is as of; a browser that has heard of a later move asks again
	Now   time.Time
	Head  headline
	Data  any
}

// headline is at the top of each view.
type headline struct {
	Relay mark
	Plane mark
	Out   mark // how many clients are out of step; the zero mark: none
}

// show answers with a view. moves is what it is as of.
func (u *ui) show(w http.ResponseWriter, view, title, nav string, moves uint64, data any) {
	u.answer(w, http.StatusOK, view, &shown{Title: title, Nav: nav, Moves: moves, Data: data})
}

func (u *ui) answer(w http.ResponseWriter, code int, view string, s *shown) {
	all := u.fleets.now()
	s.Build, s.Now, s.Head = u.build, time.Now(), u.headline(all)
	s.Moves = min(s.Moves, all.moves) // the head is as of then
	var page bytes.Buffer
	if err := views[view].ExecuteTemplate(&page, "base.html", s); err != nil {
		u.log.Error("bug: a view of the page cannot be made", "view", view, "err", err)
		http.Error(w, "this view cannot be made, which is a bug of the relay; its log says more", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", uiCSP)
	h.Set("Referrer-Policy", "same-origin") // else a form's origin is null, and it is refused
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	w.WriteHeader(code)
	_, _ = w.Write(page.Bytes())
}

// trouble is a view that cannot be shown.
type trouble struct {
	Code     int
	What     string
	Back, To string // where to go instead
}

// fail answers that a view cannot be shown, and what to do instead.
func (u *ui) fail(w http.ResponseWriter, code int, back, to, what string, args ...any) {
	u.answer(w, code, "error", &shown{Title: http.StatusText(code), Moves: u.metrics.observed.moves.Load(), Data: trouble{code, fmt.Sprintf(what, args...), back, to}})
}

// asks refuses a request with parameters that a view does not know. It reports whether to go on.
func (u *ui) asks(w http.ResponseWriter, req *http.Request, known ...string) bool {
	if err := knows(req, known...); err != nil {
		u.fail(w, http.StatusBadRequest, req.URL.Path, "The view without a filter", "%v", err)
		return false
	}
	return true
}

// headline says whether the relay and its control planes are there, and whether clients are out of step.
func (u *ui) headline(all *fleet) headline {
	h := headline{Relay: mark{"ok", "Ready"}, Plane: mark{"none", "No control plane is asked"}}
	if ok, _ := u.relay.Ready(); !ok {
		h.Relay = u.unready()
	}
	if n, worst := all.out(); n > 0 {
		h.Out = mark{"warn", console.Count(n) + " out of step"}
		if worst == Rejected {
			h.Out.Kind = "bad"
		}
	}
	worst := -1
	for _, p := range u.planes(time.Now()) {
		if i := severity(p.Condition); p.InUse > 0 && i > worst {
			worst = i
			h.Plane = conditionMark(p.Condition)
			h.Plane.Text = "Control plane " + string(p.Condition)
		}
	}
	return h
}

// unready says in a word why the relay is not ready.
func (u *ui) unready() mark {
	for _, c := range u.relay.Readiness() {
		if c.Name == "not_draining" && !c.OK {
			return mark{"warn", "Draining"}
		}
	}
	return mark{"bad", "Not ready"}
}
