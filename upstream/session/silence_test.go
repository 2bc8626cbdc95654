package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// listening is a Core before a control plane that answers checks, and nothing else by
// itself.
type listening struct {
	t       *testing.T
	core    *Core
	hub     *fanout.Hub
	now     time.Time
	stream  StreamID
	verdict CheckResult // of every check
	said    []string
}

func listen(t *testing.T, entries ...string) *listening {
	l := &listening{t: t, now: time.Unix(1000, 0), verdict: There, hub: fanout.NewHub(fanout.Config{Linger: time.Minute, MaxLinger: 10})}
	c := Config{
		Identity: Identity{Node: &core.Node{Id: "edge-1", Cluster: "shop"}},
		Missing:  15 * time.Second, MissingExplicit: time.Minute, UnavailableAfter: 5 * time.Second,
		Settle: 300 * time.Millisecond, SettleCap: 5 * time.Second, HealthCheck: true,
		Failover: Failover{FailoverAfter: time.Minute, FailbackAfter: 30 * time.Second},
		Backoff:  Backoff{Initial: time.Second, Max: 30 * time.Second, Factor: 1.6},
	}
	for _, name := range append([]string{"first"}, entries...) {
		c.Entries = append(c.Entries, Entry{Name: name, Mode: ModeDelta})
	}
	l.core = NewCore(c, l.hub, func() float64 { return 0.5 })
	return l
}

// wants has a client want names of a type.
func (l *listening) wants(t cache.TypeURL, names ...string) *fanout.Subscription {
	s := l.hub.Subscribe(t, fanout.NewSubscriber(func() {}))
	s.Delta(names, nil, l.now)
	l.core.Interest(l.now)
	return s
}

// take carries out what was learned, and answers checks.
func (l *listening) take() (busy bool) {
	for _, e := range l.core.Effects() {
		busy = true
		e.Apply(l.hub)
		switch e := e.(type) {
		case CheckDue:
			l.core.Checked(e.Stream, Check{Begun: l.now, Result: l.verdict}, l.now)
		case Answered:
			l.said = append(l.said, fmt.Sprintf("%v %s speaks", l.now.Unix(), e.Lane.Type.Short()))
		case Silence:
			l.said = append(l.said, fmt.Sprintf("%v %s wildcard=%v since %v to %s: %s %s, %d wait", l.now.Unix(), e.Lane.Type.Short(), e.Lane.Wildcard, e.Since.Unix(), e.Entry, e.Node, e.Cluster, e.Clients))
		}
	}
	return busy
}

// pass lets time pass.
func (l *listening) pass(d time.Duration) {
	l.t.Helper()
	until := l.now.Add(d)
	for range 1000 {
		for busy := true; busy; {
			if l.hub.Wanted().Pending() {
				l.core.Interest(l.now)
			}
			open, _ := l.core.Tick(l.now)
			for _, o := range open {
				if o.Role == Main {
					l.stream = o.ID
				}
				l.core.Opened(o.ID, l.now)
			}
			busy = l.take() || len(open) > 0
			for l.core.Next(l.stream, l.now) != nil {
				busy = true
			}
		}
		at := l.core.Deadline(l.now)
		if at.IsZero() || at.After(until) {
			l.now = until
			return
		}
		l.now = at
	}
	l.t.Fatal("there is always something due")
}

// hears has the control plane announce names of a type.
func (l *listening) hears(t cache.TypeURL, names ...string) {
	r := &discovery.DeltaDiscoveryResponse{TypeUrl: string(t), Nonce: "n"}
	for _, name := range names {
		r.Resources = append(r.Resources, &discovery.Resource{Name: name, Version: "1", Resource: &anypb.Any{TypeUrl: string(t)}})
	}
	d := Decode(r, cache.Fingerprint{})
	l.core.Receive(l.stream, d, l.now)
	l.take()
	l.core.Applied(l.stream, d, l.now)
	l.take()
}

// told fails the test unless this was said since the last time, in this order.
func (l *listening) told(want ...string) {
	l.t.Helper()
	if !slices.Equal(l.said, want) {
		l.t.Errorf("people were told\n%s\nwant\n%s", strings.Join(l.said, "\n"), strings.Join(want, "\n"))
	}
	l.said = nil
}

// TestSilence: people are told once of a type that stays unanswered for dne_timeout on a
// stream that is alive, and when it is answered after all.
func TestSilence(t *testing.T) {
	l := listen(t)
	l.wants(cache.Cluster, fanout.Wildcard)
	l.wants(cache.Cluster, fanout.Wildcard)
	l.pass(14 * time.Second)
	l.told()
	l.pass(2 * time.Second)
	l.told("1015 CDS wildcard=true since 1000 to first: edge-1 shop, 2 wait")
	if s := l.core.State(); s.Node != "edge-1" || s.Cluster != "shop" || len(s.Entries) != 1 {
		t.Errorf("the state is %+v", s)
	} else if e := s.Entries[0]; !e.InUse || e.Connected.Unix() != 1000 || !e.Heard.IsZero() ||
		!slices.Equal(e.Lanes, []LaneState{{Lane: fanout.Lane{Type: cache.Cluster, Wildcard: true}, Asked: time.Unix(1000, 0), Silent: true}}) {
		t.Errorf("the state of its entry is %+v", e)
	}
	// Neither time nor a new stream is news, nor is the other lane of the type.
	l.pass(time.Minute)
	l.core.Ended(l.stream, End{Message: "gone"}, l.now)
	l.wants(cache.Cluster, "a")
	l.pass(time.Minute)
	l.told()
	if s := l.core.State().Entries[0]; s.Error != "gone" || s.Failed.Unix() != 1076 {
		t.Errorf("the state tells of %q at %v", s.Error, s.Failed.Unix())
	}
	l.hears(cache.Cluster)
	l.told("1136 CDS speaks")
	if got := l.core.Silent(); len(got) != 0 {
		t.Errorf("%v are silent still", got)
	}
	if s := l.core.State().Entries[0]; s.Heard.Unix() != 1136 || !s.Lanes[0].Answered || s.Lanes[0].Silent || !s.Lanes[0].Asked.IsZero() {
		t.Errorf("its state is %+v", s)
	}
	l.pass(time.Minute)
	l.told()
}

// TestSilenceOfNames: it takes all names of a type to go unanswered; one that does not
// exist is nothing to tell. The other lane of a type is told when it is its turn.
func TestSilenceOfNames(t *testing.T) {
	l := listen(t)
	l.wants(cache.Endpoint, "a", "b")
	l.wants(cache.Endpoint, "b", "c")
	l.wants(cache.Route, "there", "missing")
	l.pass(10 * time.Second)
	l.wants(cache.Endpoint, "late")
	l.hears(cache.Route, "there")
	l.pass(time.Minute)
	l.told("1015 EDS wildcard=false since 1000 to first: edge-1 shop, 3 wait")
	if got := l.core.Silent(); !slices.Equal(got, []cache.TypeURL{cache.Endpoint}) {
		t.Errorf("silent are %v", got)
	}
	l.hears(cache.Endpoint, "c")
	l.told("1070 EDS speaks")
}

// TestSilenceBeginsWithTheQuestion: what was asked for first, and given up, does not count.
func TestSilenceBeginsWithTheQuestion(t *testing.T) {
	l := listen(t)
	l.hub = fanout.NewHub(fanout.Config{})
	l.core = NewCore(l.core.config, l.hub, func() float64 { return 0.5 })
	s := l.wants(cache.Endpoint, "a")
	l.pass(10 * time.Second)
	l.wants(cache.Endpoint, "b")
	s.Close(l.now)
	l.pass(time.Minute)
	l.told("1025 EDS wildcard=false since 1010 to first: edge-1 shop, 1 wait")
}

// TestSilenceIsNoVerdictOnTheDead: nothing is said of a control plane that may not be
// there, and that it is not is said by others.
func TestSilenceIsNoVerdictOnTheDead(t *testing.T) {
	for _, v := range []CheckResult{Silent, Unclear} {
		l := listen(t)
		l.verdict = v
		l.wants(cache.Cluster, fanout.Wildcard)
		l.pass(time.Minute)
		l.told()
	}
	// Where nobody is asked, that the stream stays open will do.
	l := listen(t)
	l.core.config.HealthCheck = false
	l.wants(cache.Cluster, fanout.Wildcard)
	l.pass(time.Minute)
	l.told("1015 CDS wildcard=true since 1000 to first: edge-1 shop, 1 wait")
}

// TestSilenceMayMeanUnchanged: a stream that was shown what is here owes no answer
// (RECON-11).
func TestSilenceMayMeanUnchanged(t *testing.T) {
	l := listen(t)
	l.wants(cache.Cluster, fanout.Wildcard)
	l.wants(cache.Endpoint, "a", "b")
	l.pass(time.Second)
	l.hears(cache.Cluster, "a")
	l.hears(cache.Endpoint, "a")
	l.pass(time.Second)
	l.core.Ended(l.stream, End{Message: "gone"}, l.now)
	l.pass(time.Minute)
	l.told()
}

// TestSilenceOfAnother: another control plane is another matter. What is here of the
// first it was not shown, so that it owes an answer.
func TestSilenceOfAnother(t *testing.T) {
	l := listen(t, "second")
	l.wants(cache.Cluster, fanout.Wildcard)
	l.pass(time.Second)
	l.hears(cache.Cluster, "a")
	l.pass(time.Second)
	l.core.switchTo(1, Waits, l.now)
	l.pass(14 * time.Second)
	l.told()
	l.pass(2 * time.Second)
	l.told("1017 CDS wildcard=true since 1002 to second: edge-1 shop, 1 wait")
	l.core.switchTo(0, Preferred, l.now)
	if got := l.core.Silent(); len(got) != 0 {
		t.Errorf("%v are silent before they were asked", got)
	}
}

// TestSilenceThatNobodyHears: while nobody waits there is nothing to tell, and what
// nobody wants any more is forgotten.
func TestSilenceThatNobodyHears(t *testing.T) {
	l := listen(t)
	s := l.wants(cache.Cluster, fanout.Wildcard)
	l.pass(10 * time.Second)
	s.Close(l.now) // it lingers
	l.pass(20 * time.Second)
	l.told()
	s = l.wants(cache.Cluster, fanout.Wildcard)
	l.pass(time.Minute)
	l.told("1075 CDS wildcard=true since 1000 to first: edge-1 shop, 1 wait")
	s.Close(l.now)
	l.pass(2 * time.Minute)
	if got := l.core.Silent(); len(got) != 0 {
		t.Errorf("%v are silent though nobody wants them", got)
	}
}
