package downstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/readable"
)

// stall is how long clients of a polledServer may leave an answer unread.
const stall = 200 * time.Millisecond

// polledServer serves clients that poll, from a Hub that has n clusters when feed was called.
func polledServer(t testing.TB, n int, body func(name string) *anypb.Any) (s *Server, address string, feed func()) {
	t.Helper()
	hub := fanout.NewHub(fanout.Config{Linger: time.Minute, Name: "east"})
	s = NewServer(ServerConfig{
		Config:      session.Config{AckTimeout: time.Minute, MaxName: 100, MaxNames: 2 * n},
		Credentials: insecure.NewCredentials(), Groups: oneGroup{hub}, MaxRequest: 1 << 20, MaxStreams: 10, MaxInflight: 4 << 20, StallTimeout: stall,
		REST: RESTConfig{InterestTTL: time.Minute, MaxPollers: 10}, Log: slog.New(slog.DiscardHandler),
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	messages, err := readable.Load()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.ServeREST(l, func() *tls.Config { return nil }, messages) }()
	t.Cleanup(func() {
		s.Close(0)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	feed = func() {
		update := &cache.Update{Synced: true, Source: cache.NewSource(epoch, nil)}
		for i := range n {
			name := fmt.Sprint("cluster-", i)
			r := cache.NewResource(cache.Cluster, &discovery.Resource{Name: name, Version: "1", Resource: body(name)}, cache.Fingerprint{})
			update.Set = append(update.Set, cache.Received{Resource: r})
		}
		hub.Apply(fanout.Lane{Type: cache.Cluster, Wildcard: true}, update)
		hub.Apply(fanout.Lane{Type: cache.Cluster}, update)
	}
	return s, l.Addr().String(), feed
}

// ofCluster is a cluster as a control plane sends it.
func ofCluster(name string) *anypb.Any {
	a, _ := anypb.New(&cluster.Cluster{Name: name, AltStatName: strings.Repeat("x", 500)})
	return a
}

// post polls for clusters.
func post(t testing.TB, client *http.Client, address, text string) (code int, body string) {
	t.Helper()
	resp, err := client.Post("http://"+address+"/v3/discovery:clusters", "application/json", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// versionIn is the version of an answer.
func versionIn(body string) string {
	version, _, _ := strings.Cut(strings.TrimPrefix(body, `{"versionInfo":"`), `"`)
	return version
}

// TestNoFormInJSON: what nobody can write as JSON is no part of an answer, and is named (REST-3).
func TestNoFormInJSON(t *testing.T) {
	_, address, feed := polledServer(t, 2, func(name string) *anypb.Any {
		value, _ := proto.Marshal(&cluster.Cluster{Name: name, TypedExtensionProtocolOptions: map[string]*anypb.Any{"x": {TypeUrl: "type.googleapis.com/made.Up"}}})
		return &anypb.Any{TypeUrl: string(cache.Cluster), Value: value}
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if code, body := post(t, client, address, "{}"); code != http.StatusServiceUnavailable {
		t.Errorf("got %d %s", code, body)
	}
	feed()
	if code, body := post(t, client, address, "{}"); code != http.StatusInternalServerError || !strings.Contains(body, "made.Up") || !strings.Contains(body, "cluster-") {
		t.Errorf("got %d %s", code, body)
	}
}

// TestStallOfOneAnswer: the time that a client has to read an answer is over with it, and the next one has its own.
func TestStallOfOneAnswer(t *testing.T) {
	_, address, feed := polledServer(t, 1, ofCluster)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client, dials := &http.Client{Transport: transport}, 0
	transport.DialContext = func(ctx context.Context, network, to string) (net.Conn, error) {
		dials++
		return new(net.Dialer).DialContext(ctx, network, to)
	}
	_, _ = post(t, client, address, "{}")
	feed()
	code, body := post(t, client, address, "{}")
	for i := range 2 {
		if want := []int{http.StatusOK, http.StatusNotModified}[i]; code != want {
			t.Errorf("poll %d got %d %s", i, code, body)
		}
		<-time.After(2 * stall)
		code, body = post(t, client, address, fmt.Sprintf(`{"version_info":%q}`, versionIn(body)))
	}
	if dials != 1 {
		t.Errorf("%d connections were needed", dials)
	}
}

// TestPollsMoveToAnotherConnection: a client is told to take another connection when its own is old, when the certificate
// has expired that it has shown there, and while the relay is drained. Otherwise it would be refused there for ever.
func TestPollsMoveToAnotherConnection(t *testing.T) {
	s, _, feed := polledServer(t, 1, ofCluster)
	s.config.Connection.MaxAge = time.Hour
	poll := func(shown *x509.Certificate, age time.Duration) (code int, closes bool) {
		near, far := net.Pipe()
		t.Cleanup(func() { near.Close(); far.Close() })
		c := &restConn{conn: newConn(far, s.doors)}
		c.conn.proof, c.conn.since = shown, time.Now().Add(-age)
		req, w := httptest.NewRequest(http.MethodPost, "/v3/discovery:clusters", strings.NewReader("{}")), httptest.NewRecorder()
		s.rest.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), restConnKey{}, c)))
		return w.Code, w.Header().Get("Connection") == "close"
	}
	until := func(left time.Duration) *x509.Certificate {
		return &x509.Certificate{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(left)}
	}
	poll(nil, 0) // until somebody asks, the Hub takes in nothing
	feed()
	for _, tt := range []struct {
		name   string
		shown  *x509.Certificate
		age    time.Duration
		code   int
		closes bool
	}{
		{"a new one", until(time.Hour), 0, http.StatusOK, false},
		{"an old one", nil, 2 * time.Hour, http.StatusOK, true},
		{"an old certificate", until(-time.Second), 0, http.StatusServiceUnavailable, true},
	} {
		if code, closes := poll(tt.shown, tt.age); code != tt.code || closes != tt.closes {
			t.Errorf("%s: %d, and it is to be closed: %v", tt.name, code, closes)
		}
	}
	s.SetDraining(true)
	if code, closes := poll(nil, 0); code != http.StatusServiceUnavailable || !closes {
		t.Errorf("drained: %d, and it is to be closed: %v", code, closes)
	}
}

// TestPollersInMemoryPressure: while memory is short no new ones are taken in, and those that are there go on (VALID-13).
func TestPollersInMemoryPressure(t *testing.T) {
	s, address, feed := polledServer(t, 1, ofCluster)
	short, asked := false, 0
	s.config.Pressed = func() bool { asked++; return short }
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	_, _ = post(t, client, address, "{}")
	feed()
	for _, short = range []bool{false, true} {
		if code, body := post(t, client, address, "{}"); code != http.StatusOK {
			t.Errorf("short: %v; one that is there gets %d %s", short, code, body)
		}
	}
	if code, body := post(t, client, address, `{"node":{"id":"new"}}`); code != http.StatusServiceUnavailable || !strings.Contains(body, "memory is short") {
		t.Errorf("a new one gets %d %s", code, body)
	}
	if asked != 2 {
		t.Errorf("%d were taken for new ones", asked)
	}
}

// TestHeldPollsHaveABound: polls that wait for the same take places among all streams, beyond the first of them.
func TestHeldPollsHaveABound(t *testing.T) {
	const most = 3
	s, _, _ := polledServer(t, 1, ofCluster)
	s.config.MaxStreamsOfAll = most
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	c := newConn(far, s.doors)
	ctx, leave := context.WithCancel(context.WithValue(t.Context(), restConnKey{}, &restConn{conn: c}))
	codes := make(chan int)
	poll := func() {
		req, w := httptest.NewRequest(http.MethodPost, "/v3/discovery:clusters", strings.NewReader("{}")), httptest.NewRecorder()
		req.Header.Set("Prefer", "wait=60")
		s.rest.ServeHTTP(w, req.WithContext(ctx))
		codes <- w.Code
	}
	for range 2 * most {
		go poll()
	}
	for range most {
		select {
		case code := <-codes:
			if code != http.StatusTooManyRequests {
				t.Errorf("there is no room for a poll, and it gets %d", code)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("there is no room for more polls, and none is refused")
		}
	}
	leave()
	for range most {
		<-codes
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if used := s.places.Used(); used != 1 {
		t.Errorf("%d places are taken by one poller", used)
	}
}

// TestPaceOfThoseWhoHaveLeft: whoever polls next does not wait for polls that came too fast, and whose clients are gone.
func TestPaceOfThoseWhoHaveLeft(t *testing.T) {
	s := NewServer(ServerConfig{Credentials: insecure.NewCredentials(), Log: slog.New(slog.DiscardHandler)})
	defer s.Close(0)
	p := &poller{server: s, limiter: rate.NewLimiter(10, 1), over: make(chan struct{})}
	gone, leave := context.WithCancel(t.Context())
	leave()
	refused := 0
	for range 1000 {
		if end := p.pace(gone); end != nil && end.Reason == session.StreamsFull {
			refused++
		}
	}
	if wait := p.limiter.Reserve().Delay(); wait > 2*mostPace || refused < 900 {
		t.Errorf("the next poll waits for %v; %d were refused", wait, refused)
	}
}

func TestPrefers(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"wait=10": 10 * time.Second, `respond-async, wait="7"`: 7 * time.Second, "WAIT = 3; x=y": 3 * time.Second, "wait=4294967295": -1, "wait": -1, "wait=-1": -1, "": -1, "handling=lenient": -1,
	} {
		got, ok := prefers(http.Header{"Prefer": {text}})
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
}

// TestBodiesHaveABound: requests that are read take as much as they may, and one client half of it.
func TestBodiesHaveABound(t *testing.T) {
	b := &bodies{server: &Server{config: ServerConfig{MaxRequest: 1 << 20, MaxInflight: 80 << 10}}}
	read := func(holder string, size int) (*body, *refusal) {
		req := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(make([]byte, size)))
		return b.read(httptest.NewRecorder(), req, holder)
	}
	first, no := read("a", 45<<10)
	if no != nil {
		t.Fatal(no.message)
	}
	if _, no := read("a", 45<<10); no == nil || no.code != http.StatusServiceUnavailable {
		t.Errorf("more than half: %+v", no)
	}
	if small, no := read("a", 10<<10); no != nil {
		t.Errorf("a small one: %+v", no)
	} else {
		b.drop(small)
	}
	if _, no := read("b", 2<<20); no == nil || no.code != http.StatusRequestEntityTooLarge {
		t.Errorf("too large: %+v", no)
	}
	second, no := read("b", 45<<10)
	if no != nil {
		t.Fatal(no.message)
	}
	if _, no := read("c", 45<<10); no == nil {
		t.Error("there is no room for a third")
	}
	b.drop(first)
	b.drop(second)
	if b.used != 0 || len(b.by) != 0 {
		t.Errorf("%d bytes are left, of %v", b.used, b.by)
	}
}

// FuzzPoll: whatever a client sends, it gets an answer of a status that is listed, and nothing is left behind that Check
// finds.
func FuzzPoll(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"node":{"id":"a"},"resourceNames":["cluster-1","*"],"versionInfo":"1"}`, `{"type_url":"x"}`, strings.Repeat("[", 100), `{"resourceLocators":[{"name":"a"}],"resourceNames":["xdstp://a/*"]}`} {
		f.Add(seed, "wait=0")
	}
	s, address, feed := polledServer(f, 3, ofCluster)
	_, _ = post(f, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, address, "{}")
	feed()
	f.Fuzz(func(t *testing.T, text, prefer string) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		if wait, _ := prefers(http.Header{"Prefer": {prefer}}); wait > 0 {
			return // it would be waited for
		}
		c := &restConn{conn: newConn(far, s.doors)}
		req := httptest.NewRequest(http.MethodPost, "/v3/discovery:clusters", strings.NewReader(text))
		req.Header.Set("Prefer", prefer)
		w := httptest.NewRecorder()
		s.rest.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), restConnKey{}, c)))
		if !listed(w.Code) {
			t.Errorf("%q is answered with %d", text, w.Code)
		}
		if broken := s.Check(); len(broken) > 0 {
			t.Errorf("%q: %q", text, broken)
		}
	})
}

func listed(code int) bool {
	for _, c := range PollCodes() {
		if c == code {
			return true
		}
	}
	return false
}

func withURIs(all ...*url.URL) *x509.Certificate { return &x509.Certificate{URIs: all} }

func TestSPIFFEID(t *testing.T) {
	for text, want := range map[string]bool{"spiffe://a/b": true, "spiffe://a": false, "https://a/b": false, "spiffe:///b": false, "spiffe://" + strings.Repeat("a", 300) + "/b": false} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := spiffeID(withURIs(u)); (got != nil) != want {
			t.Errorf("%s: %v", text, got)
		}
		if spiffeID(withURIs(u, u)) != nil {
			t.Errorf("%s twice", text)
		}
	}
}

// BenchmarkPoll measures a poll over loopback, client and HTTP included: one that is answered with 304, of 1,000 clusters or
// of 1,000 names, and one that gets all of it. cpu is that of the whole process.
func BenchmarkPoll(b *testing.B) {
	const n = 1000
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%q", fmt.Sprint("cluster-", i))
	}
	for _, bench := range []struct{ name, more string }{{"wildcard", ""}, {"names", `,"resourceNames":[` + strings.Join(names, ",") + `]`}} {
		_, address, feed := polledServer(b, n, ofCluster)
		client := &http.Client{Transport: &http.Transport{}}
		_, _ = post(b, client, address, `{"node":{"id":"a"}`+bench.more+`}`)
		feed()
		code, body := post(b, client, address, `{"node":{"id":"a"}`+bench.more+`}`)
		version := versionIn(body)
		if code != http.StatusOK {
			b.Fatalf("%d %.200s", code, body)
		}
		for _, poll := range []struct {
			name, version string
			code          int
		}{{"304", version, http.StatusNotModified}, {"200", "", http.StatusOK}} {
			b.Run(bench.name+"/"+poll.name, func(b *testing.B) {
				text := fmt.Sprintf(`{"node":{"id":"a"},"version_info":%q%s}`, poll.version, bench.more)
				begin := cpu()
				for b.Loop() {
					if code, _ := post(b, client, address, text); code != poll.code {
						b.Fatalf("got %d", code)
					}
				}
				b.ReportMetric(float64((cpu()-begin).Microseconds())/float64(b.N), "cpu-µs/op")
			})
		}
		client.CloseIdleConnections()
	}
}

// cpu is what this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
