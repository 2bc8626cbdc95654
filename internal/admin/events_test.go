package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/events"
)

// eventful is a relay's admin endpoint with events and a watch, on a socket.
func eventful(t *testing.T) (address string, ring *events.Ring, watch *events.Watch) {
	t.Helper()
	ring, watch = events.NewRing(nil), events.NewWatch()
	log := slog.New(slog.DiscardHandler)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := Serve(l, NewHandler(newDescribed(), NewMetrics(ReadBuild("test")), HandlerOptions{Host: "127.0.0.1", Log: log, Events: ring, Watch: watch}), log)
	t.Cleanup(s.Close)
	return "http://" + l.Addr().String(), ring, watch
}

// opened is an answer that may go on.
type opened struct {
	*http.Response
	lines *bufio.Scanner
}

func begin(t *testing.T, url string, headers ...string) opened {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		resp.Body.Close()
	})
	return opened{resp, bufio.NewScanner(resp.Body)}
}

// next is the next line that says something.
func (o opened) next() string {
	for o.lines.Scan() {
		if line := o.lines.Text(); line != "" && !strings.HasPrefix(line, ":") {
			return line
		}
	}
	return ""
}

// TestEvents: a list, some of it, and what comes, also to a reader that comes back.
func TestEvents(t *testing.T) {
	address, ring, _ := eventful(t)
	list := func(query string) (l struct {
		Events []events.Event
		Last   uint64
		More   bool
	}) {
		o := begin(t, address+"/events"+query)
		if err := json.NewDecoder(o.Body).Decode(&l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	if l := list(""); l.Events == nil || len(l.Events) != 0 {
		t.Errorf("%+v", l)
	}
	first := list("").Last
	for i := range 3 {
		ring.Publish(events.Event{Kind: events.ConfigReloaded, Level: events.Info, Message: fmt.Sprint(i)})
	}
	ring.Publish(events.Event{Kind: events.Nack, Level: events.Warn, Type: cache.Cluster, Message: "no\nsuch"})
	if l := list("?kind=nack"); len(l.Events) != 1 || l.Events[0].Message != "no\nsuch" || l.Events[0].Type != cache.Cluster {
		t.Errorf("%+v", l)
	}
	l := list(fmt.Sprintf("?since=%d&limit=2", first))
	if len(l.Events) != 2 || !l.More || l.Last != l.Events[1].ID {
		t.Errorf("%+v", l)
	}
	if l = list(fmt.Sprintf("?since=%d&limit=2", l.Last)); len(l.Events) != 2 || l.More {
		t.Errorf("%+v", l)
	}

	new := begin(t, address+"/events", "Accept", "text/event-stream")
	back := begin(t, address+"/events?follow&kind=nack", "Last-Event-ID", fmt.Sprint(first))
	if got := []string{new.Header.Get("Content-Type"), back.Header.Get("Content-Type")}; !slices.Equal(got, []string{"text/event-stream", "text/event-stream"}) {
		t.Errorf("%q", got)
	}
	if id, data := back.next(), back.next(); id != fmt.Sprintf("id: %d", l.Last) || !strings.HasPrefix(data, "data: {") || !strings.Contains(data, `no\nsuch`) {
		t.Errorf("%q, %q", id, data)
	}
	ring.Publish(events.Event{Kind: events.Nack, Message: "another"})
	for _, o := range []opened{new, back} {
		if id, data := o.next(), o.next(); id != fmt.Sprintf("id: %d", l.Last+1) || !strings.Contains(data, "another") {
			t.Errorf("%q, %q", id, data)
		}
	}
}

// TestEventMistakes: each is refused, and the answer says what to do.
func TestEventMistakes(t *testing.T) {
	address, _, _ := eventful(t)
	for path, want := range map[string]string{
		"/events?kinds=nack":     `400 unknown parameter "kinds"; /events knows since, kind, limit, follow`,
		"/events?kind=nak":       `400 kind is "nak"; use some of [nack nack_over`,
		"/events?kind=":          `400 kind is ""; use some of`,
		"/events?since=today":    `400 since is "today"; use the id of an event`,
		"/events?limit=0":        `400 limit is "0"`,
		"/watch?stream=envoy":    `400 stream is "envoy"; use the number that /clients gives`,
		"/watch?stream=99":       `404 there is no stream 99; it may have ended, and /clients lists those that are open`,
		"/watch?type=ABC":        `400 type is "ABC"`,
		"/watch?client=envoy-1":  `400 unknown parameter "client"; /watch knows stream, node, type`,
		"/events?follow&since=-": `400 since is "-"`,
	} {
		o := begin(t, address+path)
		body, err := io.ReadAll(o.Body)
		if got := fmt.Sprintf("%d %s", o.StatusCode, body); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q (%v)", path, got, want, err)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodHead} {
		for _, path := range []string{"/watch", "/events?follow"} {
			req, _ := http.NewRequestWithContext(t.Context(), method, address+path, nil)
			resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if want := map[string]int{http.MethodPost: 405, http.MethodHead: 200}[method]; resp.StatusCode != want {
				t.Errorf("%s %s: %d", method, path, resp.StatusCode)
			}
		}
	}
}

// TestStreamsAreBounded: those of events and those of watchers leave room for other requests, and who is refused is told why.
func TestStreamsAreBounded(t *testing.T) {
	address, ring, watch := eventful(t)
	var watching []opened
	for range events.MostWatchers {
		watching = append(watching, begin(t, address+"/watch"))
	}
	o := begin(t, address+"/watch")
	if o.StatusCode == http.StatusOK {
		t.Fatal("there is no bound")
	}
	if body, _ := io.ReadAll(o.Body); o.StatusCode != http.StatusServiceUnavailable || !strings.HasPrefix(string(body), "8 watch already") {
		t.Errorf("%d %s", o.StatusCode, body)
	}
	most := int(newStreams().most)
	var following []opened
	for range most - events.MostWatchers {
		following = append(following, begin(t, address+"/events?follow"))
	}
	for range 100 {
		o = begin(t, address+"/events?follow")
		if o.StatusCode == http.StatusOK {
			t.Fatal("there is no bound")
		}
		body, _ := io.ReadAll(o.Body)
		if want := fmt.Sprintf("%d streams of events are open, and no more may be", most); o.StatusCode != http.StatusServiceUnavailable || !strings.HasPrefix(string(body), want) {
			t.Fatalf("%d %s", o.StatusCode, body)
		}
	}
	if o := begin(t, address+"/livez"); o.StatusCode != http.StatusOK {
		t.Errorf("/livez: %d", o.StatusCode)
	}
	ring.Publish(events.Event{Kind: events.Nack, Message: "to all"})
	watch.Show(events.Message{Stream: 1, Node: "n", Type: cache.Cluster, Kind: events.Response})
	for i, o := range following {
		if o.next(); !strings.Contains(o.next(), "to all") {
			t.Errorf("follower %d is told nothing", i)
		}
	}
	for i, o := range watching {
		if !strings.Contains(o.next(), `"kind":"response"`) {
			t.Errorf("watcher %d is shown nothing", i)
		}
	}
}

// TestStreamsEnd: a place is free again when its reader has gone.
func TestStreamsEnd(t *testing.T) {
	s := &streams{most: 1}
	e := s.stream(httptest.NewRecorder())
	if e == nil || s.stream(httptest.NewRecorder()) != nil {
		t.Fatal("there is room for one")
	}
	if e.close(); s.stream(httptest.NewRecorder()) == nil {
		t.Error("there is no room again")
	}
}
