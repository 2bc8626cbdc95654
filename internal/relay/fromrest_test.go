package relay

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/certs"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/service"
	"github.com/xds-relay/xds-relay/internal/test/xdstest"
)

// restPlane is a control plane that speaks REST only.
type restPlane struct {
	server *http.Server

	mu     sync.Mutex
	world  map[cache.TypeURL]map[string]string // a resource as JSON, by type and name
	asked  []polled
	answer func(w http.ResponseWriter, t cache.TypeURL) bool

	slow    time.Duration // what an answer takes at least
	changed chan struct{} // closed when something changes; nil: it does not wait, whatever it is asked
	open    map[cache.TypeURL]int
	most    int // requests for one type, at the same time
}

// polled is a request, and what came of it.
type polled struct {
	at     time.Time
	typ    cache.TypeURL
	req    *discovery.DiscoveryRequest
	header http.Header
	status int
}

func newRESTPlane(l net.Listener) *restPlane {
	p := &restPlane{world: make(map[cache.TypeURL]map[string]string), open: make(map[cache.TypeURL]int)}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = p.server.Serve(l) }() // until it is closed
	return p
}

// stop answers what waits, and nothing any more.
func (p *restPlane) stop() {
	p.mu.Lock()
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
	p.mu.Unlock()
	p.server.Close()
}

// set puts resources, each written as name@version, in place of those of a type.
func (p *restPlane) set(t cache.TypeURL, resources ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed != nil {
		close(p.changed)
		p.changed = make(chan struct{})
	}
	p.world[t] = make(map[string]string)
	for _, r := range resources {
		name, version, _ := strings.Cut(r, "@")
		switch t {
		case cache.Endpoint:
			p.world[t][name] = fmt.Sprintf(`{"@type": %q, "cluster_name": %q, "policy": {"overprovisioning_factor": %s}}`, string(t), name, version)
		case cache.Cluster:
			p.world[t][name] = fmt.Sprintf(`{"@type": %q, "name": %q, "alt_stat_name": "v%s"}`, string(t), name, version)
		default:
			p.world[t][name] = fmt.Sprintf(`{"@type": %q, "name": %q, "stat_prefix": "v%s"}`, string(t), name, version)
		}
	}
}

// failing has answers given by f, as far as it returns true; nil: none.
func (p *restPlane) failing(f func(w http.ResponseWriter, t cache.TypeURL) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = f
}

// polls are the requests since the last call.
func (p *restPlane) polls() []polled {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := p.asked
	p.asked = nil
	return asked
}

func (p *restPlane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	one := polled{at: time.Now(), req: new(discovery.DiscoveryRequest), header: r.Header}
	if err := protojson.Unmarshal(body, one.req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, s := range service.All() {
		if s.RESTPath() == r.URL.Path && r.Method == http.MethodPost {
			one.typ = s.Type
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[one.typ]++
	p.most = max(p.most, p.open[one.typ])
	defer func() { p.open[one.typ]-- }()
	p.pause(time.After(p.slow))
	wait, _ := time.ParseDuration(strings.TrimPrefix(r.Header.Get("Prefer"), "wait=") + "s")
	for end := time.After(wait); p.changed != nil && time.Since(one.at) < wait && p.version(one) == one.req.GetVersionInfo(); {
		p.pause(end) // whether or not it has gone: bufconn's deadlines cannot tell
	}
	one.status = p.respond(w, one)
	p.asked = append(p.asked, one)
}

// pause waits, without the mutex, until something changes or the time is up.
func (p *restPlane) pause(end <-chan time.Time) {
	changed := p.changed
	p.mu.Unlock()
	defer p.mu.Lock()
	select {
	case <-changed:
	case <-end:
	}
}

// list is what a request asks for, as JSON, and version is its version.
func (p *restPlane) list(one polled) []byte {
	names := one.req.GetResourceNames()
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(p.world[one.typ]))
	}
	resources := []json.RawMessage{}
	for _, name := range slices.Sorted(maps.Keys(p.world[one.typ])) {
		if slices.Contains(names, name) || slices.Contains(names, cache.GlobOf(name)) {
			text := p.world[one.typ][name]
			resources = append(resources, json.RawMessage(text))
		}
	}
	text, _ := json.Marshal(resources)
	return text
}

func (p *restPlane) version(one polled) string {
	return fmt.Sprintf("%x", cache.HashOf(string(p.list(one))))
}

func (p *restPlane) respond(w http.ResponseWriter, one polled) int {
	if p.answer != nil && p.answer(w, one.typ) {
		return 0
	}
	version := p.version(one)
	if version == one.req.GetVersionInfo() {
		w.WriteHeader(http.StatusNotModified)
		return http.StatusNotModified
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"version_info": %q, "type_url": %q, "resources": %s}`, version, string(one.typ), p.list(one))
	return http.StatusOK
}

// restWorld is a relay above a control plane that speaks REST only.
type restWorld struct {
	*world
	plane *restPlane
}

func inRESTWorld(t *testing.T, set []string, f func(w *restWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		set = slices.Concat([]string{"upstream.coalesce_window=0s", "timers.settle=0s", "upstream.address=rest+http://plane.example/base", "upstream.insecure=true"}, set)
		c, err := config.Load("", set)
		if err != nil {
			t.Fatal(err)
		}
		w := &restWorld{world: &world{t: t, up: xdstest.NewNetwork(), down: xdstest.NewNetwork()}}
		w.seen.ended = make(map[session.Reason]int)
		w.plane = newRESTPlane(w.up.Listener())
		w.plane.server.Handler = http.StripPrefix("/base", w.plane)
		if w.relay, err = New(c, Options{Dial: w.up.Dial, Downstream: &w.seen, Follow: certs.Options{NoNotify: true}}); err != nil {
			t.Fatal(err)
		}
		w.relay.Serve(w.down.Listener())
		f(w)
		for _, conn := range w.conns {
			conn.Close()
		}
		w.clients.Wait()
		w.relay.Close(0)
		w.plane.stop()
	})
}

// ask subscribes to names of a type.
func (c *client) ask(t cache.TypeURL, names ...string) {
	c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(t), ResourceNamesSubscribe: names})
}

func (w *restWorld) wants(c *client, names ...string) {
	w.t.Helper()
	synctest.Wait()
	if got := c.names(); !slices.Equal(got, names) {
		w.t.Errorf("a client has %q, not %q", got, names)
	}
}

// TestFromREST: what is answered is the answer to the request (REST-12): a name that is not there is absent at once, and
// what changes comes with the next poll (REST-11).
func TestFromREST(t *testing.T) {
	inRESTWorld(t, []string{`upstream.headers={"authorization": {"value": "Bearer canary-5d1c"}}`, "upstream.node.metadata.x=y"}, func(w *restWorld) {
		w.plane.set(cache.Cluster, "a@1", "b@1")
		w.plane.set(cache.Endpoint, "a@100")
		begins := time.Now()
		c := w.open(w.dial(), "c", false)
		c.ask(cache.Endpoint, "a", "gone")
		synctest.Wait()
		c.see(func() {
			if c.responses != 2 || time.Since(begins) > 0 {
				t.Errorf("%d responses after %v", c.responses, time.Since(begins))
			}
		})
		w.wants(c, "a", "b")
		for _, one := range w.plane.polls() {
			if one.header.Get("Authorization") != "Bearer canary-5d1c" || one.req.GetNode().GetId() != "xds-relay" || one.req.GetNode().GetMetadata().GetFields()["x"].GetStringValue() != "y" || one.req.GetTypeUrl() != string(one.typ) || slices.Contains(one.req.GetNode().GetClientFeatures(), "xds.config.supports-resource-ttl") || one.header.Get("Prefer") != "" {
				t.Errorf("it is asked %v", one)
			}
		}
		before := c.version("b")
		w.plane.set(cache.Cluster, "b@1", "c@1")
		time.Sleep(5600 * time.Millisecond)
		w.wants(c, "b", "c")
		if c.version("b") != before {
			t.Error("what has not changed is another version")
		}
		c.ask(cache.Endpoint, "late")
		w.plane.polls()
		began := time.Now()
		synctest.Wait()
		if polls := w.plane.polls(); len(polls) != 1 || polls[0].at != began || !slices.Equal(polls[0].req.GetResourceNames(), []string{"a", "gone", "late"}) || polls[0].req.GetVersionInfo() != "" {
			t.Errorf("what is newly wanted is not asked for at once: %v", polls)
		}
		time.Sleep(time.Minute)
		times := make(map[cache.TypeURL]int)
		for _, one := range w.plane.polls() {
			times[one.typ]++
			if one.status != http.StatusNotModified {
				t.Errorf("at rest it answers %d", one.status)
			}
		}
		if n := times[cache.Cluster]; len(times) != 2 || n < 10 || n > 14 || times[cache.Endpoint] != n && max(n, times[cache.Endpoint])-min(n, times[cache.Endpoint]) > 3 {
			t.Errorf("in a minute it is asked %v", times)
		}
	})
}

// TestFromREST_Absent: what was there and is not in an answer stays, as Envoy has it, or goes; listeners and clusters go in
// any case (REST-12).
func TestFromREST_Absent(t *testing.T) {
	for _, absent := range []string{"keep", "remove"} {
		t.Run(absent, func(t *testing.T) {
			inRESTWorld(t, []string{"upstream.rest.absent=" + absent}, func(w *restWorld) {
				w.plane.set(cache.Cluster, "a@1")
				w.plane.set(cache.Endpoint, "x@100", "y@100")
				c := w.open(w.dial(), "c", false)
				c.ask(cache.Endpoint, "x", "y")
				w.wants(c, "a", "x", "y")
				w.plane.set(cache.Endpoint, "y@100")
				w.plane.set(cache.Cluster)
				time.Sleep(6 * time.Second)
				left := []string{"x", "y"}
				if absent == "remove" {
					left = left[1:]
				}
				w.wants(c, left...)
				w.plane.failing(func(w http.ResponseWriter, _ cache.TypeURL) bool {
					http.Error(w, "gone fishing", http.StatusServiceUnavailable)
					return true
				})
				time.Sleep(2 * time.Minute)
				w.plane.failing(nil)
				time.Sleep(30 * time.Second)
				w.wants(c, left...)
			})
		})
	}
}

// TestFromREST_Globs: a glob goes up as it is (NAME-13), and what is answered is the answer to it (REST-12): a member that is
// there is added, and one that was there and is not stays or goes. That a glob is empty is told by its own name (NAME-12).
func TestFromREST_Globs(t *testing.T) {
	const under = "xdstp://plane/envoy.config.endpoint.v3.ClusterLoadAssignment/"
	const glob = under + "web/*"
	for _, absent := range []string{"keep", "remove"} {
		t.Run(absent, func(t *testing.T) {
			inRESTWorld(t, []string{"upstream.rest.absent=" + absent}, func(w *restWorld) {
				w.plane.set(cache.Endpoint, under+"web/a@100", under+"web/b@100", under+"db/c@100")
				c := w.openNamed("c", cache.Endpoint, glob, under+"none/*")
				w.wants(c, under+"web/a", under+"web/b")
				if got := c.gone(); !slices.Equal(got, []string{under + "none/*"}) {
					t.Errorf("%q are gone; it wants the empty glob", got)
				}
				for _, one := range w.plane.polls() {
					if !slices.Equal(one.req.GetResourceNames(), []string{under + "none/*", glob}) {
						t.Errorf("it asks for %q", one.req.GetResourceNames())
					}
				}
				a, b := c.version(under+"web/a"), c.version(under+"web/b")
				w.plane.set(cache.Endpoint, under+"web/a@200", under+"web/b@100", under+"web/d@100")
				time.Sleep(6 * time.Second)
				w.wants(c, under+"web/a", under+"web/b", under+"web/d")
				if c.version(under+"web/a") == a || c.version(under+"web/b") != b {
					t.Error("of two members only the first has changed")
				}
				kept := func(all ...string) []string {
					if absent == "remove" {
						return nil
					}
					return all
				}
				w.plane.set(cache.Endpoint, under+"web/b@100")
				time.Sleep(6 * time.Second)
				w.wants(c, slices.Sorted(slices.Values(append(kept(under+"web/a", under+"web/d"), under+"web/b")))...)
				c.gone()
				w.plane.set(cache.Endpoint)
				time.Sleep(6 * time.Second)
				w.wants(c, kept(under+"web/a", under+"web/b", under+"web/d")...)
				if got := c.gone(); slices.Contains(got, glob) == (absent == "keep") || slices.Contains(got, under+"web/b") == (absent == "keep") {
					t.Errorf("%q are gone", got)
				}
				late := w.openNamed("late", cache.Endpoint, glob)
				w.wants(late, c.names()...)
				if got := late.gone(); slices.Contains(got, glob) == (absent == "keep") {
					t.Errorf("to a late client %q are gone", got)
				}
				w.plane.set(cache.Endpoint, under+"web/e@100")
				time.Sleep(6 * time.Second)
				w.wants(late, append(kept(under+"web/a", under+"web/b", under+"web/d"), under+"web/e")...)
				if _, err := c.over(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestFromREST_Failure: whatever is no answer is a control plane that fails, and says why; nothing is removed (REST-13).
func TestFromREST_Failure(t *testing.T) {
	long := strings.Repeat("long ", 100)
	for name, one := range map[string]struct {
		status int
		header string
		body   string
		says   string
	}{
		"500":         {500, "", "the template is wrong: Bearer canary-5d1c " + long, "500 Internal Server Error: the template is wrong: Bearer [redacted] long"},
		"503":         {503, "", "", "503 Service Unavailable"},
		"404":         {404, "", `{"detail": "No resources found"}`, `404 Not Found: {"detail": "No resources found"}`},
		"401":         {401, "", "who are you?", "401 Unauthorized: who are you?"},
		"a redirect":  {302, "http://elsewhere.example/", "", `302 Found, to "http://elsewhere.example/"; redirects are not followed`},
		"HTML":        {200, "", "<html>hello</html>", "200 OK, and is no JSON object: <html>hello</html>"},
		"a bad type":  {200, "", `{"resources": [{"@type": "made.Up"}]}`, `unable to resolve "made.Up"`},
		"another one": {200, "", `{"resources": [{"@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", "name": "r"}]}`, `resources[0] is of type "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"`},
		"no JSON":     {200, "", `{"resources": [`, "is no JSON object"},
	} {
		t.Run(name, func(t *testing.T) {
			inRESTWorld(t, []string{`upstream.headers={"authorization": {"value": "Bearer canary-5d1c"}}`}, func(w *restWorld) {
				w.plane.set(cache.Cluster, "a@1", "b@1")
				c := w.open(w.dial(), "c", false)
				w.wants(c, "a", "b")
				w.plane.failing(func(w http.ResponseWriter, _ cache.TypeURL) bool {
					if one.header != "" {
						w.Header().Set("Location", one.header)
					}
					w.WriteHeader(one.status)
					_, _ = io.WriteString(w, one.body)
					return true
				})
				time.Sleep(40 * time.Second)
				w.wants(c, "a", "b")
				failure := ""
				for _, state := range w.relay.Upstream() {
					for _, e := range state.Entries {
						failure += e.Error
					}
				}
				if !strings.Contains(failure, "POST http://plane.example/base/v3/discovery:clusters: ") || !strings.Contains(failure, one.says) || strings.Contains(failure, "canary") || len(failure) > 500 {
					t.Errorf("it says %q, not %q", failure, one.says)
				}
				w.plane.failing(nil)
				w.plane.set(cache.Cluster, "b@2")
				time.Sleep(30 * time.Second)
				w.wants(c, "b")
				if _, err := c.over(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestFromREST_Guard: the first answer after a failure is that of a new stream: if it lacks much, that is held back (H-22).
func TestFromREST_Guard(t *testing.T) {
	inRESTWorld(t, []string{"cache.mass_removal_guard={fraction: 0.5, min: 1}"}, func(w *restWorld) {
		w.plane.set(cache.Cluster, "a@1", "b@1", "c@1")
		c := w.open(w.dial(), "c", false)
		w.wants(c, "a", "b", "c")
		w.plane.failing(func(http.ResponseWriter, cache.TypeURL) bool { panic(http.ErrAbortHandler) })
		time.Sleep(40 * time.Second)
		w.plane.failing(nil)
		w.plane.set(cache.Cluster)
		time.Sleep(25 * time.Second)
		w.wants(c, "a", "b", "c")
		w.plane.set(cache.Cluster, "a@1", "b@1", "c@1")
		time.Sleep(10 * time.Minute)
		w.wants(c, "a", "b", "c")
		w.plane.set(cache.Cluster)
		time.Sleep(6 * time.Second)
		w.wants(c)
	})
}

// TestFromREST_OneType: a type that the control plane answers with an error takes nothing from the others, which are polled
// on, and is asked for again (H-39). One that has no path is refused.
func TestFromREST_OneType(t *testing.T) {
	inRESTWorld(t, nil, func(w *restWorld) {
		w.plane.set(cache.Cluster, "a@1")
		w.plane.set(cache.Listener, "l@1")
		w.plane.failing(func(w http.ResponseWriter, t cache.TypeURL) bool {
			if t == cache.Listener {
				http.Error(w, "No resources found", http.StatusNotFound)
			}
			return t == cache.Listener
		})
		c := w.open(w.dial(), "c", false)
		c.ask(cache.Listener, "*")
		c.ask(cache.VirtualHost, "r/v")
		time.Sleep(time.Minute)
		w.wants(c, "a")
		c.see(func() {
			if c.errors["r/v"] != int32(codes.FailedPrecondition) {
				t.Errorf("of a virtual host it is told %v", c.errors)
			}
		})
		for i := range 3 {
			w.plane.set(cache.Cluster, fmt.Sprintf("n%d@1", i))
			time.Sleep(6 * time.Second)
			w.wants(c, fmt.Sprintf("n%d", i))
		}
		w.plane.failing(nil)
		time.Sleep(time.Minute)
		w.wants(c, "l", "n2")
		w.plane.failing(func(w http.ResponseWriter, t cache.TypeURL) bool {
			if t == cache.Listener {
				http.Error(w, "the template is broken", http.StatusInternalServerError)
			}
			return t == cache.Listener
		})
		for i := range 20 { // it has answered before
			w.plane.set(cache.Cluster, fmt.Sprintf("m%d@1", i))
			time.Sleep(15 * time.Second)
			w.wants(c, "l", fmt.Sprintf("m%d", i))
		}
		if _, err := c.over(); err != nil {
			t.Error(err)
		}
	})
}

// TestFromREST_Wait: a control plane that puts off its answer is asked again at once when it has waited in vain, and what is
// newly wanted does not wait. One that does not wait is polled as ever (REST-14).
func TestFromREST_Wait(t *testing.T) {
	for _, waits := range []bool{true, false} {
		inRESTWorld(t, []string{"upstream.rest.wait=30s", "upstream.rest.poll=10s"}, func(w *restWorld) {
			if waits {
				w.plane.changed = make(chan struct{})
			}
			w.plane.set(cache.Endpoint, "x@100", "y@100")
			c := w.open(w.dial(), "c", false)
			c.ask(cache.Endpoint, "x")
			w.wants(c, "x")
			time.Sleep(13 * time.Second)
			w.plane.polls()
			time.Sleep(5 * time.Minute)
			var last time.Time
			polls := slices.DeleteFunc(w.plane.polls(), func(one polled) bool { return one.typ != cache.Endpoint })
			for _, one := range polls {
				if since := one.at.Sub(last); waits && since != 30*time.Second && !last.IsZero() || one.header.Get("Prefer") != "wait=30" {
					t.Errorf("it is asked after %v, %v", since, one.header)
				}
				last = one.at
			}
			if n := len(polls); waits && (n < 9 || n > 10) || !waits && (n < 27 || n > 33) {
				t.Errorf("it is asked %d times", n)
			}
			began := time.Now()
			c.ask(cache.Endpoint, "y")
			w.wants(c, "x", "y")
			before := c.version("x")
			if waits {
				time.Sleep(15 * time.Second)
				began = time.Now()
				w.plane.set(cache.Endpoint, "x@200", "y@100")
				synctest.Wait()
				if c.version("x") == before {
					t.Error("a change does not end the wait")
				}
			}
			if since := time.Since(began); since > 0 {
				t.Errorf("it took %v", since)
			}
		})
	}
}

// TestFromREST_WaitBeside: an answer that is put off holds up nothing: not the names beside the wildcard of the same type,
// nor other groups, however many connections there are (REST-14).
func TestFromREST_WaitBeside(t *testing.T) {
	inRESTWorld(t, []string{"upstream.rest.wait=30s", "groups.key=[id]", "upstream.max_connections=4"}, func(w *restWorld) {
		w.plane.changed = make(chan struct{})
		w.plane.set(cache.Cluster, "a@1", "b@1")
		w.plane.set(cache.Endpoint, "x@100")
		var all []*client
		for i := range 20 {
			all = append(all, w.open(w.dial(), fmt.Sprint("c", i), false))
		}
		for _, c := range all {
			w.wants(c, "a", "b")
		}
		time.Sleep(10 * time.Second) // what waits does so
		began := time.Now()
		named := w.openNamed("c0", cache.Cluster, "a")
		w.wants(named, "a")
		for _, c := range all {
			c.ask(cache.Endpoint, "x")
			w.wants(c, "a", "b", "x")
		}
		if since := time.Since(began); since > 0 {
			t.Errorf("it took %v", since)
		}
		time.Sleep(5 * time.Minute)
		w.plane.set(cache.Cluster, "b@1")
		time.Sleep(6 * time.Second)
		for _, c := range all {
			w.wants(c, "b", "x")
		}
		if n := w.seen.ended; len(n) > 0 {
			t.Errorf("streams ended: %v", n)
		}
		for _, state := range w.relay.Upstream() {
			for _, e := range state.Entries {
				if e.Error != "" {
					t.Errorf("it fails: %s", e.Error)
				}
			}
		}
	})
}

// TestFromREST_OneAtATime: while a type is asked for, it is not asked for again (REST-11).
func TestFromREST_OneAtATime(t *testing.T) {
	inRESTWorld(t, nil, func(w *restWorld) {
		w.plane.slow = 2 * time.Second
		var resources, names []string
		for i := range 50 {
			names = append(names, fmt.Sprintf("x%02d", i))
			resources = append(resources, names[i]+"@100")
		}
		w.plane.set(cache.Endpoint, resources...)
		c := w.open(w.dial(), "c", false)
		for _, name := range names {
			c.ask(cache.Endpoint, name)
			time.Sleep(300 * time.Millisecond)
		}
		time.Sleep(4 * time.Second)
		w.wants(c, names...)
		if n := len(w.plane.polls()); w.plane.most != 1 || n > 20 {
			t.Errorf("%d requests, %d for one type at the same time", n, w.plane.most)
		}
	})
}

// TestFromREST_Again: what is given up and wanted again before the next poll is answered, though the control plane would
// say that nothing has changed.
func TestFromREST_Again(t *testing.T) {
	inRESTWorld(t, []string{"timers.name_linger=0s"}, func(w *restWorld) {
		w.plane.set(cache.Endpoint, "x@100", "y@100")
		c := w.open(w.dial(), "c", false)
		c.ask(cache.Endpoint, "x", "y")
		w.wants(c, "x", "y")
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Endpoint), ResourceNamesUnsubscribe: []string{"x"}})
		synctest.Wait()
		c.see(func() { delete(c.versions, "x") })
		c.ask(cache.Endpoint, "x")
		w.wants(c, "x", "y")
	})
}

// TestFromREST_Reload: other settings are put to use without a stream of a client ending.
func TestFromREST_Reload(t *testing.T) {
	inRESTWorld(t, nil, func(w *restWorld) {
		w.plane.set(cache.Cluster, "a@1")
		c := w.open(w.dial(), "c", false)
		w.wants(c, "a")
		next, err := config.Load("", []string{"upstream.address=rest+http://plane.example/base", "upstream.insecure=true", "upstream.rest.poll=1h", "upstream.coalesce_window=0s", "timers.settle=0s"})
		if err == nil {
			err = w.relay.Reconfigure(next)
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		w.plane.polls()
		time.Sleep(40 * time.Minute)
		if polls := w.plane.polls(); len(polls) != 0 {
			t.Errorf("it is asked %d times", len(polls))
		}
		w.plane.set(cache.Cluster, "b@1")
		time.Sleep(40 * time.Minute)
		w.wants(c, "b")
		if _, err := c.over(); err != nil {
			t.Error(err)
		}
	})
}

// TestFromREST_Fallback: files behind it are used as behind any control plane, and it is when it is back (UP-26).
func TestFromREST_Fallback(t *testing.T) {
	d := newDirectory(t)
	d.put("clusters.yaml", clustersYAML("spare@1"))
	inRESTWorld(t, []string{fmt.Sprintf(`upstream.fallbacks=[{"address": "files://%s", "last_resort": false}]`, d.path)}, func(w *restWorld) {
		w.plane.set(cache.Cluster, "a@1")
		w.plane.failing(func(w http.ResponseWriter, _ cache.TypeURL) bool {
			w.WriteHeader(http.StatusBadGateway)
			return true
		})
		c := w.open(w.dial(), "c", false)
		time.Sleep(time.Minute)
		w.wants(c, "spare")
		w.plane.failing(nil)
		time.Sleep(3 * time.Minute)
		w.wants(c, "a")
		if _, err := c.over(); err != nil {
			t.Error(err)
		}
	})
}

// TestFromREST_Fleet: however many clients there are, there is one request for each type and poll, and one at a time.
func TestFromREST_Fleet(t *testing.T) {
	inRESTWorld(t, nil, func(w *restWorld) {
		w.plane.set(cache.Cluster, "a@1")
		w.plane.set(cache.Endpoint, "x@100")
		var all []*client
		for i := range 30 {
			c := w.open(w.dial(), fmt.Sprint("c", i), false)
			c.ask(cache.Endpoint, "x")
			all = append(all, c)
		}
		synctest.Wait()
		w.plane.polls()
		time.Sleep(51 * time.Second)
		if n := len(w.plane.polls()); n < 16 || n > 24 {
			t.Errorf("30 clients make %d requests in 51 s", n)
		}
		for _, c := range all {
			w.wants(c, "a", "x")
		}
	})
}
