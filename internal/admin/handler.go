package admin

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"time"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/csds"
	"github.com/xds-relay/xds-relay/internal/events"
)

// handler answers people and probes. It changes nothing but by release.
type handler struct {
	relay   Relay
	metrics *Metrics
	log     *slog.Logger
	level   *slog.LevelVar // nil: it cannot be changed
	started time.Time
	diffs   chan struct{} // has one for each that is being made
	ring    *events.Ring
	watched *events.Watch
	streams *streams
}

// page is an endpoint and what it says of itself on the list at /help.
type page struct {
	path, help string
	serve      http.HandlerFunc
	acts       bool // it changes something, and so answers POST only
}

// HandlerOptions say how a relay shows itself over HTTP.
type HandlerOptions struct {
	// Host is the host name or address it listens on, empty for a Unix socket.
	// Requests for another host are refused, so that a web page cannot reach it
	// under a name of its own (DNS rebinding).
	Host string
	// Pprof adds /debug/pprof.
	Pprof bool
	// Log has a line for each action of an operator. Level is its least severity, which
	// /logging can change; nil: it cannot.
	Log   *slog.Logger
	Level *slog.LevelVar
	// Reload reads the configuration again, and says what changed, or what is wrong with
	// it; nil: that cannot be done here.
	Reload func() (outcome string, err error)
	// CSDS is what the Client Status Discovery Service shows; nil: names, versions and states.
	CSDS func() config.CSDS
	// Events are what operators act on, and Watch shows what clients and the relay say to each other; nil: these are
	// not shown.
	Events *events.Ring
	Watch  *events.Watch
}

// NewHandler returns the face of a relay for its operator: HTTP, and gRPC on the same connections.
func NewHandler(r Relay, m *Metrics, o HandlerOptions) *Face {
	h := &handler{relay: r, metrics: m, log: o.Log, level: o.Level, started: time.Now(), diffs: make(chan struct{}, diffsAtOnce), ring: o.Events, watched: o.Watch, streams: newStreams()}
	tools := newServices(r, o.CSDS)
	pages := append(newProbes(r, m).pages(), []page{
		{"/clients", "open client streams, JSON; ?node= &prefix= &identity= &group= &type=CDS &sync=nacked &summary &limit= &continue=", h.clients, false},
		{"/clients/{stream}", "one client, and the versions that it has of each resource, JSON; ?type=CDS &limit= &continue=", h.client, false},
		{"/groups", "groups of clients: the key of each, the node that the control plane sees, and the state of its control planes, JSON", h.groups, false},
		{"/resources", "cached resources, JSON, without bodies; ?type=CDS &group= &prefix= &summary &limit= &continue=, and ?name= for who has which version", h.resources, false},
		{"/guard/release", "POST: carries out the removals that the mass-removal guard holds back; ?type=CDS &group=", h.release, true},
		{"/clients/{stream}/diff", "what one client lacks, has not acknowledged or has rejected, with both bodies where they are known, JSON; ?type=CDS &limit=", h.diff, false},
		{"/clients/{stream}/resync", "POST: sends one client again all that it asks for; a SotW client has to connect again for that", h.resync, true},
		{"/clients/{stream}/disconnect", "POST: ends one client's stream, so that it connects again", h.disconnect, true},
		{"/drain", "POST: reports that the relay is not ready; ?for=60s also refuses new streams, and ends the open ones over that time", h.drain, true},
		{"/undrain", "POST: ends a drain", h.undrain, true},
		{"/debug/check", "invariants of the clients' streams that do not hold, one line each, or ok", h.check, false},
		{csds.Path, "POST: the Client Status Discovery Service, in JSON; over gRPC there are CSDS, health, reflection and channelz on this address, too", tools.csds.ServeHTTP, true},
		{"/server_info", "version, uptime and readiness, JSON", h.serverInfo, false},
	}...)
	if o.Events != nil {
		pages = append(pages, page{"/events", "what to act on, and its end: NACKs, clients that are not in step, control planes, reloads, JSON; ?since=ID &kind=nack,stale &limit=, and ?follow for events as they come (SSE)", h.events, false})
	}
	if o.Watch != nil {
		pages = append(pages, page{"/watch", "requests and responses as they come, without bodies (SSE); ?stream= or ?node=, and &type=CDS", h.watch, false})
	}
	if o.Reload != nil {
		pages = append(pages, page{"/-/reload", "POST: reads the configuration again, and says what changed", reloadWith(o.Reload), true})
	}
	if o.Pprof {
		pages = append(pages, page{"/debug/pprof/", "profiles of this process", profiles, false})
	}
	if o.Level != nil {
		pages = append(pages, page{"/logging", "the least severity that is logged, JSON; POST ?level=debug, info, warn or error changes it", h.logging, false})
	}
	routes := newRoutes()
	for _, p := range pages {
		switch {
		case p.path == "/logging":
			routes.handle(p.path, getOrPost(p.serve))
		case p.acts:
			routes.handle(p.path, postOnly(p.serve))
		default:
			routes.handle(p.path, getOnly(p.serve))
		}
		if alias := aliases[p.path]; alias != "" {
			routes.handle(alias, getOnly(p.serve))
		}
	}
	view := newUI(h)
	for path, serve := range view.pages() {
		routes.handle(path, getOnly(serve))
	}
	routes.handle("/help", getOnly(helpOf(pages)))
	routes.handle("/", getOnly(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/" {
			http.Error(w, "no such endpoint; /help lists all of them", http.StatusNotFound)
			return
		}
		view.overview(w, req)
	}))
	return &Face{sameOrigin(checkHost(o.Host, tools.either(routes.mux))), routes.paths, tools}
}

// helpOf lists the endpoints.
func helpOf(pages []page) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintf(w, "%-14s %s\n", "/", "this relay at a glance, for people: clients, resources, control planes, events")
		for _, p := range pages {
			fmt.Fprintf(w, "%-14s %s\n", p.path, p.help)
		}
	}
}

// getOnly refuses everything that could change something.
func getOnly(next http.HandlerFunc) http.Handler {
	return only(next, "this endpoint is read with GET", http.MethodGet, http.MethodHead)
}

// getOrPost refuses other methods than GET and POST.
func getOrPost(next http.HandlerFunc) http.Handler {
	return only(next, "this endpoint is read with GET and acts when asked with POST", http.MethodGet, http.MethodHead, http.MethodPost)
}

// postOnly refuses requests that a browser or a crawler makes by itself.
func postOnly(next http.HandlerFunc) http.Handler {
	return only(next, "this endpoint acts; ask it with POST", http.MethodPost)
}

func only(next http.HandlerFunc, refusal string, methods ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !slices.Contains(methods, req.Method) {
			w.Header().Set("Allow", strings.Join(methods, ", "))
			http.Error(w, refusal, http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		next(w, req)
	})
}

// sameOrigin refuses what a web page of another origin asks.
func sameOrigin(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		deny(w, req, http.StatusForbidden, protection.Check(req).Error())
	}))
	return protection.Handler(next)
}

// checkHost lets through requests for a host name of ours.
func checkHost(host string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name := req.Host
		if h, _, err := net.SplitHostPort(name); err == nil {
			name = h
		}
		name = strings.Trim(name, "[]")
		ip := net.ParseIP(name)
		if host == "" || strings.EqualFold(name, host) || strings.EqualFold(name, "localhost") || ip != nil && ip.IsLoopback() {
			next.ServeHTTP(w, req)
			return
		}
		deny(w, req, http.StatusMisdirectedRequest, fmt.Sprintf("this is not %q; ask for localhost, or for the address of admin.listen", req.Host))
	})
}

// profiles are those of net/http/pprof, except for the command line.
func profiles(w http.ResponseWriter, req *http.Request) {
	switch req.URL.Path {
	case "/debug/pprof/profile":
		pprof.Profile(w, req)
	case "/debug/pprof/trace":
		pprof.Trace(w, req)
	case "/debug/pprof/cmdline":
		http.Error(w, "not served", http.StatusNotFound)
	default:
		pprof.Index(w, req)
	}
}

func (h *handler) serverInfo(w http.ResponseWriter, req *http.Request) {
	ready, why := h.relay.Ready()
	reply(w, struct {
		Build
		UptimeSeconds int64  `json:"uptime_seconds"`
		Ready         bool   `json:"ready"`
		Why           string `json:"why"`
		Clients       int    `json:"clients"`
		// Passthrough counts the open calls of each service that goes through to the control plane.
		Passthrough map[string]int `json:"passthrough,omitempty"`
	}{h.metrics.build, int64(time.Since(h.started).Seconds()), ready, why, h.relay.Count(), h.relay.Calls()})
}

// check answers with the invariants that do not hold, which is a bug of the relay.
func (h *handler) check(w http.ResponseWriter, req *http.Request) {
	broken := h.relay.Check()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if len(broken) == 0 {
		fmt.Fprintln(w, "ok")
		return
	}
	w.WriteHeader(http.StatusInternalServerError)
	for _, b := range broken {
		fmt.Fprintln(w, b)
	}
}

func reply(w http.ResponseWriter, v any) { write(w, v, "  ") }

// replyPage answers with a page of at most so many entries. What is larger than usual is for programs, and not indented,
// which takes a third of the time.
func replyPage(w http.ResponseWriter, v any, limit int) {
	if limit > defaultLimit {
		write(w, v, "")
		return
	}
	reply(w, v)
}

func write(w http.ResponseWriter, v any, indent string) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", indent)
	_ = e.Encode(v) // an error means that whoever asked is gone
}
