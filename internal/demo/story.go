package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// kinds are the types that change in the story, as people call them.
var kinds = map[cache.TypeURL]string{cache.Cluster: "cluster", cache.Endpoint: "endpoints"}

// What happens when, in beats of the story. A beat is a second, and a tenth of the
// demo when that is shorter, so that even a short one shows everything.
const (
	beats        = 10
	firstChange  = 0.3
	firstAbsence = 0.8
	absence      = 1.5
	firstOutage  = 3.2
	outage       = 3
	sotwAbsence  = 7.7
	absenceEvery = 5  // from then on
	outageEvery  = 60 // after the first one
)

// Limits for events that take milliseconds. When one is late the demo says so,
// and the story goes on.
const (
	limit = 10 * time.Second
	// moment is how long somebody who presses Ctrl-C has to wait at most.
	moment = time.Second
	// lookEvery is how often the story looks whether something has happened.
	lookEvery = 5 * time.Millisecond
	// calm is for how long a client that has everything is watched for more.
	calm = 100 * time.Millisecond
)

// play tells the story until ctx ends.
func (d *demo) play(ctx context.Context) error {
	beat := time.Second
	if d.options.For > 0 {
		beat = min(beat, d.options.For/beats)
	}
	after := func(beats float64) time.Duration { return time.Duration(beats * float64(beat)) }

	complete := d.until(ctx, limit, func() bool { return d.complete() == len(d.clients) })
	if ctx.Err() != nil {
		return nil
	}
	d.say("%d of %d clients connected, %d have all they use after %s", d.connected(), len(d.clients), d.complete(), span(time.Since(d.begin)))
	if !complete {
		return errors.New("demo: the clients did not get what the control plane has; run `xds-relay demo` with fewer --clients")
	}
	begin := time.Now()
	at := func(beats float64) bool { return wait(ctx, time.Until(begin.Add(after(beats)))) }

	if !at(firstChange) {
		return nil
	}
	d.firstChange(ctx)
	// Changes go on beside what else happens.
	var changes sync.WaitGroup
	defer changes.Wait()
	changing, stop := context.WithCancel(ctx)
	defer stop()
	if d.options.Rate > 0 {
		changes.Go(func() { d.keepChanging(changing) })
	}

	if !at(firstAbsence) {
		return nil
	}
	if err := d.beAway(ctx, d.pick(false), after(absence)); err != nil {
		return err
	}
	if !at(firstOutage) {
		return nil
	}
	if err := d.outage(ctx, after(outage)); err != nil {
		return err
	}
	next, nextOutage := sotwAbsence, float64(firstOutage+outageEvery)
	for i := 0; at(next); i++ {
		var err error
		if next >= nextOutage {
			err = d.outage(ctx, after(outage))
			nextOutage += outageEvery
		} else {
			err = d.beAway(ctx, d.pick(i%3 == 0), after(absence))
		}
		if err != nil {
			return err
		}
		next += absenceEvery
	}
	return nil
}

// until waits for something to be true; false if it did not become true.
func (d *demo) until(ctx context.Context, limit time.Duration, is func() bool) bool {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !is() {
		if !wait(limited, lookEvery) {
			return is()
		}
	}
	return true
}

func (d *demo) say(format string, args ...any) {
	d.view.Say(time.Since(d.begin), fmt.Sprintf(format, args...))
}

// pick is a random client of a kind; the other kind if there is none.
func (d *demo) pick(sotw bool) *client {
	i := rand.IntN((len(d.clients)+1)/2) * 2
	if sotw {
		i++
	}
	return d.clients[min(i, len(d.clients)-1)]
}

// anyOf is a resource that changes, of one of the services.
func anyOf(services []string) key {
	k := key{cache.Endpoint, services[rand.IntN(len(services))]}
	if rand.IntN(4) == 0 {
		k.typ = cache.Cluster
	}
	return k
}

// change changes a resource. The caller holds world.
func (d *demo) change(k key, afterOutage bool) *change {
	var waiting []*client
	for _, c := range d.clients {
		if c.Uses(k) && c.Connected() {
			waiting = append(waiting, c)
		}
	}
	c := d.stats.Begin(k, d.cp.Revision(k)+1, waiting, afterOutage)
	d.cp.Change(k)
	return c
}

// keepChanging changes something at the rate of the options.
func (d *demo) keepChanging(ctx context.Context) {
	tick := time.NewTicker(time.Duration(float64(time.Second) / d.options.Rate))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		d.world.Lock()
		d.change(anyOf(services), false)
		d.world.Unlock()
	}
}

// firstChange is one change alone, so that the story can follow it.
func (d *demo) firstChange(ctx context.Context) {
	d.world.Lock()
	defer d.world.Unlock()
	before := d.cp.responses.Load()
	c := d.change(key{cache.Endpoint, services[0]}, false)
	if d.done(ctx, c) {
		d.say("%s changed: sent %s, %d clients had it after %s",
			c, times(d.cp.responses.Load()-before), c.reached, span(c.took))
	} else if ctx.Err() == nil {
		d.say("%s changed: %d clients do not have it after %s", c, d.stats.Waiting(c), span(limit))
	}
}

// done waits until every client has a change.
func (d *demo) done(ctx context.Context, c *change) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-c.done:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// beAway lets a client drop off and come back, while something changes that it
// uses.
func (d *demo) beAway(ctx context.Context, c *client, length time.Duration) error {
	d.world.Lock()
	c.Stop()
	d.stats.Left(c)
	d.world.Unlock()
	left := time.Now()
	d.say("%s drops off", c.name)

	wait(ctx, length/2)
	d.world.Lock()
	d.change(anyOf(c.services), false)
	d.world.Unlock()
	wait(ctx, length/2)

	// Nothing changes while the client comes back, so that what it is sent can be
	// compared with what it lacks.
	d.world.Lock()
	defer d.world.Unlock()
	away, lacks := time.Since(left), c.Missing(d.cp)
	if err := c.Start(d.relayAddr); err != nil {
		return fmt.Errorf("demo: %s: %w", c.name, err)
	}
	if !d.until(ctx, limit, func() bool { return c.Missing(d.cp) == 0 }) || !wait(ctx, calm) {
		if ctx.Err() == nil {
			d.say("%s came back, and still lacks %d resources after %s", c.name, c.Missing(d.cp), span(limit))
		}
		return nil
	}
	d.say("%s back after %s: %s", c.name, span(away), cameBack(c.sotw, c.Visit(), lacks))
	return nil
}

// cameBack tells what a client was sent that came back.
func cameBack(sotw bool, v visit, lacks int) string {
	if sotw {
		return fmt.Sprintf("%d changed, sent all %d (SotW cannot resume)", lacks, v.resources)
	}
	text := fmt.Sprintf("%d versions, %d changed, sent %d", v.versions, lacks, v.resources-v.again)
	if v.again > 0 {
		// A cluster that changed waits for its endpoints, changed or not (ORDER-4).
		text += fmt.Sprintf(" (+%d to warm)", v.again)
	}
	return text
}

// outage takes the control plane away and brings it back with one more change.
func (d *demo) outage(ctx context.Context, length time.Duration) error {
	d.world.Lock()
	defer d.world.Unlock()
	d.until(ctx, limit, func() bool { return d.stats.Pending() == 0 })
	lost := d.stats.lost.Load()
	d.cp.Stop()
	gone := time.Now()
	d.say("control plane gone: its connections and its port closed")
	if wait(ctx, length/2) {
		d.say("control plane gone for %s: %d of %d clients stay connected", span(time.Since(gone)), d.connected(), len(d.clients))
	}
	wait(ctx, length/2)

	c := d.change(anyOf(services), true)
	// It comes back even when the demo ends, so that the end can be looked at.
	if err := d.cp.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	d.stats.Restart(c)
	d.say("control plane back after %s; meanwhile %s changed", span(time.Since(gone)), c)
	if d.done(ctx, c) {
		d.say("%d clients had that %s later; client streams lost meanwhile: %d",
			c.reached, span(c.took), d.stats.lost.Load()-lost)
	} else if ctx.Err() == nil {
		d.say("%d clients do not have that change after %s", d.stats.Waiting(c), span(limit))
	}
	return nil
}

// settle gives the last changes the time to arrive, and no more than a moment when
// the demo is interrupted.
func (d *demo) settle(ctx context.Context) error {
	patience, within := ctx, limit
	if ctx.Err() != nil {
		patience, within = context.WithoutCancel(ctx), moment
	}
	if !d.until(patience, within, func() bool { return d.complete() == len(d.clients) && d.connected() == len(d.clients) }) && ctx.Err() == nil {
		return fmt.Errorf("demo: %d of %d clients do not have what the control plane has, %s after its last change",
			len(d.clients)-d.complete(), len(d.clients), span(limit))
	}
	return nil
}
