//go:build linux

package chaos

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// R12: SIGTERM to one of two relays. Its clients go over to the other one, evenly
// spread in time.
func TestR12_Drain(t *testing.T) {
	drain := 3 * time.Second
	if long() {
		drain = time.Minute
	}
	r := begin(t, "R12", "drain 60 s: exits <= 65 s; closes uniform (KS test p > 0.01); no update lost", usualLoad+"; 50 updates/s; drain_delay 0s; a second relay takes the clients")
	h := newHistory(usual())
	up := startUpstream(t, h)
	old := startRelay(t, up.addr, fmt.Sprintf("downstream.drain=%v", drain), "downstream.drain_delay=0s")
	other := startRelay(t, up.addr)
	r.fleet = startFleet(t, h, old.Addr, thousand())
	stop := up.Churn(50)
	pause(context.Background(), time.Second)
	r.fleet.moved.Store(&other.Addr)
	r.fleet.epoch.Add(1) // another relay may be a little behind

	began := time.Now()
	old.Stop()
	took := time.Since(began)
	r.fleet.Converge()
	stop()
	r.fleet.Converge()

	var shares []float64
	for _, at := range r.fleet.endings() {
		shares = append(shares, float64(at.Sub(began))/float64(drain))
	}
	r.tell("drain", seconds(drain), "s")
	r.within("exited after", seconds(took), "s", "<= drain + 5", took <= drain+5*time.Second)
	r.holds("exit code", float64(old.ProcessState.ExitCode()), "", "0", old.ProcessState.ExitCode() == 0)
	r.holds("streams ended", float64(len(shares)), "", fmt.Sprint(len(r.fleet.clients)), len(shares) == len(r.fleet.clients))
	d, p := uniform(shares)
	r.tell("largest distance from uniform (Kolmogorov-Smirnov D)", d, "")
	r.within("p of the Kolmogorov-Smirnov test", p, "", "> 0.01", p > 0.01)
	r.sound()
}

// uniform tests whether numbers are drawn uniformly from 0 to 1: the
// Kolmogorov-Smirnov distance, and how probable it is to be as large by chance.
func uniform(x []float64) (d, p float64) {
	slices.Sort(x)
	n := float64(len(x))
	for i, v := range x {
		d = max(d, v-float64(i)/n, float64(i+1)/n-v)
	}
	root := math.Sqrt(n)
	lambda := (root + 0.12 + 0.11/root) * d
	for k := 1; k <= 100; k++ {
		term := 2 * math.Exp(-2*lambda*lambda*float64(k*k))
		if k%2 == 0 {
			term = -term
		}
		p += term
	}
	return d, min(1, max(0, p))
}
