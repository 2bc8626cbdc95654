package admin

import (
	"fmt"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/xds-relay/xds-relay/internal/health"
)

// scrapes is how many may be answered at once: each looks at every stream and every type,
// and the listener may be open to a network.
const scrapes = 8

// probes answer those who watch the relay: Kubernetes, load balancers, Prometheus.
type probes struct {
	relay Relay
	prom  http.Handler
}

func newProbes(r Relay, m *Metrics) probes {
	return probes{r, promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: scrapes})}
}

// pages are what they answer at, the first of each with its other name.
func (p probes) pages() []page {
	return []page{
		{"/livez", "200 while the process makes progress, whatever the control plane does; ?verbose lists the checks", p.live, false},
		{"/readyz", "200 when the relay can serve clients; the body says why not; ?verbose lists the checks", p.ready, false},
		{"/startupz", "200 once it was ready", p.startup, false},
		{"/metrics", "metrics for Prometheus", p.prom.ServeHTTP, false},
	}
}

// aliases are further names of pages.
var aliases = map[string]string{"/readyz": "/ready", "/metrics": "/stats/prometheus"}

// NewProbes returns the HTTP face of a relay that everybody may see: probes and metrics,
// and nothing else. It shows no client, no resource and no address of the relay's peers
// but the control planes that metrics name.
func NewProbes(r Relay, m *Metrics) *Face {
	routes := newRoutes()
	for _, page := range newProbes(r, m).pages() {
		routes.handle(page.path, getOnly(page.serve))
		if alias := aliases[page.path]; alias != "" {
			routes.handle(alias, getOnly(page.serve))
		}
	}
	return &Face{Handler: routes.mux, routes: routes.paths}
}

func (p probes) live(w http.ResponseWriter, req *http.Request) {
	answer(w, req, "live", p.relay.Liveness())
}

func (p probes) ready(w http.ResponseWriter, req *http.Request) {
	answer(w, req, "ready", p.relay.Readiness())
}

func (p probes) startup(w http.ResponseWriter, req *http.Request) {
	if p.relay.Started() {
		answer(w, req, "started", nil)
		return
	}
	answer(w, req, "started", p.relay.Readiness())
}

// answer says in one line whether all checks hold; if it is asked to be verbose, in one
// line for each, as Kubernetes' own components do.
func answer(w http.ResponseWriter, req *http.Request, what string, checks []health.Check) {
	ok, why := health.Verdict(checks)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if req.URL.Query().Has("verbose") {
		list(w, checks)
		if why != "" {
			why = ": " + why
		}
		why = map[bool]string{true: what, false: "not " + what}[ok] + why
	} else if ok {
		why = what
	}
	fmt.Fprintln(w, why)
}

func list(w io.Writer, checks []health.Check) {
	for _, c := range checks {
		if c.OK {
			fmt.Fprintf(w, "[+]%s ok\n", c.Name)
		} else {
			fmt.Fprintf(w, "[-]%s failed: %s\n", c.Name, c.Why)
		}
	}
}
