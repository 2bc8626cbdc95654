package certs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/internal/events"
)

// agent is a SPIFFE Workload API, which is watched while a section names it. However many
// sections do, it is watched once, and what it sends is material for all of them.
type agent struct {
	address string
	heard   chan struct{} // closed once it has answered or failed

	// Guarded by Follower.mu.
	stop    context.CancelFunc // nil: it is not watched yet
	asked   time.Time          // when that began
	answer  bool               // heard is closed
	last    *workloadapi.X509Context
	trouble trouble
}

// dialing is how often gRPC tries the socket, so that it is never slower than the library.
var dialing = grpc.WithConnectParams(grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
	MinConnectTimeout: 5 * time.Second,
})

// join makes a section one of those that its agent gives certificates to. It is called with
// mu held.
func (f *Follower) join(d *Followed) {
	address := d.files.Agent
	a := f.agents[address]
	if a == nil {
		a = &agent{address: address, heard: make(chan struct{})}
		f.agents[address] = a
	}
	d.agent = a
	if a.last != nil {
		d.now.Store(&loaded{d.files, svidMaterial(a.last, d.files)})
	}
}

// watchAgents has each agent watched that a section names, and no others, until ctx ends.
func (f *Follower) watchAgents(ctx context.Context, running *sync.WaitGroup) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for address, a := range f.agents {
		named := slices.ContainsFunc(f.followed, func(d *Followed) bool { return d.agent == a })
		switch {
		case named && a.stop == nil:
			var own context.Context
			own, a.stop = context.WithCancel(ctx)
			a.asked = time.Now()
			running.Go(func() { f.watchAgent(own, a) })
		case !named:
			delete(f.agents, address)
			if a.stop != nil {
				a.stop()
			}
		}
	}
}

// watchAgent listens to an agent until ctx ends. The library asks an agent that is away
// again by itself, after 1 s at first and 30 s in the end. It gives up on one that calls the
// question wrong, or ends it as if we had, and then it is up to us.
func (f *Follower) watchAgent(ctx context.Context, a *agent) {
	client, err := workloadapi.New(ctx, workloadapi.WithAddr(a.address), workloadapi.WithDialOptions(dialing))
	if err != nil { // of a wrong address
		listener{ctx, f, a}.OnX509ContextWatchError(err)
		return
	}
	defer client.Close() // nothing can be lost
	for ctx.Err() == nil {
		_ = client.WatchX509Context(ctx, listener{ctx, f, a}) // which has heard why it ended
		select {
		case <-ctx.Done():
		case <-time.After(f.options.Persist):
		}
	}
}

// listener hears of an agent what is new.
type listener struct {
	ctx      context.Context
	follower *Follower
	agent    *agent
}

// OnX509ContextUpdate implements workloadapi.X509ContextWatcher.
func (l listener) OnX509ContextUpdate(c *workloadapi.X509Context) { l.follower.sent(l.agent, c) }

// OnX509ContextWatchError implements workloadapi.X509ContextWatcher.
func (l listener) OnX509ContextWatchError(err error) {
	if l.ctx.Err() != nil {
		return // nobody wants it any more
	}
	l.follower.mu.Lock()
	defer l.follower.mu.Unlock()
	l.follower.away(l.agent, err, time.Now())
}

// sent puts to use what an agent has sent.
func (f *Follower) sent(a *agent, c *workloadapi.X509Context) {
	changed, now := false, time.Now()
	f.mu.Lock()
	if a.trouble.told != "" {
		f.options.Log.Info("the SPIFFE agent answers again", "agent", a.address)
	}
	a.last, a.trouble = c, trouble{}
	for _, d := range f.followed {
		if d.agent == a {
			changed = f.take(d, svidMaterial(c, d.files), nil, now) || changed
		}
	}
	a.hear()
	f.poke() // what it sent has an end of its own
	f.mu.Unlock()
	if changed {
		f.options.Changed()
	}
}

// hear notes that the agent has said something, with mu held.
func (a *agent) hear() {
	if !a.answer {
		a.answer = true
		close(a.heard)
	}
}

// away notes that an agent gives no certificates, and logs each cause once. It is called
// with mu held.
func (f *Follower) away(a *agent, err error, now time.Time) {
	t := &a.trouble
	if t.fault == nil {
		t.since = now
	}
	t.fault = err
	a.hear()
	kind := status.Code(err).String() // the text changes while an agent goes away
	if t.told == kind || t.told != "" && now.Sub(t.at) < f.options.Persist {
		return
	}
	t.told, t.at = kind, now
	text := "the SPIFFE agent does not answer; what it sent last stays in use until it expires"
	switch {
	case a.last == nil:
		text = "the SPIFFE agent has sent no certificate yet, and without one there is no connection; see whether it runs, and has an entry for the relay"
	case len(Faults(err)) > 0:
		text = "what the SPIFFE agent sends cannot be used; what it sent before stays in use until it expires"
	}
	f.options.Log.Warn(text, "agent", a.address, "err", faultText(err), "since", date(t.since))
	f.options.Observer.CertificatesReloaded(false)
	f.options.Events.Publish(events.Event{Kind: events.CertificatesRefused, Level: events.Warn, Message: fmt.Sprintf("%s (%s): %s", text, a.address, faultText(err))})
}

// silent notes agents that take the question, and have said nothing since. It is called with
// mu held.
func (f *Follower) silent(now time.Time) {
	for _, a := range f.agents {
		if until := a.silentFrom(f.options.Persist); !until.IsZero() && !now.Before(until) {
			f.away(a, fmt.Errorf("it has said nothing for %v", f.options.Persist), now)
		}
	}
}

// silentFrom is when it is noted that the agent has not answered; zero: it has, or was not
// asked.
func (a *agent) silentFrom(persist time.Duration) time.Time {
	if a.answer || a.stop == nil {
		return time.Time{}
	}
	return a.asked.Add(persist)
}

// noSVID: there is no certificate yet, because an agent has sent none.
type noSVID struct {
	key   string // of the configuration, which names the agent
	agent string
	cause error // nil: it has just been asked
}

// Error implements error.
func (e *noSVID) Error() string {
	text := fmt.Sprintf("%s: the agent at %s has sent no certificate yet", e.key, e.agent)
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

// Usable is the material in use. An error says why an agent has sent none yet; of files there
// always is some.
func (d *Followed) Usable() (*Material, error) {
	l := d.now.Load()
	if d.agent == nil || l.material.Pair != nil {
		return l.material, nil
	}
	d.follower.mu.Lock()
	defer d.follower.mu.Unlock()
	return nil, &noSVID{l.files.CertKey(), d.agent.address, d.agent.trouble.fault}
}

// Await is Usable as soon as an agent has answered or failed for the first time, or ctx has
// ended.
func (d *Followed) Await(ctx context.Context) (*Material, error) {
	if d.agent != nil {
		select {
		case <-d.agent.heard:
		case <-ctx.Done():
		}
	}
	return d.Usable()
}
