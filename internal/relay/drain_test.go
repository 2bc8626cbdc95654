package relay

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/downstream/session"
)

// TestDrain_Spread (target R12): a drain of 60 s ends after at most 65 s; until its
// turn comes, which is at random and evenly spread, a client is told everything.
func TestDrain_Spread(t *testing.T) {
	const (
		clients = 150
		delay   = 5 * time.Second
		spread  = time.Minute
	)
	inWorld(t, nil, func(w *world) {
		all := make([]*client, clients)
		for i := range all {
			all[i] = w.open(w.dial(), fmt.Sprint("c", i), false)
		}
		synctest.Wait()
		w.publish()

		begin := time.Now()
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			w.relay.Drain(delay, spread)
		}()
		synctest.Wait()
		// At first, only who asks notices; newcomers are still served.
		if ready, why := w.relay.Ready(); ready || why != "shutting down" {
			t.Errorf("ready: %v, %q", ready, why)
		}
		conn := w.dial()
		health, err := healthpb.NewHealthClient(conn).Check(context.Background(), &healthpb.HealthCheckRequest{})
		if err != nil || health.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
			t.Errorf("health: %v, %v", health, err)
		}
		late := w.open(conn, "late", false)
		all = append(all, late)
		time.Sleep(delay - time.Millisecond)
		if n := w.relay.Count(); n != len(all) {
			t.Errorf("%d streams are open before the delay is over, want %d", n, len(all))
		}
		for time.Since(begin) < delay+spread-time.Second {
			time.Sleep(430 * time.Millisecond)
			w.publish()
		}
		<-drained
		took := time.Since(begin)
		if took > 65*time.Second {
			t.Errorf("it took %v, want at most 65s", took)
		}
		synctest.Wait()

		var at []float64
		var order []int
		lost := 0
		for i, c := range all {
			ended, err := c.over()
			if status.Code(err) != codes.Unavailable {
				t.Fatalf("client %d ended with %v", i, err)
			}
			at = append(at, ended.Sub(begin.Add(delay)).Seconds()/spread.Seconds())
			order = append(order, i)
			if !w.knew(c, ended) {
				lost++
			}
		}
		d := kolmogorovSmirnov(at)
		if limit := 1.63 / math.Sqrt(float64(len(at))); d > limit { // p = 0.01
			t.Errorf("the ends are not uniform: D = %.4f, want at most %.4f", d, limit)
		}
		slices.SortFunc(order, func(i, j int) int { return int((at[i] - at[j]) * 1e9) })
		if rho := spearman(order); math.Abs(rho) > 0.3 { // more than five deviations
			t.Errorf("the order of ends follows the order of coming: %.2f", rho)
		}
		if lost > 0 {
			t.Errorf("%d clients had not been told everything when they were sent away", lost)
		}
		if n := w.seen.endings(session.ShuttingDown); n != len(all) {
			t.Errorf("%d streams ended for the shutdown, want %d", n, len(all))
		}
		t.Logf("R12: drain of %v after a delay of %v took %v; D = %.4f, %d updates, %d lost", spread, delay, took, d, len(w.published), lost)
	})
}

// knew: at a time, a client had the version that was published last, or one that was
// published at that very time.
func (w *world) knew(c *client, at time.Time) bool {
	had := c.version("a")
	for _, p := range slices.Backward(w.published) {
		if p.version == had {
			return true
		}
		if p.at.Before(at) {
			return false
		}
	}
	return false
}

// kolmogorovSmirnov is the greatest distance between a sample and the uniform
// distribution on [0, 1).
func kolmogorovSmirnov(sample []float64) (d float64) {
	sample = slices.Sorted(slices.Values(sample))
	n := float64(len(sample))
	for i, x := range sample {
		d = max(d, math.Abs(float64(i+1)/n-x), math.Abs(x-float64(i)/n))
	}
	return d
}

// spearman is how much a permutation resembles the identity, from -1 to 1.
func spearman(order []int) float64 {
	sum, n := 0.0, float64(len(order))
	for i, j := range order {
		sum += float64(i-j) * float64(i-j)
	}
	return 1 - 6*sum/(n*(n*n-1))
}

// TestConnectionAge: at the age limit, 10 % more or less, each stream is ended with
// UNAVAILABLE at a time of its own, and its client comes back on a new connection.
func TestConnectionAge(t *testing.T) {
	const (
		clients = 100
		age     = 30 * time.Minute
	)
	inWorld(t, []string{"downstream.max_connection_age=30m"}, func(w *world) {
		ends, lives := 0, []float64(nil)
		for i := range clients {
			conn := w.dial()
			node := fmt.Sprint("c", i)
			first := w.open(conn, node, true)
			w.clients.Go(func() {
				for n, c, err := 0, first, error(nil); err == nil; n++ {
					c.listen()
					if conn.GetState() == connectivity.Shutdown {
						return // the test is over
					}
					if status.Code(c.err) != codes.Unavailable {
						t.Errorf("a stream ended with %v", c.err)
						return
					}
					w.seen.count("", func() {
						ends++
						if n < 3 { // those that all have in two hours, and not only who lives short
							lives = append(lives, c.ended.Sub(c.opened).Seconds()/age.Seconds())
						}
					})
					c, err = openStream(conn, node)
				}
			})
		}
		synctest.Wait()
		w.publish()
		time.Sleep(26 * time.Minute)
		var early int
		w.seen.count("", func() { early = ends })
		if n := w.relay.Count(); n != clients || early > 0 {
			t.Errorf("%d streams are open before anything is old, want %d", n, clients)
		}
		time.Sleep(95 * time.Minute)
		synctest.Wait()
		if n := w.relay.Count(); n != clients {
			t.Errorf("%d streams are open, want %d", n, clients)
		}
		w.seen.mu.Lock()
		defer w.seen.mu.Unlock()
		if len(lives) != 3*clients {
			t.Errorf("of the first three streams of each client %d came to their end in two hours, want %d", len(lives), 3*clients)
		}
		if lo, hi := slices.Min(lives), slices.Max(lives); lo < 0.9 || hi > 1.1 {
			t.Errorf("streams lived from %.3f to %.3f of the limit", lo, hi)
		}
		for i := range lives {
			lives[i] = (lives[i] - 0.9) / 0.2
		}
		if d, limit := kolmogorovSmirnov(lives), 2.8/math.Sqrt(float64(len(lives))); d > limit { // one run in millions
			t.Errorf("the ends are not spread evenly: D = %.4f, want at most %.4f", d, limit)
		}
		if n := w.seen.ended[session.Aged]; n != ends {
			t.Errorf("%d streams ended for their age, %d in all", n, ends)
		}
		if n := int(w.dials.Load()); n < ends+clients {
			t.Errorf("%d connections for %d streams: some came back on the old one", n, ends+clients)
		}
	})
}
