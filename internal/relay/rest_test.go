package relay

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/certs/certstest"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/test/xdstest"
)

// restRelay is the face of a relay for clients that poll.
type restRelay struct {
	*world
	net  *xdstest.Network
	http *http.Client
}

// overREST runs f in a bubble, with a relay that serves clients that poll.
func overREST(t *testing.T, set []string, f func(r *restRelay)) {
	inWorld(t, set, func(w *world) {
		r := &restRelay{world: w, net: xdstest.NewNetwork()}
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return r.net.Dial(ctx, "") }}
		r.http = &http.Client{Transport: transport}
		if err := w.relay.ServeREST(r.net.Listener()); err != nil {
			t.Fatal(err)
		}
		f(r)
		transport.CloseIdleConnections()
		w.clients.Wait()
		if broken := w.relay.Check(); len(broken) > 0 {
			t.Errorf("it does not hold: %q", broken)
		}
	})
}

// answer is what a poll got.
type answer struct {
	code    int
	header  http.Header
	body    string
	Version string `json:"versionInfo"`
	at      time.Time
	err     error
}

// poll polls for some names of a type, and waits for nothing.
func (r *restRelay) poll(suffix, version string, headers []string, names ...string) *answer {
	text, _ := json.Marshal(map[string]any{"node": map[string]string{"id": "poller"}, "version_info": version, "resourceNames": names})
	return r.post(suffix, string(text), headers...)
}

func (r *restRelay) post(suffix, text string, headers ...string) *answer {
	a := new(answer)
	r.clients.Go(func() {
		req, _ := http.NewRequest(http.MethodPost, "http://relay/v3/discovery:"+suffix, strings.NewReader(text))
		req.Header.Set("Content-Type", "application/json")
		for i := 0; i+1 < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := r.http.Do(req)
		if a.err = err; err != nil {
			return
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		a.code, a.header, a.body, a.at = resp.StatusCode, resp.Header, string(data), time.Now()
		if a.err = err; resp.StatusCode == http.StatusOK {
			a.err = json.Unmarshal(data, a)
		}
	})
	synctest.Wait()
	return a
}

// is complains if an answer is not of a code, or lacks some text.
func (a *answer) is(t *testing.T, code int, text string) {
	t.Helper()
	if a.err != nil || a.code != code || !strings.Contains(a.body, text) {
		t.Fatalf("got %d %q, %v; want %d and %q", a.code, a.body, a.err, code, text)
	}
}

// TestPoll: a poll waits for half a second for what nobody knows yet, is then told to come again, gets everything, and
// 304 while nothing changes.
func TestPoll(t *testing.T) {
	overREST(t, nil, func(r *restRelay) {
		begin := time.Now()
		early := r.poll("clusters", "", nil)
		time.Sleep(time.Second)
		synctest.Wait()
		early.is(t, http.StatusServiceUnavailable, "poll again")
		if early.header.Get("Retry-After") != "1" || early.at.Sub(begin) != 500*time.Millisecond {
			t.Errorf("after %v, with %v", early.at.Sub(begin), early.header)
		}
		begin = time.Now()
		first := r.poll("clusters", "", nil)
		time.Sleep(100 * time.Millisecond)
		r.respond("CDS a@1 b@1")
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		first.is(t, http.StatusOK, `"name":"b"`)
		if first.Version == "" || first.at.Sub(begin) > 110*time.Millisecond || first.header.Get("Content-Type") != "application/json" {
			t.Errorf("after %v: %s", first.at.Sub(begin), first.body)
		}
		for range 3 {
			same := r.poll("clusters", first.Version, nil)
			same.is(t, http.StatusNotModified, "")
			if same.body != "" || same.at != time.Now() {
				t.Errorf("it has %q", same.body)
			}
		}
		r.respond("CDS a@2 -b")
		synctest.Wait()
		changed := r.poll("clusters", first.Version, nil)
		changed.is(t, http.StatusOK, `"name":"a"`)
		if changed.Version == first.Version || strings.Contains(changed.body, `"name":"b"`) {
			t.Errorf("got %s", changed.body)
		}
		if all := r.relay.Clients(); len(all) != 1 || all[0].Protocol != "rest" || all[0].Node != "poller" || all[0].Types[0].Type != cache.Cluster || !all[0].Types[0].Wildcard {
			t.Errorf("shown as %+v", all)
		}
	})
}

// TestPollOfAnEarlySet: a set that is not known to be complete goes to clients that have nothing (RECON-16). Who has shown
// a version waits for all of it, as on a stream.
func TestPollOfAnEarlySet(t *testing.T) {
	overREST(t, []string{"timers.settle=1s"}, func(r *restRelay) {
		begin := time.Now()
		fresh := r.poll("clusters", "", nil)
		has := r.poll("clusters", "of another replica", []string{"Prefer", "wait=60"})
		r.respond("CDS a@1")
		time.Sleep(400 * time.Millisecond)
		synctest.Wait()
		fresh.is(t, http.StatusOK, `"name":"a"`)
		if has.code != 0 {
			t.Fatalf("who has a version got %d %s", has.code, has.body)
		}
		r.respond("CDS b@1")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		has.is(t, http.StatusOK, `"name":"a"`)
		if took := has.at.Sub(begin); took != 1400*time.Millisecond || !strings.Contains(has.body, `"name":"b"`) {
			t.Errorf("after %v it got %s", took, has.body)
		}
	})
}

// TestPollWaits: Prefer: wait=N holds an answer until something changes, or for so long.
func TestPollWaits(t *testing.T) {
	overREST(t, []string{"downstream.rest.hold=3s"}, func(r *restRelay) {
		first := r.poll("endpoints", "", nil, "a")
		r.respond("EDS a@1")
		synctest.Wait()
		first.is(t, http.StatusOK, `"clusterName":"a"`)

		for prefer, want := range map[string]time.Duration{"wait=7": 7 * time.Second, "wait=1000": time.Minute, `respond-async, Wait = "5"`: 5 * time.Second, "wait=soon": 3 * time.Second, "wait=0": 0} {
			begin := time.Now()
			held := r.poll("endpoints", first.Version, []string{"Prefer", prefer}, "a")
			time.Sleep(want)
			synctest.Wait()
			held.is(t, http.StatusNotModified, "")
			if took := held.at.Sub(begin); took != want {
				t.Errorf("%s: it took %v, want %v", prefer, took, want)
			}
		}
		held := r.poll("endpoints", first.Version, []string{"Prefer", "wait=60"}, "a")
		second := r.poll("endpoints", first.Version, []string{"Prefer", "wait=60"}, "a") // the same once more meanwhile
		time.Sleep(10 * time.Second)
		r.respond("EDS a@2")
		synctest.Wait()
		held.is(t, http.StatusOK, `"clusterName":"a"`)
		second.is(t, http.StatusOK, `"clusterName":"a"`)
		if held.at != time.Now() || second.at != time.Now() || held.header.Get("Preference-Applied") != "wait=60" {
			t.Errorf("%v ago, %v", time.Since(held.at), held.header)
		}
	})
}

// TestPollKeepsInterest: what a client has polled for stays subscribed for interest_ttl, and no longer.
func TestPollKeepsInterest(t *testing.T) {
	overREST(t, []string{"downstream.rest.interest_ttl=2m", "timers.name_linger=1s"}, func(r *restRelay) {
		first := r.poll("endpoints", "", nil, "a", "b")
		r.respond("EDS a@1 b@1")
		synctest.Wait()
		first.is(t, http.StatusOK, "")
		for _, after := range []time.Duration{time.Minute, 119 * time.Second} { // the second one with names in another order
			time.Sleep(after)
			names := []string{"a", "b"}
			slices.Reverse(names)
			r.poll("endpoints", first.Version, nil, names...).is(t, http.StatusNotModified, "")
			if names := r.plane.Subscribed("up", "EDS"); strings.Join(names, " ") != "a b" {
				t.Fatalf("after %v upstream is asked for %q", after, names)
			}
		}
		if all := r.relay.Clients(); len(all) != 1 || all[0].Types[0].Names != 2 {
			t.Errorf("shown as %+v", all)
		}
		time.Sleep(119 * time.Second)
		synctest.Wait()
		if names := r.plane.Subscribed("up", "EDS"); len(names) != 2 {
			t.Errorf("after 119 s upstream is asked for %q", names)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if names := r.plane.Subscribed("up", "EDS"); len(names) > 0 || len(r.relay.Clients()) > 0 {
			t.Errorf("after 122 s upstream is asked for %q, for %+v", names, r.relay.Clients())
		}
	})
}

// TestPollerIsBehind: a client that shows an old version three times in a row has not taken what it was sent.
func TestPollerIsBehind(t *testing.T) {
	overREST(t, nil, func(r *restRelay) {
		state := func() session.Sync { return r.relay.Clients()[0].Sync }
		r.poll("clusters", "", nil)
		r.respond("CDS a@1")
		synctest.Wait()
		good := r.poll("clusters", "", nil)
		r.poll("clusters", good.Version, nil).is(t, http.StatusNotModified, "")
		r.respond("CDS a@2")
		synctest.Wait()
		r.poll("clusters", good.Version, nil).is(t, http.StatusOK, "") // the client rejects it
		for i := range 3 {
			if state() != session.SyncStates()[0] {
				t.Errorf("after %d polls with the old version it is %s", i, state())
			}
			time.Sleep(time.Second)
			r.poll("clusters", good.Version, nil).is(t, http.StatusOK, "")
		}
		c := r.relay.Clients()[0]
		if c.Sync == session.SyncStates()[0] || c.Types[0].Behind != 1 || time.Since(c.Types[0].Since) != 3*time.Second {
			t.Errorf("shown as %+v", c)
		}
		if names, _ := r.relay.ClientNames(c.Stream, cache.Cluster, "", 9); len(names) != 1 || names[0].Step != session.StepUnacked || c.Bytes == 0 {
			t.Errorf("its names are %+v, and it was sent %d bytes", names, c.Bytes)
		}
		if sum := r.relay.Summary(); sum.Sync[c.Sync] != 1 || sum.Protocols["rest"] != 1 {
			t.Errorf("counted as %+v", sum)
		}
		r.respond("CDS a@3")
		synctest.Wait()
		fixed := r.poll("clusters", good.Version, nil)
		r.poll("clusters", fixed.Version, nil).is(t, http.StatusNotModified, "")
		if state() != session.SyncStates()[0] {
			t.Errorf("when it has taken something it is %s", state())
		}
	})
}

// TestBadPolls: what is no request in JSON is refused, and says where.
func TestBadPolls(t *testing.T) {
	overREST(t, []string{"downstream.max_request_bytes=64KiB"}, func(r *restRelay) {
		for _, bad := range []struct {
			suffix, text string
			headers      []string
			code         int
			says         string
		}{
			{"clusters", "{\n  \"node\": {\"metadata\": {\"x\": " + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}}}", nil, 400, "line 2, column "},
			{"clusters", "<html></html>", nil, 400, "line 1, column 1"},
			{"clusters", `{"typeUrl": "` + string(cache.Listener) + `"}`, nil, 400, "this path is for " + string(cache.Cluster)},
			{"clusters", `{"typeUrl": "v2", "resourceNames": 1}`, nil, 400, "line 1, column"},
			{"clusters", `{"versionInfo": "` + strings.Repeat("x", 64<<10) + `"}`, nil, 413, "65536"},
			{"clusters", `{"resourceNames": [` + strings.Repeat(`"",`, 5000) + `""]}`, nil, 413, "line 1, column"},
			{"clusters", `{}`, []string{"Content-Type", "application/x-protobuf"}, 415, "application/json"},
			{"clusters", `{}`, []string{"Content-Encoding", "gzip"}, 415, "compressed"},
			{"clusters", `{}`, []string{"Origin", "http://relay"}, 403, "web pages"},
			{"clusters", `{"node": {"id": "` + strings.Repeat("x", 5000) + `"}}`, nil, 413, "node id"},
			{"made-up", `{}`, nil, 404, "/v3/discovery:clusters"},
		} {
			a := r.post(bad.suffix, bad.text, bad.headers...)
			if a.err != nil || a.code != bad.code || !strings.Contains(a.body, bad.says) {
				t.Errorf("%.60q: %d %q, %v; want %d and %q", bad.text, a.code, a.body, a.err, bad.code, bad.says)
			}
		}
		for _, text := range []string{
			"GET /v3/discovery:clusters HTTP/1.1\r\nHost: x\r\n\r\n",
			"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
			"POST /v3/discovery:clusters HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1073741824\r\n\r\n{",
		} {
			if got := r.raw(text, time.Second); !strings.HasPrefix(got, "HTTP/1.1 40") && !strings.HasPrefix(got, "HTTP/1.1 413") {
				t.Errorf("%q: %q", text, got)
			}
		}
		for text, want := range map[string]int{ // what they are to be refused for, although their bodies do not end
			"POST /v3/discovery:clusters HTTP/1.1\r\nTransfer-Encoding: chunked":                           408,
			"POST /v3/discovery:clusters HTTP/1.1\r\nContent-Length: 1073741824":                           413,
			"POST /v3/discovery:clusters HTTP/1.1\r\nTransfer-Encoding: chunked\r\nOrigin: http://relay":   403,
			"POST /v3/discovery:clusters HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip": 415,
			"PUT /v3/discovery:clusters HTTP/1.1\r\nTransfer-Encoding: chunked":                            405,
			"POST /v3/discovery:made-up HTTP/1.1\r\nTransfer-Encoding: chunked":                            404,
		} {
			begin := time.Now()
			got := r.raw(text+"\r\nHost: x\r\nContent-Type: application/json\r\n\r\n1\r\n{\r\n", time.Minute)
			if took := time.Since(begin); !strings.HasPrefix(got, fmt.Sprint("HTTP/1.1 ", want)) || took > 15*time.Second {
				t.Errorf("%q: %.40q, and its connection ends after %v", text, got, took)
			}
		}
		if all := r.relay.Clients(); len(all) > 0 {
			t.Errorf("they are remembered: %+v", all)
		}
	})
}

// raw says something on a connection of its own, and returns what it hears before the connection ends or within a time.
func (r *restRelay) raw(text string, within time.Duration) string {
	r.t.Helper()
	conn, err := r.net.Dial(context.Background(), "")
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(within))
	if _, err := io.WriteString(conn, text); err != nil {
		r.t.Fatal(err)
	}
	heard, _ := io.ReadAll(conn)
	return string(heard)
}

// TestPollsAreFew: of more than max_pollers the newest of the client with most go.
func TestPollsAreFew(t *testing.T) {
	overREST(t, []string{"downstream.rest.max_pollers=3", "downstream.relays=[]"}, func(r *restRelay) {
		r.poll("endpoints", "", nil, "a")
		r.respond("EDS a@1")
		from := "10.0.0.1"
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return r.net.DialFrom(ctx, net.ParseIP(from))
		}, DisableKeepAlives: true}
		r.http.Transport.(*http.Transport).CloseIdleConnections()
		r.http.Transport = transport
		for i := range 5 { // beside the one on this host
			a := r.poll("endpoints", "", []string{"Prefer", "wait=0"}, "a", fmt.Sprint(i))
			time.Sleep(time.Second)
			synctest.Wait()
			if want := map[bool]int{true: 503, false: 429}[i < 2]; a.code != want { // the name is not known
				t.Errorf("poll %d gets %d, want %d: %s", i, a.code, want, a.body)
			}
		}
	})
}

// TestPollEndsWithTheRelay: a poll that waits is answered when the relay shuts down, and none is taken in while it drains.
func TestPollEndsWithTheRelay(t *testing.T) {
	overREST(t, nil, func(r *restRelay) {
		first := r.poll("clusters", "", nil)
		r.respond("CDS a@1")
		synctest.Wait()
		first.is(t, http.StatusOK, "")
		r.relay.StartDrain(true, 0)
		r.poll("clusters", first.Version, nil).is(t, http.StatusServiceUnavailable, "another replica")
		r.relay.StopDrain()
		held := r.poll("clusters", first.Version, []string{"Prefer", "wait=60"})
		if c := r.relay.Clients(); len(c) != 1 || r.relay.Disconnect(c[0].Stream) != true {
			t.Fatalf("clients: %+v", c)
		}
		synctest.Wait()
		held.is(t, http.StatusServiceUnavailable, "operator")
		held = r.poll("clusters", first.Version, []string{"Prefer", "wait=60"})
		go r.relay.Close(0)
		time.Sleep(time.Second)
		synctest.Wait()
		held.is(t, http.StatusServiceUnavailable, "shutting down")
	})
}

// TestPollOfSecrets: without an identity, and from another host, nobody gets secrets (NODE-6).
func TestPollOfSecrets(t *testing.T) {
	overREST(t, nil, func(r *restRelay) {
		r.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return r.net.DialFrom(ctx, net.IPv4(10, 0, 0, 1))
		}, DisableKeepAlives: true}
		r.poll("secrets", "", nil, "s").is(t, http.StatusForbidden, "secrets are served")
		if all := r.relay.Clients(); len(all) > 0 {
			t.Errorf("it is remembered: %+v", all)
		}
	})
}

// TestPollOverTLS: clients that poll are known by their certificates, over HTTP/1.1 and HTTP/2, and without one nobody is
// served.
func TestPollOverTLS(t *testing.T) {
	ca := certstest.NewAuthority(t, "ca")
	issue := func(id string) (cert, key []byte) {
		u, err := url.Parse(id)
		if err != nil {
			t.Fatal(err)
		}
		return ca.Issue(t, x509.Certificate{DNSNames: []string{"relay"}, URIs: []*url.URL{u}})
	}
	dir := t.TempDir()
	cert, key := issue("spiffe://a/relay")
	for name, text := range map[string][]byte{"ca.crt": ca.PEM, "tls.crt": cert, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Load("", []string{
		"upstream.address=127.0.0.1:1", "downstream.rest.listen=127.0.0.1:0", "downstream.tls.client_ca=" + filepath.Join(dir, "ca.crt"),
		"downstream.tls.cert=" + filepath.Join(dir, "tls.crt"), "downstream.tls.key=" + filepath.Join(dir, "tls.key"),
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(0)
	l, err := r.ListenREST()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.ServeREST(l); err != nil {
		t.Fatal(err)
	}
	for _, two := range []bool{false, true} {
		id := fmt.Sprintf("spiffe://a/client-%v", two)
		pair, err := tls.X509KeyPair(issue(id))
		if err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), ServerName: "relay", Certificates: []tls.Certificate{pair}}, ForceAttemptHTTP2: two}
		resp, err := (&http.Client{Transport: transport}).Post("https://"+l.Addr().String()+"/v3/discovery:clusters", "application/json", strings.NewReader(`{"node":{"id":"a"}}`))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable || (resp.ProtoMajor == 2) != two { // there is no control plane
			t.Errorf("HTTP/2 %v: %s over %s", two, resp.Status, resp.Proto)
		}
		shown := func(c downstream.Client) bool { return c.Identity == id }
		if !slices.ContainsFunc(r.Clients(), shown) {
			t.Errorf("nobody is shown as %s: %+v", id, r.Clients())
		}
		transport.TLSClientConfig.Certificates = nil
		transport.CloseIdleConnections()
		bare := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), ServerName: "relay"}, DisableKeepAlives: true}}
		if resp, err := bare.Post("https://"+l.Addr().String()+"/v3/discovery:clusters", "application/json", strings.NewReader("{}")); err == nil {
			resp.Body.Close()
			t.Errorf("without a certificate: %s", resp.Status)
		}
	}
}

// TestRulesForPolls: a client that polls reads what the rules allow it, also while its answer is held (NODE-15, NODE-17).
func TestRulesForPolls(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(read string) {
		if err := os.WriteFile(rules, []byte("rules: [{identity: anonymous, read: ["+read+"]}]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{types: [EDS], names: ["a", "b"]}`)
	overREST(t, []string{"authz.rules_file=" + rules}, func(r *restRelay) {
		r.poll("clusters", "", nil).is(t, http.StatusForbidden, "")
		first := r.poll("endpoints", "", nil, "a", "secret")
		if names := r.plane.Subscribed("up", "EDS"); strings.Join(names, " ") != "a" {
			t.Errorf("upstream is asked for %q", names)
		}
		r.respond("EDS a@1")
		synctest.Wait()
		first.is(t, http.StatusOK, `"clusterName":"a"`)
		held := r.poll("endpoints", first.Version, []string{"Prefer", "wait=60"}, "a", "secret")
		write(`{types: [EDS], names: ["b"]}`)
		r.relay.ReadRules()
		synctest.Wait()
		if held.code != http.StatusServiceUnavailable {
			t.Errorf("what is held when the rules change is answered with %d %s", held.code, held.body)
		}
		now := r.poll("endpoints", first.Version, nil, "a", "secret")
		time.Sleep(time.Second)
		synctest.Wait()
		if strings.Contains(now.body, `"clusterName":"a"`) || now.code == http.StatusNotModified {
			t.Errorf("it gets %d %s", now.code, now.body)
		}
		write(`{types: [EDS], names: ["a"]}`)
		r.relay.ReadRules()
		r.poll("endpoints", "", nil, "a")
		write(`{types: [CDS], names: ["b"]}`)
		r.relay.ReadRules()
		for range 8 { // what it may not read any more is given up, however often it asks
			time.Sleep(time.Minute)
			r.poll("endpoints", "", nil, "a").is(t, http.StatusForbidden, "")
		}
		if names := r.plane.Subscribed("up", "EDS"); len(names) > 0 {
			t.Errorf("upstream is still asked for %q", names)
		}
	})
}
