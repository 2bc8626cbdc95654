//go:build linux

package load

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/xds-relay/xds-relay/bench/internal/result"
	"github.com/xds-relay/xds-relay/bench/internal/wire"
)

// stay is how long a client that comes and goes is there.
const stay = 2 * time.Second

// soak is fanout for long, while other clients come and go.
func soak(r *run) error {
	if _, err := r.prime(); err != nil {
		return err
	}
	all := &profile{delta: true, subs: []*wire.Subscription{r.clusters(true, nil)}, complete: r.World.Clusters}
	ctx, stop := context.WithCancel(r.ctx)
	var visits visitors
	visits.work.Go(func() { visits.comeAndGo(ctx, r, all) })
	err := r.connectAndChange(same(all))
	stop()
	visits.work.Wait()
	if err != nil {
		return err
	}
	r.result.Add("visitors", float64(visits.count), "")
	r.result.Add("visitors_failed", float64(visits.failed), "")
	return nil
}

// visitors are clients that come and go.
type visitors struct {
	work          sync.WaitGroup
	mu            sync.Mutex
	count, failed int
}

func (v *visitors) comeAndGo(ctx context.Context, r *run, p *profile) {
	begin, rec := time.Now(), newRecorder() // one for all, since nobody reads it
	for i := 0; until(ctx, begin.Add(time.Duration(float64(i)/r.Churn*float64(time.Second)))); i++ {
		v.work.Go(func() {
			f := newFleet(r.target, 1, rec)
			err := f.connect(ctx, same(p), r.Clients+i, r.Clients+i+1, r.pace(0))
			if err == nil {
				err = f.await(ctx, "complete", &f.complete, 1, syncWithin)
			}
			until(ctx, time.Now().Add(stay))
			f.close()
			v.mu.Lock()
			defer v.mu.Unlock()
			v.count++
			if err != nil && ctx.Err() == nil {
				v.failed++
			}
		})
	}
}

// slopes adds how fast a process has grown, in its second and third thirds.
func slopes(r *result.Run) {
	n := len(r.Samples)
	if n < 30 {
		return
	}
	late := r.Samples[n/3:]
	for _, s := range []struct {
		name string
		of   func(result.Sample) float64
	}{
		{"rss", func(s result.Sample) float64 { return float64(s.RSS) }},
		{"heap", func(s result.Sample) float64 { return float64(s.Heap) }},
		{"goroutines", func(s result.Sample) float64 { return float64(s.Goroutines) }},
		{"fds", func(s result.Sample) float64 { return float64(s.FDs) }},
	} {
		slope, middle := fit(late, s.of)
		if middle > 0 {
			r.Add(s.name+"_slope", 100*slope*3600/middle, "%/h")
		}
	}
}

// fit is the slope through samples, a second, and their middle. It is the median of the
// slopes between any two (Theil and Sen), so that a sample that is large for a moment does
// not tilt it.
func fit(samples []result.Sample, of func(result.Sample) float64) (slope, middle float64) {
	var slopes, values []float64
	for i, a := range samples {
		values = append(values, of(a))
		for _, b := range samples[i+1:] {
			slopes = append(slopes, (of(b)-of(a))/(b.Seconds-a.Seconds))
		}
	}
	return median(slopes), median(values)
}

func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
