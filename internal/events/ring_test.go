package events

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// said are events in short: kind, message and how often.
func said(all []Event) (texts []string) {
	for _, e := range all {
		texts = append(texts, fmt.Sprintf("%s %s %d", e.Kind, e.Message, e.Times))
	}
	return texts
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func nack(stream int, message string) Event {
	return Event{Kind: Nack, Level: Warn, Subject: fmt.Sprintf("stream %d", stream), Client: &Client{Stream: uint64(stream), Peer: fmt.Sprintf("10.0.0.%d:1", stream)}, Message: message}
}

func over(stream int) Event {
	e := nack(stream, "accepted")
	e.Kind = NackOver
	return e
}

// TestRepeats: events of one subject and kind are one, which is told at once when it is new, and otherwise after a while, in the
// order in which they have happened.
func TestRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRing(nil)
		reader := r.Read(0)
		defer reader.Close()
		next := func(within time.Duration) []string {
			events, _ := reader.Next(t.Context(), 100, within)
			return said(events)
		}
		r.Publish(nack(1, "a"))
		expect(t, "new", next(time.Second), "nack a 1")
		r.Publish(over(1))
		expect(t, "its end", next(time.Second), "nack_over accepted 1")
		for i := range 100 {
			r.Publish(nack(1, fmt.Sprint("b", i)))
			r.Publish(over(1))
		}
		r.Publish(nack(1, "c"))
		expect(t, "before a while", next(Again-time.Second))
		expect(t, "a while later", next(2*time.Second), "nack_over accepted 101", "nack c 102")
		r.Publish(nack(2, "x"))
		expect(t, "another client", next(time.Second), "nack x 1")
		time.Sleep(Again)
		r.Publish(nack(1, "d"))
		expect(t, "after a while", next(time.Second), "nack d 103")
		expect(t, "the ring", said(r.List(0, nil, 100).Events), "nack_over accepted 101", "nack x 1", "nack d 103")
		expect(t, "the latest", said(r.List(0, nil, 1).Events), "nack d 103")
		expect(t, "one kind", said(r.List(0, []Kind{NackOver}, 100).Events), "nack_over accepted 101")
	})
}

// TestFloods: neither one client, nor one kind of event, pushes everything else out.
func TestFloods(t *testing.T) {
	r := newRing(100, Again, time.Now, nil)
	r.Publish(Event{Kind: ControlPlaneLost, Message: "lost"})
	r.Publish(nack(1, "mine"))
	for i := range 1000 { // on streams of their own
		e := nack(2, "theirs")
		e.Subject = fmt.Sprint("stream ", 1000+i)
		r.Publish(e)
	}
	if got := len(r.List(0, nil, 1000).Events); got != 12 {
		t.Errorf("there are %d events, want 10 of the flood and 2 others", got)
	}
	for i := range 1000 {
		r.Publish(nack(3+i, "of many"))
	}
	all := r.List(0, nil, 1000).Events
	if len(all) != 100 || all[0].Message != "lost" {
		t.Errorf("there are %d events, the first is %q; want 100, and the control plane's first", len(all), all[0].Message)
	}
	r.Publish(Event{Kind: ControlPlaneBack, Message: "back"})
	if p := r.List(0, nil, 1); p.Events[0].Message != "back" {
		t.Errorf("what comes after a flood is not kept: the latest is %q", p.Events[0].Message)
	}
	if len(r.subjects) != 98 || r.holders["10.0.0.1"] != nil {
		t.Errorf("%d subjects are left of 98 events", len(r.subjects))
	}
}

// TestSlowReader: it loses the oldest, and is told how many. A list from an ID on says whether some had to go.
func TestSlowReader(t *testing.T) {
	r := newRing(10, Again, time.Now, nil)
	first := r.Latest()
	reader := r.Read(0)
	defer reader.Close()
	for i := range 25 {
		r.Publish(Event{Kind: ConfigReloaded, Message: fmt.Sprint(i)})
	}
	events, lost := reader.Next(t.Context(), 4, time.Second)
	if lost != 15 || len(events) != 4 || events[0].Message != "15" {
		t.Errorf("%d lost, %q", lost, said(events))
	}
	events, lost = reader.Next(t.Context(), 100, time.Second)
	if lost != 0 || len(events) != 6 {
		t.Errorf("then %d lost, %q", lost, said(events))
	}
	p := r.List(first, nil, 3)
	expect(t, "a page", said(p.Events), "config_reloaded 15 1", "config_reloaded 16 1", "config_reloaded 17 1")
	if !p.Lost || !p.More || p.Last != p.Events[2].ID {
		t.Errorf("%+v", p)
	}
	if p = r.List(p.Last, nil, 100); len(p.Events) != 7 || p.Lost || p.More || p.Last != r.Latest() {
		t.Errorf("%+v", p)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if events, lost := reader.Next(ctx, 1, time.Hour); len(events)+lost != 0 {
		t.Errorf("%q, %d", said(events), lost)
	}
}

// TestBounded: what peers say does not make an event large.
func TestBounded(t *testing.T) {
	r := NewRing(nil)
	long := strings.Repeat("é", 1<<20)
	r.Publish(Event{Kind: Nack, Message: long, Names: slices.Repeat([]string{long}, 1000), Type: "x", Client: &Client{Node: long}})
	e := r.List(0, nil, 1).Events[0]
	if n := len(e.Message) + len(e.Client.Node) + len(strings.Join(e.Names, "")); n > maxMessage+7*maxName {
		t.Errorf("it has %d bytes", n)
	}
	(*Ring)(nil).Publish(e)
}

// BenchmarkPublish is the cost of a NACK at each push of 10,000 clients.
func BenchmarkPublish(b *testing.B) {
	r := NewRing(nil)
	all := make([]Event, 10_000)
	for i := range all {
		all[i] = nack(i, "no such transport socket")
	}
	b.ReportAllocs()
	for i := range b.N {
		r.Publish(all[i%len(all)])
	}
}
