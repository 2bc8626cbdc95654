package admin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// hostile is what a stranger may call itself, and say.
const hostile = `<script>alert(1)</script>"'&` + "\x1b[2J\u202e"

// many is a relay with many clients: of each hundred two are stale, one rejects and one is refused.
type many struct {
	described
	clients int
	looked  *atomic.Int64 // how many clients were described
}

func newMany(clients int) many { return many{newDescribed(), clients, new(atomic.Int64)} }

func (m many) Count() int { return m.clients }
func (m many) Streams() (all []uint64) {
	for i := range m.clients {
		all = append(all, uint64(i+1))
	}
	return all
}

func (m many) Client(stream uint64) (c downstream.Client, ok bool) {
	m.looked.Add(1)
	if stream == 0 || stream > uint64(m.clients) {
		return c, false
	}
	i := int(stream - 1)
	at := time.Unix(1_700_000_000, 0)
	c = downstream.Client{
		Stream: stream, Node: fmt.Sprintf("node-%05d", i), Cluster: fmt.Sprint("cluster-", i%40), Peer: fmt.Sprintf("10.0.%d.%d:4711", i/250, i%250),
		Protocol: protocols[i%2], Since: at.Add(time.Duration(i) * time.Second), Sync: "synced",
	}
	for _, t := range []cache.TypeURL{cache.Cluster, cache.Listener, cache.Endpoint, cache.Route, cache.Secret} {
		c.Types = append(c.Types, session.ClientType{Type: t, Group: "default", Sync: "synced", Wildcard: true, Nonce: "1", Version: "1:81539e28d1553a00815d15c3bbe66ff9", LastSent: at, LastAck: at})
	}
	switch of := &c.Types[0]; i % 100 {
	case 1, 2:
		of.Sync, of.Behind, of.Since = "unacked", 1+i%7, at
	case 3:
		of.Sync, of.Behind, of.Since, of.Nack, of.Nacked, of.NackedNames = "nacked", 1, at.Add(time.Minute), "bad "+hostile, 3, []string{"a", hostile}
		c.Node = hostile
	case 4:
		of.Refused, of.Sync, of.Group = "no rule "+hostile, "unsent", "none"
	}
	return c, true
}

func (m many) ClientNames(stream uint64, t cache.TypeURL, after string, most int) ([]session.ClientName, bool) {
	if t == cache.Cluster && stream%100 == 4 && after == "" {
		return []session.ClientName{{Name: hostile, Step: session.StepRejected, Sent: "v1", Now: "v2"}, {Name: "a", Asked: true, Step: session.StepUnsent, Sent: "v1", Now: "v2"}}, false
	}
	return m.described.ClientNames(stream, t, after, most)
}

// ClientName and ClientLacks: the stale ones owe an acknowledgement of a, those that reject do so with a and c.
func (m many) ClientName(stream uint64, t cache.TypeURL, name string) (n session.ClientName, some bool) {
	n = session.ClientName{Name: name, Asked: true, Step: session.StepSynced, Sent: "v2 of " + string(t), Now: "v2 of " + string(t)}
	if name == "missing" {
		n.Sent, n.Now = "", ""
		return n, stream == 1
	}
	switch i := (stream - 1) % 100; {
	case t == cache.Cluster && i == 3 && name != "b":
		n.Step = session.StepRejected
	case t == cache.Cluster && i > 0 && i < 3 && name == "a":
		n.Step = session.StepUnacked
	}
	return n, (stream-1)%100 != 4
}

func (m many) ClientLacks(stream uint64, t cache.TypeURL) (all []session.ClientName) {
	for _, name := range []string{"a", "b", "c"} {
		if n, some := m.ClientName(stream, t, name); some && n.Step != session.StepSynced {
			all = append(all, n)
		}
	}
	return all
}

func newPage(r Relay, ring *events.Ring) (http.Handler, *Metrics) {
	m := NewMetrics(ReadBuild("test"))
	m.Attach(r)
	return NewHandler(r, m, HandlerOptions{Host: "localhost", Log: slog.New(slog.DiscardHandler), Events: ring}), m
}

func look(h http.Handler, path string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

// TestViews: each view shows what it is asked for, or says with the right code what is wrong; nothing of a stranger is
// markup, no secret is shown, and the browser may load nothing from elsewhere.
func TestViews(t *testing.T) {
	ring := events.NewRing(nil)
	ring.Publish(events.Event{Kind: events.Nack, Level: events.Warn, Type: cache.Cluster, Client: &events.Client{Stream: 4, Node: hostile}, Names: []string{hostile}, Count: 9, Message: "said " + hostile})
	ring.Publish(events.Event{Kind: events.ControlPlaneLost, Level: events.Warn, ControlPlane: "b:1", Message: "refused " + hostile})
	h, m := newPage(newMany(250), ring)
	m.ClientPropagation(cache.Cluster, 3*time.Millisecond, "")
	m.Converged(cache.Cluster, 40*time.Millisecond)
	m.UpstreamResponse(cache.Cluster, 4, 0)
	m.UpstreamReceived("a:1", 1536)
	m.ClientResponse(cache.Cluster, 10, 2, 3<<10)
	for _, v := range []struct {
		path string
		code int
		has  []string
	}{
		{"/", 200, []string{"Not ready", ">250<", ">238<", ">6<", ">3<", "cluster-1<", "Control plane silent", "2.8 ms", "40 ms", "expired ", "<b>12</b> resources, 3.0 KiB", "<b>4</b> resources, 1.5 KiB", "<b>3.0</b> resources out for each in, 2.0 times the bytes", "Control plane lost", "have not acknowledged for more than", `type=CDS">`, "longest ", `href="/ui/clients?state=out"><span class="mark s-bad">`, "12 out of step"}},
		{"/?by=group", 200, []string{"group=default"}},
		{"/?by=x", 400, []string{"use cluster or group"}},
		{"/?x=1", 400, []string{"unknown parameter"}},
		{"/ui/clients", 200, []string{"250 clients", "1–50 of 250", `aria-current="page">1<`, "Rejected 1 ·", "CDS"}},
		{"/ui/clients?state=rejected", 200, []string{"3 of 250 clients"}},
		{"/ui/clients?state=out", 200, []string{"12 of 250 clients"}},
		{"/ui/clients?page=5", 200, []string{"201–250 of 250"}},
		{"/ui/clients?page=6", 404, []string{"There is no page 6"}},
		{"/ui/clients?page=0", 400, []string{"a number from 1 on"}},
		{"/ui/clients?page=99999999999999999999", 400, []string{"a number from 1 on"}},
		{"/ui/clients?state=bad", 400, []string{"use out, behind, rejected"}},
		{"/ui/clients?type=nothing", 400, []string{"use a short name such as CDS"}},
		{"/ui/clients?sort=size", 400, []string{"use state, node, behind or connected"}},
		{"/ui/clients?q=nobody-like-this", 200, []string{"No client matches", "Show all 250"}},
		{"/ui/clients/4", 200, []string{"bad &lt;script&gt;", "The response had 3 resources", "and 1 more", "/clients/4/resync", "/clients/4/disconnect", "Its events"}},
		{"/ui/clients/4?names=all&type=CDS", 200, []string{"Stale: waits to be sent", "Resources of CDS"}},
		{"/ui/clients/2", 200, []string{"Sent at ", "no answer since", "It acknowledged last at "}},
		{"/ui/clients/4?names=some", 400, []string{"names is"}},
		{"/ui/clients/5", 200, []string{"no rule &lt;script&gt;", "Refused"}},
		{"/ui/clients/999", 404, []string{"There is no stream 999"}},
		{"/ui/clients/x", 400, []string{"is no stream"}},
		{"/ui/resources", 200, []string{"type=CDS", "type=SDS"}},
		{"/ui/resources?type=CDS", 200, []string{"Present", "Does not exist", "1 client asks for it", "3 rejected", "6 stale", "state=behind"}},
		{"/ui/resources?type=CDS&sort=size", 400, []string{"use name, or leave it out"}},
		{"/ui/resources?type=SDS", 200, []string{"[redacted]"}},
		{"/ui/resources?type=CDS&after=x", 400, []string{"use what the page before gave"}},
		{"/ui/resources?type=CDS&prefix=zz", 200, []string{"No name begins like this"}},
		{"/ui/resource?type=CDS&name=a", 200, []string{"9 out of step", "238 of 247 clients in step", "Clients that are out of step with it", "bad &lt;script&gt;", "not known", "Stale: not acknowledged"}},
		{"/ui/resource?type=CDS&name=missing", 200, []string{"Does not exist", "1 client asks for it"}},
		{"/ui/resource?type=SDS&name=a", 200, []string{"[redacted]"}},
		{"/ui/resource?type=CDS&name=none", 404, []string{"knows nothing of CDS"}},
		{"/ui/resource?type=CDS", 400, []string{"name a type and a resource"}},
		{"/ui/planes", 200, []string{"a:1", "Silent", "b:1", "connection refused", "Control plane lost", "edge-1", "12 out of step"}},
		{"/ui/events", 200, []string{"Rejected", "of 9 resources", "said &lt;script&gt;", "/ui/clients/4"}},
		{"/ui/events?kind=nack", 200, []string{"checked", "Rejected"}},
		{"/ui/events?kind=nack&kind=stale", 200, []string{"Rejected"}},
		{"/ui/events?kind=x", 400, []string{"use some of"}},
		{"/ui/events?show=0", 400, []string{"a number from 1 to"}},
	} {
		w := look(h, v.path)
		body := w.Body.String()
		if w.Code != v.code {
			t.Errorf("%s: %d, want %d", v.path, w.Code, v.code)
		}
		for _, want := range v.has {
			if !strings.Contains(body, want) {
				t.Errorf("%s does not have %q", v.path, want)
			}
		}
		for _, never := range []string{"<script>alert", "\x1b", "\u202e", canary, " style=", "onclick"} {
			if strings.Contains(body, never) {
				t.Errorf("%s has %q", v.path, never)
			}
		}
		if n := strings.Count(body, "<script"); n != 1 {
			t.Errorf("%s has %d scripts", v.path, n)
		}
		for name, want := range map[string]string{"Content-Security-Policy": uiCSP, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin"} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q", v.path, name, got)
			}
		}
	}
	for path, kind := range map[string]string{"/ui/page.css": "text/css", "/ui/page.js": "text/javascript", "/ui/icon.svg": "image/svg+xml"} {
		if w := look(h, path); w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), kind) || w.Body.Len() == 0 {
			t.Errorf("%s: %d, %s", path, w.Code, w.Header().Get("Content-Type"))
		}
	}
}

// TestViewsOfNothing: a relay without clients and resources has views that say so.
func TestViewsOfNothing(t *testing.T) {
	h, _ := newPage(newMany(0), nil)
	for path, want := range map[string]string{"/": "No client is connected", "/ui/clients": "No client is connected", "/ui/events": "Nothing to act on has happened"} {
		if w := look(h, path); w.Code != 200 || !strings.Contains(w.Body.String(), want) || strings.Contains(w.Body.String(), "out of step") {
			t.Errorf("%s: %d: %s", path, w.Code, w.Body)
		}
	}
}

// TestNothingInline: templates have neither styles nor scripts of their own, which the policy would keep from working.
func TestNothingInline(t *testing.T) {
	inline := regexp.MustCompile(`(?i)\sstyle=|\son[a-z]+=|<style|<script>|javascript:|src="https?:|href="https?://[^"]*\.(css|js)`)
	err := fs.WalkDir(uiFiles, "ui", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".html") {
			return err
		}
		text, err := fs.ReadFile(uiFiles, path)
		if at := inline.FindIndex(text); at != nil {
			t.Errorf("%s has %q", path, text[at[0]:at[1]])
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if script, _ := uiFiles.ReadFile("ui/page.js"); strings.Count(string(script), "\n") > 300 || strings.Contains(string(script), "innerHTML") {
		t.Error("the script is too long, or writes markup")
	}
}

// TestClientList: the list is filtered, sorted and paged.
func TestClientList(t *testing.T) {
	h, _ := newPage(newMany(250), nil)
	node := regexp.MustCompile(`<a href="/ui/clients/(\d+)">`)
	for _, c := range []struct {
		query string
		want  []string // the first streams
		count int      // on the page
	}{
		{"", []string{"4", "104", "204", "5", "105"}, 50}, // rejected, then refused
		{"?sort=-state", []string{"1"}, 50},
		{"?sort=node&q=node-0001", []string{"11", "12", "13"}, 10},
		{"?sort=-node&q=node-0001", []string{"20", "19", "18"}, 10},
		{"?sort=behind&state=stale", []string{"203", "202"}, 6},
		{"?sort=connected", []string{"250", "249"}, 50},
		{"?state=out", nil, 12},
		{"?state=stale", nil, 6},
		{"?state=refused", nil, 3},
		{"?state=in-step&cluster=cluster-9", nil, 7},
		{"?cluster=", nil, 0},
		{"?type=CDS&state=rejected", []string{"4", "104", "204"}, 3},
		{"?type=LDS&state=rejected", nil, 0},
		{"?group=none", []string{"5", "105", "205"}, 3},
		{"?q=10.0.0.7:", []string{"8"}, 1},
		{"?q=%3Cscript", []string{"4", "104", "204"}, 3},
		{"?page=5", nil, 50},
	} {
		w := look(h, "/ui/clients"+c.query)
		var got []string
		for _, m := range node.FindAllStringSubmatch(w.Body.String(), -1) {
			got = append(got, m[1])
		}
		if len(got) != c.count || len(c.want) > 0 && !slices.Equal(got[:min(len(c.want), len(got))], c.want) {
			t.Errorf("%s: %d, %q; want %d, %q", c.query, len(got), got[:min(len(got), 8)], c.count, c.want)
		}
	}
}

// TestResourceList: those resources come first with which most clients are out of step, or names come in their order.
func TestResourceList(t *testing.T) {
	h, _ := newPage(newMany(250), nil)
	name := regexp.MustCompile(`<th scope="row" class="breaks"><a class="name" href="[^"]*">([^<]*)<`)
	for query, want := range map[string]string{"": "a c b missing", "&sort=name": "a b c missing", "&prefix=c": "c", "&group=none": ""} {
		var got []string
		for _, m := range name.FindAllStringSubmatch(look(h, "/ui/resources?type=CDS"+query).Body.String(), -1) {
			got = append(got, m[1])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", query, got, want)
		}
	}
}

// TestReasonFirst: why a client is out of step, and what differs, stand before what it is.
func TestReasonFirst(t *testing.T) {
	h, _ := newPage(newMany(10), nil)
	for stream, reason := range map[string]string{"2": "no answer since", "4": "bad &lt;script", "5": "no rule &lt;script"} {
		body := look(h, "/ui/clients/"+stream).Body.String()
		at, facts := strings.Index(body, reason), strings.Index(body, "<dt>Stream</dt>")
		if diff := strings.Index(body, `id="h-diff"`); at < 0 || at > facts || diff > facts {
			t.Errorf("stream %s: the reason is at %d, what differs at %d, the facts are at %d", stream, at, diff, facts)
		}
	}
}

// slow takes its time to say what a client lacks.
type slow struct{ many }

func (s slow) ClientLacks(stream uint64, t cache.TypeURL) []session.ClientName {
	time.Sleep(10 * time.Millisecond)
	return s.many.ClientLacks(stream, t)
}

// TestManyOutOfStep: where so many clients are out of step that a look at all takes too long, the worst are counted, and the
// list says so.
func TestManyOutOfStep(t *testing.T) {
	h, _ := newPage(slow{newMany(5000)}, nil)
	begin := time.Now()
	body := look(h, "/ui/resources?type=CDS").Body.String()
	if took := time.Since(begin); took > time.Second { // of 150 that is 10 ms each
		t.Errorf("it takes %v", took)
	}
	for _, want := range []string{"only the worst of them are counted", `50 rejected`} { // the latter of the type
		if !strings.Contains(body, want) {
			t.Errorf("there is no %q", want)
		}
	}
}

// TestWhoHasWhich: a client has what it has accepted, whatever it was sent since.
func TestWhoHasWhich(t *testing.T) {
	for _, c := range []struct {
		n    session.ClientName
		want has
	}{
		{session.ClientName{Step: session.StepSynced, Sent: "2", Now: "2"}, has{Version: "2", Known: true}},
		{session.ClientName{Step: session.StepSynced}, has{Known: true}},
		{session.ClientName{Step: session.StepRejected, Sent: "2", Now: "2"}, has{Version: "1", Probably: true}},
		{session.ClientName{Step: session.StepUnacked, Sent: "2", Now: "2"}, has{Version: "1", Probably: true}},
		{session.ClientName{Step: session.StepUnsent, Sent: "0", Now: "2"}, has{Version: "0", Known: true}},
		{session.ClientName{Step: session.StepUnsent, Now: "2"}, has{Known: true}},
		{session.ClientName{Step: session.StepUnsent, Older: true, Now: "2"}, has{Version: "1", Probably: true}},
		{session.ClientName{Step: session.StepStays, Sent: "0"}, has{Version: "0", Known: true}},
		{session.ClientName{Step: session.StepAwaited}, has{}},
	} {
		if got := hasOf(c.n, "1"); got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.n, got, c.want)
		}
	}
	if got := hasOf(session.ClientName{Step: session.StepRejected, Sent: "2", Now: "2"}, ""); got != (has{}) {
		t.Errorf("nothing is remembered, and it has %+v", got)
	}
}

// TestMissing: only what was there is called removed.
func TestMissing(t *testing.T) {
	for _, c := range []struct {
		e    entry
		want mark
	}{
		{entry{Cause: causes[cache.Removed], Clients: 3}, mark{"warn", "Does not exist"}},
		{entry{Cause: causes[cache.NotFoundError]}, mark{"none", "Does not exist"}},
		{entry{Cause: causes[cache.Sweep], Wildcard: true, Clients: 3}, mark{"none", "Does not exist"}},
		{entry{Cause: causes[cache.Removed], Previous: "1", Clients: 3}, mark{"none", "Removed"}},
		{entry{Cause: causes[cache.Timer], Clients: 3}, mark{"none", "No answer"}},
	} {
		if c.e.State = states[cache.Absent]; c.e.Mark() != c.want {
			t.Errorf("%+v: %v", c.e, c.e.Mark())
		}
	}
}

// TestFleet: all who look share one fleet, which is taken anew when something has moved, and dropped when nobody looks
// any more.
func TestFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMany(10)
		var moves atomic.Uint64
		f := &fleets{relay: r, moves: &moves}
		taken := func(want int64, why string) {
			t.Helper()
			if f.now(); f.taken.Load() != want {
				t.Errorf("%s: it was taken %d times, want %d", why, f.taken.Load(), want)
			}
		}
		taken(1, "at first")
		time.Sleep(time.Second)
		taken(1, "nothing has moved")
		moves.Add(1)
		taken(2, "something has moved")
		f.last.took = 100 * time.Millisecond // it is expensive
		time.Sleep(time.Second)
		moves.Add(1)
		taken(2, "it is kept for a while, however much moves")
		time.Sleep(resting*100*time.Millisecond - time.Second)
		taken(3, "not for ever")
		time.Sleep(atRest)
		taken(4, "what does not move")
		time.Sleep(forgotten + time.Second)
		synctest.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.last != nil {
			t.Error("nobody looks, and it is kept")
		}
	})
}

// used is how much of the processors this process has used so far.
func used(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestPageCost checks that with 10,000 clients rendering a page takes at most 200 ms of one core, and that what is
// cached for the next request takes at most 32 MiB.
func TestPageCost(t *testing.T) {
	const clients, most = 10_000, 32 << 20
	within := 200 * time.Millisecond
	if peer.Race {
		within *= 10
	}
	h, m := newPage(newMany(clients), nil)
	look(h, "/") // templates and pools
	var before, after runtime.MemStats
	for _, path := range []string{"/", "/ui/clients", "/ui/clients?q=node-0&sort=-behind", "/ui/resources?type=CDS", "/ui/resource?type=CDS&name=a"} {
		best := time.Hour
		for range 5 { // others use the processor, too
			m.observed.move()
			view := newUI(&handler{relay: newMany(clients), metrics: m})
			begin := used(t)
			view.fleets.now()
			if w := look(h, path); w.Code != 200 {
				t.Fatalf("%s: %d", path, w.Code)
			}
			best = min(best, used(t)-begin)
			view.fleets.forget.Stop()
		}
		t.Logf("%s: %v", path, best)
		if best > within {
			t.Errorf("%s takes %v", path, best)
		}
	}
	heap := func(m *runtime.MemStats) {
		for range 3 { // what has a finalizer goes later
			runtime.GC()
		}
		runtime.ReadMemStats(m)
	}
	heap(&before)
	f := &fleets{relay: newMany(clients), moves: &m.observed.moves}
	kept := f.now()
	heap(&after)
	size := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("a fleet of %d takes %.1f MiB", len(kept.rows), float64(size)/(1<<20))
	if size*2 > most { // the next one is made while the last one is there
		t.Errorf("a fleet takes %d bytes", size)
	}
	f.forget.Stop()
	runtime.KeepAlive(kept)
}

func BenchmarkOverview(b *testing.B) {
	h, m := newPage(newMany(10_000), nil)
	b.ReportAllocs()
	for b.Loop() {
		m.observed.move()
		look(h, "/")
	}
}

// TestLive: a page hears within a second that something has moved, from whatever; no more streams are open than may be,
// and one that has ended makes room.
func TestLive(t *testing.T) {
	m := NewMetrics(Build{})
	r := newDescribed()
	m.Attach(r)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	s := Serve(l, NewHandler(r, m, HandlerOptions{Host: "127.0.0.1", Log: log}), log)
	defer s.Close()
	url := "http://" + l.Addr().String() + "/ui/live"
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second) // else a page that hears nothing waits for ever
	defer stop()
	open := func() (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, err
		}
		return client.Do(req)
	}

	resp, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("it is %s", kind)
	}
	lines := bufio.NewScanner(resp.Body)
	next := func() (data string) {
		for lines.Scan() {
			if d, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return d
			}
		}
		return ""
	}
	first := next()
	for what, move := range map[string]func(){
		"a client's request": func() { m.ClientRequest(cache.Cluster, session.AckRequest) },
		"an event":           func() { m.EventPublished(events.Stale) },
		"a response":         func() { m.ClientResponse(cache.Cluster, 1, 0, 10) },
		"a client that goes": func() { m.ClientDisconnected("delta", session.Drained) },
	} {
		begin := time.Now()
		move()
		if said := next(); said == first || said == "" || time.Since(begin) > time.Second {
			t.Errorf("%s: %q after %v", what, said, time.Since(begin))
		} else {
			first = said
		}
	}
	bodies := []*http.Response{resp}
	for len(bodies) < maxStreams {
		resp, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusOK {
			resp.Body.Close()
			break
		}
		bodies = append(bodies, resp)
	}
	more, err := open()
	if err != nil {
		t.Fatal(err)
	}
	more.Body.Close()
	if more.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one more than %d: %d", len(bodies), more.StatusCode)
	}
	for _, b := range bodies {
		b.Body.Close()
	}
	for end := time.Now().Add(10 * time.Second); ; {
		resp, err := open()
		if err != nil && !errors.Is(err, http.ErrServerClosed) {
			t.Fatal(err)
		}
		code := resp.StatusCode
		resp.Body.Close()
		if code == http.StatusOK {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("streams that have ended take room: %d", code)
		}
	}
}
