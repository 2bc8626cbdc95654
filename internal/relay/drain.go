package relay

import (
	"context"
	"time"
)

// Drain goes on serving for a while and reports that it is not ready, so that
// load balancers stop sending clients here; then it does what Close does.
func (r *Relay) Drain(delay, spread time.Duration) {
	r.ready.stop()
	r.log.Info("shutting down", "clients", r.Count(), "drain_delay", delay.String(), "drain", spread.String())
	time.Sleep(delay)
	r.Close(spread)
}

// StartDrain has a relay that goes on running report that it is not ready. If away is set it also refuses new streams,
// and ends the open ones over a time. The control plane's side, the caches and the snapshot go on as before. A later
// StartDrain takes the place of an earlier one, and StopDrain ends it. It returns the number of clients at its start.
func (r *Relay) StartDrain(away bool, spread time.Duration) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	clients := r.Count()
	if r.closed {
		return clients
	}
	r.stay()
	r.ready.drains(true)
	if !away {
		r.log.Warn("an operator drains the relay: it reports that it is not ready, and goes on serving", "clients", clients)
		return clients
	}
	r.log.Warn("an operator drains the relay: it reports that it is not ready, refuses new streams, and sends its clients away", "clients", clients, "over", spread.String())
	r.server.SetDraining(true) // before those that are open are counted
	drain, end := context.WithCancel(context.Background())
	r.endDrain = end
	r.groups.run(func(running context.Context) {
		defer context.AfterFunc(running, end)()
		r.server.SendAway(drain, spread)
	})
	return clients
}

// StopDrain ends a drain: the relay takes in clients again, and those that it has not sent away stay.
func (r *Relay) StopDrain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stay()
	r.ready.drains(false)
	r.log.Warn("an operator ends the drain", "clients", r.Count())
}

// stay sends no more clients away. It is called with mu held.
func (r *Relay) stay() {
	if r.endDrain != nil {
		r.endDrain()
		r.endDrain = nil
	}
	r.server.SetDraining(false)
}
