package e2e

import (
	"fmt"
	"sync"
	"testing"
	"time"

	gcptypes "github.com/envoyproxy/go-control-plane/pkg/cache/types"

	"github.com/xds-relay/xds-relay/cache"
)

// 400 clients (100 in the short form), 50 updates a second over three types, and a control plane that is
// killed again and again and comes back with its cache, having lost something each
// time: no client's stream is closed, no response repeats what its client has, and
// nothing stays stale when the control plane is back. The short form kills 5 times and
// hurries the back-off; the long form kills 20 times with the default timers, and gives
// each recovery 5 s.
func TestOutages(t *testing.T) {
	const perSecond = 50
	wildcards, named, sotws := 10, 40, 50
	kills, down, pause, limit, sets := 5, 400*time.Millisecond, 700*time.Millisecond, patience, quickBackoff
	if long() {
		wildcards, named, sotws = 40, 160, 200
		kills, down, pause, limit, sets = 20, 2*time.Second, 5*time.Second, 5*time.Second, nil
	}
	w := newChurn(t, kills)
	cp := startControlPlane(t, w.Mux())
	r := startRelay(t, cp.addr, sets...)

	var clients []churnClient
	for i := range wildcards + named {
		d := openDelta(t, r.addr, fmt.Sprintf("delta-%d", i))
		names := w.names(i)
		if i < wildcards {
			d.Wildcard(cache.Cluster)
		} else {
			d.Subscribe(cache.Cluster, names...)
		}
		d.Subscribe(cache.Endpoint, names...)
		d.Subscribe(cache.Route, names...)
		clients = append(clients, churnClient{d, names})
	}
	for i := range sotws {
		s := openSotw(t, r.addr, fmt.Sprintf("sotw-%d", i))
		names := w.names(i)
		for _, u := range churnTypes {
			s.Watch(u, names...)
		}
		clients = append(clients, churnClient{s, names})
	}
	current := func(expected map[cache.TypeURL]map[string]int) func() error {
		return func() error {
			for _, c := range clients {
				if err := c.upToDate(expected); err != nil {
					return err
				}
			}
			return nil
		}
	}
	took := eventually(t, 2*patience, current(w.expected()))
	t.Logf("%d clients complete after %v", len(clients), took)

	stop := w.update(time.Second / perSecond)
	defer stop()
	worst := time.Duration(0)
	for kill := range kills {
		wait(pause)
		cp.Stop()
		wait(down)
		w.deleteGone(kill)
		cp.Start()
		took := eventually(t, limit, current(w.expected()))
		t.Logf("kill %d: nothing was stale %v after the control plane was back", kill+1, took)
		worst = max(worst, took)
	}
	updates, span := stop()
	eventually(t, limit, current(w.expected()))

	closed, repeated, responses := 0, 0, 0
	for _, c := range clients {
		ends, faults, heard := c.peer.Counts()
		closed, repeated, responses = closed+ends, repeated+faults, responses+heard
		if err := c.peer.Sound(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d kills, %d updates in %v (%.0f a second), %d responses to %d clients: %d streams closed, %d faults; worst recovery %v",
		kills, updates, span.Round(time.Millisecond), float64(updates)/span.Seconds(), responses, len(clients), closed, repeated, worst)
	if err := first(is("client streams of the relay", r.Count(), len(clients)), cp.deltaADSOnly()); err != nil {
		t.Error(err)
	}
}

var churnTypes = []cache.TypeURL{cache.Cluster, cache.Endpoint, cache.Route}

// churn is a world that changes all the time, and knows what it should look like.
type churn struct {
	*linear
	kills int

	mu        sync.Mutex
	revisions map[cache.TypeURL]map[string]int
	updates   int
}

const (
	churnNames  = 100 // of a type
	perClient   = 8   // names that one client watches
	gonePattern = "gone-%02d"
)

func newChurn(t *testing.T, kills int) *churn {
	w := &churn{linear: newLinear(t), kills: kills, revisions: make(map[cache.TypeURL]map[string]int)}
	for _, u := range churnTypes {
		w.revisions[u] = make(map[string]int)
		all := make(map[string]gcptypes.Resource)
		add := func(name string) {
			w.revisions[u][name] = 1
			all[name] = w.resource(u, name, 1)
		}
		for i := range churnNames {
			add(churnName(i))
		}
		for kill := range kills {
			add(fmt.Sprintf(gonePattern, kill))
		}
		w.Fill(u, all)
	}
	return w
}

func churnName(i int) string { return fmt.Sprintf("name-%02d", i%churnNames) }

func (w *churn) resource(u cache.TypeURL, name string, revision int) gcptypes.Resource {
	switch u {
	case cache.Cluster:
		return staticCluster(name, revision)
	case cache.Endpoint:
		return endpoints(name, revision, "127.0.0.1:1")
	default:
		return routeTo(name, revision, "c")
	}
}

// names are what a client watches: some that change, and all that will go.
func (w *churn) names(client int) []string {
	var names []string
	for i := range perClient {
		names = append(names, churnName(client*perClient+i))
	}
	for kill := range w.kills {
		names = append(names, fmt.Sprintf(gonePattern, kill))
	}
	return names
}

// expected is the world as it is now; 0 stands for what is gone.
func (w *churn) expected() map[cache.TypeURL]map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make(map[cache.TypeURL]map[string]int)
	for u, names := range w.revisions {
		out[u] = make(map[string]int)
		for name, revision := range names {
			out[u][name] = revision
		}
	}
	return out
}

// update changes one resource after the other until stop, which may be called
// twice and tells how many there were, and in what time.
func (w *churn) update(every time.Duration) (stop func() (int, time.Duration)) {
	done := make(chan struct{})
	var work sync.WaitGroup
	begin := time.Now()
	work.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			u, name := churnTypes[n%len(churnTypes)], churnName(n/len(churnTypes))
			w.mu.Lock()
			w.revisions[u][name]++
			w.updates++
			w.Set(u, name, w.resource(u, name, w.revisions[u][name]))
			w.mu.Unlock()
		}
	})
	return sync.OnceValues(func() (int, time.Duration) {
		close(done)
		work.Wait()
		return w.updates, time.Since(begin)
	})
}

// deleteGone removes what this outage takes away.
func (w *churn) deleteGone(kill int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := fmt.Sprintf(gonePattern, kill)
	for _, u := range churnTypes {
		w.revisions[u][name] = 0
		w.Delete(u, name)
	}
}

// churnClient is a client of either variant, and what it watches.
type churnClient struct {
	peer interface {
		Get(cache.TypeURL, string) (held, bool)
		Sound() error
		Counts() (ends, faults, heard int)
	}
	names []string
}

// upToDate complains of what is older than expected, and of what is there and
// should not be.
func (c churnClient) upToDate(expected map[cache.TypeURL]map[string]int) error {
	for _, u := range churnTypes {
		for _, name := range c.names {
			h, ok := c.peer.Get(u, name)
			want := expected[u][name]
			if want == 0 && ok {
				return fmt.Errorf("a client still has %s %q, which is gone", u.Short(), name)
			}
			if want > 0 {
				if err := atLeast("a client", u, name, h, ok, want); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
