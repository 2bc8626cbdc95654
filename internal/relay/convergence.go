package relay

import (
	"context"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// ConvergenceObserver hears how long changes take until their last client has them, for metrics. Its methods are
// called from one goroutine.
type ConvergenceObserver interface {
	// Converged: all clients that a change concerned are done with it, or it was waited for in vain; after is
	// fanout.MaxConvergence then.
	Converged(t cache.TypeURL, after time.Duration)
	// ConvergenceSkipped: n changes were not measured, for want of room.
	ConvergenceSkipped(n int)
}

// convergenceEvery is how often the relay looks which changes have converged.
const convergenceEvery = time.Second

// measureConvergence makes what measures it, and tells the observer each second; nil: nobody wants to know.
func measureConvergence(to ConvergenceObserver) (c *fanout.Convergence, run func(context.Context)) {
	if to == nil {
		return nil, func(context.Context) {}
	}
	c = fanout.NewConvergence()
	return c, func(ctx context.Context) {
		tick := time.NewTicker(convergenceEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				tellConvergence(c, to, now)
			}
		}
	}
}

func tellConvergence(c *fanout.Convergence, to ConvergenceObserver, now time.Time) {
	over, skipped := c.Take(now)
	for _, o := range over {
		to.Converged(o.Type, o.After)
	}
	if skipped > 0 {
		to.ConvergenceSkipped(skipped)
	}
}
