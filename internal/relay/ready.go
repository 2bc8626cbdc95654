package relay

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/health"
)

// readiness is true once the relay listens and each of ready_types is complete; the relay
// itself subscribes to these types, in the default group. Losing the control plane changes
// nothing. While the certificate of the listeners has expired, or an agent has sent none
// yet, the relay is not ready, since it can serve no client (ERR-14).
type readiness struct {
	relay *Relay
	subs  []*fanout.Subscription
	types []cache.TypeURL

	mu       sync.Mutex
	listens  bool
	stopping bool
	draining bool // by an operator
	missing  []string
	once     bool // it was ready
}

func (r *Relay) watchReadiness(types []cache.TypeURL) *readiness {
	w := &readiness{relay: r, types: types}
	if len(types) == 0 {
		return w
	}
	wake := make(chan struct{}, 1)
	mailbox := fanout.NewSubscriber(func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	for _, t := range types {
		p := Place{provider: r.groups.provider(t)}
		r.groups.mu.Lock()
		gr, _, _, end := r.groups.join(p, session.Peer{}, r.groups.staticNode(p.provider))
		r.groups.mu.Unlock()
		if end != nil {
			return w // groups.max is at least one, and this is the first
		}
		s := gr.hub.Subscribe(t, mailbox)
		s.Delta([]string{fanout.Wildcard}, nil, time.Now())
		w.subs = append(w.subs, s)
	}
	w.look()
	r.groups.run(func(ctx context.Context) {
		for more := true; ; {
			mailbox.Take() // before looking, so that later changes wake us
			more = more && w.look()
			select {
			case <-ctx.Done():
				return
			case <-wake:
			}
		}
	})
	return w
}

// look notes which types are not complete; it reports whether any is.
func (w *readiness) look() (more bool) {
	var missing []string
	for i, s := range w.subs {
		s.Read(func(v fanout.View) {
			v.Marks()
			if v.Set().Resolution(false) == fanout.Pending {
				missing = append(missing, w.types[i].Name())
			}
		})
	}
	w.change(func() { w.missing = missing })
	return len(missing) > 0
}

// listening: the relay takes in clients from now on.
func (w *readiness) listening() { w.change(func() { w.listens = true }) }

// certificatesChanged: the certificate that clients see has been replaced, or has
// expired.
func (w *readiness) certificatesChanged() { w.change(func() {}) }

func (w *readiness) stop() { w.change(func() { w.stopping = true }) }

// drains: an operator begins to drain the relay, or ends that.
func (w *readiness) drains(draining bool) { w.change(func() { w.draining = draining }) }

// change makes a change and notifies health checks in one step, so that two
// changes cannot be notified in the wrong order.
func (w *readiness) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	ready, _ := health.Verdict(w.checks())
	w.once = w.once || ready
	w.relay.server.SetReady(ready)
}

// was reports whether it was ready at least once.
func (w *readiness) was() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.once
}

// unfit says that no client can connect, because of the certificate of the listeners;
// empty: it is not so.
func (w *readiness) unfit() string {
	serving := w.relay.serving.Load()
	if serving == nil {
		return ""
	}
	if _, err := serving.Usable(); err != nil {
		return err.Error()
	}
	at, ok := serving.Expired(time.Now())
	if !ok {
		return ""
	}
	return fmt.Sprintf("the certificate of %s has expired: it was valid until %s", serving.Files().CertKey(), at.UTC().Format(time.RFC3339))
}

func (w *readiness) state() []health.Check {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.checks()
}

// checks is called with mu held. The relay is ready if all of them hold; what comes first
// is said where there is room for one reason.
func (w *readiness) checks() []health.Check {
	unfit, leaving := w.unfit(), "shutting down"
	if !w.stopping {
		leaving = "an operator drains the relay; POST /undrain, or xds-relay drain --undo, ends that"
	}
	return []health.Check{
		check("not_draining", !w.stopping && !w.draining, leaving),
		check("listening", w.listens, "not listening yet"),
		check("certificate", unfit == "", unfit),
		check("ready_types", len(w.missing) == 0, "waiting for upstream to answer for "+strings.Join(w.missing, ", ")),
	}
}

func check(name string, ok bool, why string) health.Check {
	if ok {
		why = ""
	}
	return health.Check{Name: name, OK: ok, Why: why}
}
