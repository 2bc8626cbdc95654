//go:build linux

package load

import (
	"context"
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
		slope, mean := fit(late, s.of)
		if mean > 0 {
			r.Add(s.name+"_slope", 100*slope*3600/mean, "%/h")
		}
	}
}

// fit is the slope of a line through the samples, a second, and their mean.
func fit(samples []result.Sample, of func(result.Sample) float64) (slope, mean float64) {
	var t, v float64
	for _, s := range samples {
		t += s.Seconds
		v += of(s)
	}
	n := float64(len(samples))
	t, v = t/n, v/n
	var above, below float64
	for _, s := range samples {
		above += (s.Seconds - t) * (of(s) - v)
		below += (s.Seconds - t) * (s.Seconds - t)
	}
	return above / below, v
}
