package session

import (
	"fmt"
	"slices"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// converging is a group of Delta clients of Clusters, and what is measured of how long changes take to all of them.
type converging struct {
	t       *testing.T
	c       *fanout.Convergence
	hub     *fanout.Hub
	now     time.Time
	version int
	bounds  *Bounds // of clients
	most    int     // bytes of a response
}

func converge(t *testing.T) *converging {
	c := fanout.NewConvergence()
	return &converging{t: t, c: c, hub: fanout.NewHub(fanout.Config{Linger: time.Minute, Convergence: c}), now: time.Unix(1000, 0)}
}

func (w *converging) after(d time.Duration) { w.now = w.now.Add(d) }

// client subscribes to names, and has what there is of them.
func (w *converging) client(names ...string) *followed {
	f := &followed{t: w.t, hub: w.hub, now: w.now}
	config := &Config{MaxName: 100, MaxNames: 100, AckTimeout: 10 * time.Second, Bounds: w.bounds, MaxResponse: w.most}
	f.s = New(config, Stream{Delta: true}, Peer{}, oneGroup{w.hub}, NewClusterDeliveries(), func() {})
	f.ask(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "n"}, ResourceNamesSubscribe: names})
	if f.sends(); f.last != nil {
		f.answers("")
	}
	return f
}

// change has upstream change a name, and clients be sent it.
func (w *converging) change(name string, clients ...*followed) {
	w.changes([]string{name}, clients...)
}

func (w *converging) changes(names []string, clients ...*followed) {
	w.version++
	u := &cache.Update{At: w.now, Source: cache.NewSource(w.now, nil)}
	for _, name := range names {
		in := &discovery.Resource{Name: name, Resource: &anypb.Any{TypeUrl: string(cache.Cluster), Value: fmt.Appendf(nil, "%100d", w.version)}}
		u.Set = append(u.Set, cache.Received{Resource: cache.NewResource(cache.Cluster, in, cache.Fingerprint{})})
	}
	w.hub.Apply(fanout.Lane{Type: cache.Cluster}, u)
	for _, f := range clients {
		f.now = w.now
		f.sends()
	}
}

func (w *converging) resolution(message string, f *followed) {
	f.now = w.now
	f.answers(message)
	f.sends()
}

func (w *converging) gone(f *followed) { f.s.Close(w.now) }

// is checks what has converged since it was called last.
func (w *converging) is(what string, want ...time.Duration) {
	w.t.Helper()
	over, skipped := w.c.Take(w.now)
	var got []time.Duration
	for _, o := range over {
		got = append(got, o.After)
		if o.Type != cache.Cluster {
			w.t.Errorf("%s: it is of %s", what, o.Type)
		}
	}
	if !slices.Equal(got, want) || skipped > 0 {
		w.t.Errorf("%s: %v converged, %d are skipped; want %v", what, got, skipped, want)
	}
}

// TestConvergence: a change has converged when the last client that it concerned has acknowledged it.
func TestConvergence(t *testing.T) {
	w := converge(t)
	fast, late, other := w.client("a"), w.client("a", "b"), w.client("c")
	w.is("nothing has changed")
	w.change("a", fast, late, other)
	w.after(10 * time.Millisecond)
	w.resolution("", fast)
	w.is("one has it")
	newcomer := w.client("a")
	w.after(3 * time.Second)
	w.resolution("", late)
	w.is("both have it", 3010*time.Millisecond)

	w.change("nobody asks for it", fast, late)
	w.is("it concerns nobody")
	w.change("a", fast, late, newcomer)
	w.after(time.Second / 2)
	w.change("a", fast, late, newcomer) // too soon to be measured
	w.resolution("", fast)
	w.resolution("", late)
	w.resolution("", newcomer)
	w.is("one a second is measured", time.Second/2)
	w.after(time.Second)
	for _, f := range []*followed{fast, late, newcomer} {
		w.resolution("", f)
	}
	w.is("the other one is not")
}

// TestConvergenceEnds: who rejects a change or goes is done with it at that moment, and who has nothing to be
// sent, at once.
func TestConvergenceEnds(t *testing.T) {
	w := converge(t)
	rejects, leaves, accepts := w.client("a"), w.client("a"), w.client("a", "b")
	w.change("a", rejects, leaves, accepts)
	w.after(time.Second)
	w.resolution("", accepts)
	w.after(time.Second)
	w.resolution("no", rejects)
	w.is("one is left")
	w.after(time.Second)
	w.gone(leaves)
	w.is("all are done", 3*time.Second)

	w.after(time.Second)
	w.change("a", rejects, accepts)
	w.after(time.Second)
	w.resolution("", rejects)
	w.gone(accepts)
	w.is("another one has gone", time.Second)

	// One that goes before it is sent anything.
	unsent := w.client("a")
	w.change("a", rejects)
	w.after(2 * time.Second)
	w.resolution("", rejects)
	w.is("it waits for what was not sent")
	w.gone(unsent)
	w.is("it has gone", 2*time.Second)

	// One that gives the name up before it is sent the change.
	w.after(time.Second)
	tired := w.client("a", "b")
	w.change("a", rejects)
	tired.ask(&discovery.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: []string{"a"}})
	w.after(time.Second)
	w.resolution("", rejects)
	tired.now = w.now
	tired.sends()
	w.is("nothing is to be sent to it", time.Second)
}

// TestConvergenceMerges: a client that is sent several changes at once is done with each when it acknowledges the
// response.
func TestConvergenceMerges(t *testing.T) {
	w := converge(t)
	slow, other := w.client("a", "b"), w.client("a")
	w.change("a", slow, other)
	w.after(time.Second)
	w.resolution("", other)
	w.change("a", slow, other) // slow owes an ACK
	w.after(time.Second)
	w.resolution("", other)
	w.change("b", slow, other)
	w.after(time.Second)
	w.resolution("", slow)
	w.is("the first", 3*time.Second)
	w.after(time.Second)
	w.resolution("", slow)
	w.is("the others together", 3*time.Second, 2*time.Second)
}

// TestConvergenceWithoutEnd: a client that never acknowledges spoils what is measured for some minutes, and then no
// more. However long it takes, little is kept for it.
func TestConvergenceWithoutEnd(t *testing.T) {
	w := converge(t)
	stuck, well := w.client("a", "b"), w.client("a")
	const changes = 600 // one a second
	in, over := 0, 0
	for range changes {
		w.change("a", stuck, well)
		w.resolution("", well)
		w.after(time.Second)
		done, skipped := w.c.Take(w.now)
		if skipped > 0 {
			t.Fatal("some were skipped")
		}
		for _, c := range done {
			switch c.After {
			case 1: // at once
				in++
			case fanout.MaxConvergence:
				over++
			default:
				t.Fatalf("it took %v", c.After)
			}
		}
	}
	if over != 300 && over != 301 || in+over != changes-1 && in+over != changes {
		t.Errorf("of %d changes %d converged and %d did not; want those of 300 s that did not, and all others that did", changes, in, over)
	}
	kept := 0
	for _, u := range stuck.s.find(cache.Cluster).base().unacked {
		if u.source.Measured() {
			kept++
		}
	}
	if most := DefaultBounds.Unacked; kept > most {
		t.Errorf("%d of its responses are measured, want %d at most", kept, most)
	}
	w.resolution("", stuck)
	w.resolution("", stuck) // also what waited for that
	w.change("a", stuck, well)
	w.resolution("", well)
	w.after(2 * time.Second)
	w.resolution("", stuck)
	done, _ := w.c.Take(w.now)
	if len(done) == 0 || done[len(done)-1].After != 2*time.Second {
		t.Errorf("when it answers again, what is measured is %v", done)
	}
}

// TestConvergenceOfParts: a client is done with a response of several parts when it acknowledges the last, or goes
// before it is sent that.
func TestConvergenceOfParts(t *testing.T) {
	w := converge(t)
	w.most = 400
	whole, half := w.client("a", "b"), w.client("a", "b")
	w.changes([]string{"a", "b"})
	first, _ := whole.s.Next(w.now)
	second, _ := whole.s.Next(w.now)
	if sent, _ := half.s.Next(w.now); first == nil || second == nil || sent == nil || !first.Partial || second.Partial {
		t.Fatalf("they are sent %v, %v and %v, want two parts", first, second, sent)
	}
	w.after(time.Second)
	whole.last = first
	w.resolution("", whole)
	w.after(time.Second)
	w.gone(half)
	w.is("the last part is not acknowledged")
	w.after(time.Second)
	whole.last = second
	w.resolution("", whole)
	w.is("it is", 3*time.Second)

	half = w.client("a", "b")
	w.changes([]string{"a", "b"})
	if sent, _ := half.s.Next(w.now); sent == nil || !sent.Partial {
		t.Fatalf("it is sent %v, want a part", sent)
	}
	w.gone(whole)
	w.after(time.Second)
	w.gone(half)
	w.is("it goes with half of it", time.Second)
}

// TestConvergenceForgotten: a client that has more responses on the way than are remembered is done with the changes of
// the forgotten ones when it acknowledges a later one.
func TestConvergenceForgotten(t *testing.T) {
	w := converge(t)
	w.bounds = &Bounds{Unacked: 2, Block: 1 << 20}
	f := w.client("a")
	var want []time.Duration
	const changes, every = 5, 11 * time.Second // longer than pushes wait for an ACK
	for n := range changes {
		w.change("a", f)
		w.after(every)
		want = append(want, (changes-time.Duration(n))*every)
	}
	w.is("it has said nothing")
	w.resolution("", f)
	w.is("it accepts the last", want...)
}

// TestConvergenceOfNobody: changes that concern only a client that has owed an ACK for too long are not measured.
func TestConvergenceOfNobody(t *testing.T) {
	w := converge(t)
	f := w.client("a")
	for range 60 {
		w.change("a", f)
		w.after(11 * time.Second)
		over, _ := w.c.Take(w.now)
		if slices.ContainsFunc(over, func(c fanout.Converged) bool { return c.After != fanout.MaxConvergence }) {
			t.Fatalf("%v converged, and the client has said nothing", over)
		}
	}
	if n := len(f.s.find(cache.Cluster).base().unacked); n > DefaultBounds.Unacked {
		t.Errorf("%d responses are remembered", n)
	}
}
