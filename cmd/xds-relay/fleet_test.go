package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/admin"
	"github.com/xds-relay/xds-relay/internal/adminclient"
	"github.com/xds-relay/xds-relay/internal/console"
)

// said is a relay that answers what a test has it say, by path.
type said map[string]func(query url.Values) (code int, body string)

func (s said) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	answer := s[req.URL.Path]
	if answer == nil {
		http.NotFound(w, req)
		return
	}
	code, body := answer(req.URL.Query())
	w.WriteHeader(code)
	fmt.Fprint(w, body)
}

// always answers with a text.
func always(body string) func(url.Values) (int, string) {
	return func(url.Values) (int, string) { return 200, body }
}

// serve returns a client of it.
func (s said) serve(t *testing.T) *adminclient.Client {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	c, err := adminclient.New(strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestStates: the words for how far a client is. A client that was sent nothing is in step if it came with
// everything, and is not if somebody owes it an answer.
func TestStates(t *testing.T) {
	for _, tt := range []struct {
		name string
		t    session.ClientType
		want string
	}{
		{"all accepted", session.ClientType{Sync: "synced", Nonce: "1", Names: 2, Resolved: 2}, "SYNCED"},
		{"it came with all of it", session.ClientType{Sync: "synced", Names: 2, Resolved: 2}, "SYNCED"},
		{"names that the control plane has not answered", session.ClientType{Sync: "synced", Names: 2, Resolved: 1}, "NOT SENT (1)"},
		{"a wildcard that is not answered", session.ClientType{Sync: "synced", Wildcard: true}, "NOT SENT"},
		{"the first response waits", session.ClientType{Sync: "unsent", Names: 1, Resolved: 1, Behind: 1, Since: time.Unix(988, 0)}, "NOT SENT (1, 12s)"},
		{"another one waits", session.ClientType{Sync: "unsent", Nonce: "1", Behind: 3, Since: time.Unix(820, 0)}, "STALE (3, 3m)"},
		{"an ACK is owed", session.ClientType{Sync: "unacked", Nonce: "1", Behind: 1234, Since: time.Unix(1001, 0)}, "STALE (1,234, 0s)"},
		{"rejected", session.ClientType{Sync: "nacked", Nonce: "1", Behind: 1, Since: time.Unix(0, 0)}, "REJECTED (1, 16m)"},
		{"refused", session.ClientType{Sync: "synced", Refused: "too many groups"}, "REFUSED"},
	} {
		v := typeView{tt.t, admin.StateOf(&tt.t)}
		if got := v.say(time.Unix(1000, 0)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// bigFleet is a relay with so many clients, some of which are not in step.
func bigFleet(t *testing.T, total int, nacked, unacked func(i int) bool) *adminclient.Client {
	var clients []downstream.Client
	for i := range total {
		typ := session.ClientType{Type: cache.Cluster, Group: "default", Nonce: "1", Wildcard: true, Sync: "synced"}
		switch {
		case nacked(i):
			typ.Sync, typ.Behind, typ.Since = "nacked", 1, time.Unix(int64(2*total-i), 0) // the later ones have waited longer
		case unacked(i):
			typ.Sync, typ.Behind, typ.Since = "unacked", 1, time.Unix(int64(i), 0)
		}
		clients = append(clients, downstream.Client{Stream: uint64(i + 1), Node: fmt.Sprint("n", i), Protocol: "delta", Types: []session.ClientType{typ}})
	}
	return said{
		"/server_info": always(`{"version": "v", "ready": true, "passthrough": {"a.Service": 12}}`),
		"/groups": always(`{"groups": [{"group": "a", "upstream": [{"address": "a:1", "in_use": true, "state": "current", "connected_since": "2026-01-01T00:00:00Z"}, {"address": "b:1", "state": "standby"}]},
			{"group": "b", "upstream": [{"address": "a:1", "in_use": true, "state": "down", "last_error": "refused\u001b", "last_error_at": "2026-01-01T00:00:00Z"}]}]}`),
		"/clients": func(query url.Values) (int, string) {
			after, _ := strconv.Atoi(query.Get("continue"))
			limit, _ := strconv.Atoi(query.Get("limit"))
			page := struct {
				Clients  []downstream.Client `json:"clients"`
				Continue string              `json:"continue,omitempty"`
			}{Clients: clients[after:min(after+limit, total)]}
			if after+limit < total {
				page.Continue = fmt.Sprint(after + limit)
			}
			var b strings.Builder
			_ = console.WriteJSON(&b, page) // a Builder takes everything
			return 200, b.String()
		},
	}.serve(t)
}

// TestFleet: of many clients those are listed that are not in step, the worst first, and the rest is counted.
func TestFleet(t *testing.T) {
	relay := bigFleet(t, 12_000, func(i int) bool { return i%6000 == 5 }, func(i int) bool { return i%1200 == 7 })
	var out strings.Builder
	if err := (&ps{format: format{name: "table"}}).show(t.Context(), relay, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if got, want := lines[len(lines)-1], "12,000 clients: 11,988 in step, 12 not (2 REJECTED, 10 STALE); 11,988 not listed, --all lists them"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := lines[1], "control plane  a:1 DOWN for 1 of 2 groups, since "; !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := lines[2], `ago: refused\x1b`; !strings.Contains(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := strings.Join(strings.Fields(lines[3]), " "), "goes through a.Service, 12 calls"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	var order []string
	for _, line := range lines[6 : len(lines)-2] {
		order = append(order, strings.Fields(line)[0])
	}
	if got, want := strings.Join(order, " "), "n6005 n5 n7 n1207 n2407 n3607 n4807 n6007 n7207 n8407 n9607 n10807"; got != want {
		t.Errorf("%s, want %s", got, want)
	}

	out.Reset()
	all := bigFleet(t, 300, func(int) bool { return true }, nil)
	if err := (&ps{format: format{name: "table"}}).show(t.Context(), all, &out); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), "REJECTED ("); got != fewClients || !strings.Contains(out.String(), "300 clients: 0 in step, 300 not (300 REJECTED); 250 not listed, --all lists them") {
		t.Errorf("%d are listed: %.3000s", got, out.String())
	}
	out.Reset()
	if err := (&ps{format: format{name: "table"}, all: true}).show(t.Context(), all, &out); err != nil || strings.Count(out.String(), "REJECTED (") != 300 {
		t.Errorf("%v: %.3000s", err, out.String())
	}
}
