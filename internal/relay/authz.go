package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/internal/policy"
	"github.com/xds-relay/xds-relay/internal/reload"
)

// RulesObserver counts changes of the rules by their result. Its method may be called from any goroutine.
type RulesObserver interface {
	// RulesReloaded: authz.rules_file has changed, and is in force, or has mistakes and changes nothing.
	RulesReloaded(ok bool)
}

// Rules are what clients may read (NODE-15). nil are no rules: clients may read everything, except Secrets
// (NODE-6).
type Rules struct {
	*policy.Policy
	path string
}

// ParseRules reads rules for a configuration; the name is used in messages only. An empty text has none.
func ParseRules(name, text string, c *config.Config) (*Rules, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no rules are no error
	}
	p, err := policy.Parse(name, []byte(text), c, typeTable(c))
	if err != nil {
		return nil, err
	}
	return &Rules{p, name}, nil
}

// LoadRules reads the rules of a configuration. Without authz.rules_file there are none. The errors are those of
// package config.
func LoadRules(c *config.Config) (*Rules, error) {
	if c.Authz.RulesFile == "" {
		return nil, nil //nolint:nilnil // no rules are no error
	}
	p, err := policy.Load(c.Authz.RulesFile, c, typeTable(c))
	switch path := (*fs.PathError)(nil); {
	case errors.As(err, &path):
		return nil, c.Mistake("authz.rules_file", "check the path and the permissions; without the file nobody can be served", "cannot read %q: %v", c.Authz.RulesFile, path.Err)
	case err != nil:
		return nil, err
	}
	return &Rules{p, c.Authz.RulesFile}, nil
}

// match returns the rules that hold for a client, or why it may not be served.
func (r *Rules) match(client session.Peer, node *core.Node) (policy.Grants, *session.End) {
	grants := r.Match(client.Principal, node)
	if len(grants) == 0 {
		return nil, &session.End{Reason: session.Forbidden, Message: "xds-relay: " + r.Denied(client.Principal)}
	}
	return grants, nil
}

// Key is the Grouping's, and the rules that hold for the client.
func (r *Rules) Key(g Grouping, client session.Peer, node *core.Node) (string, *session.End) {
	key, end := g.Key(node)
	if end != nil || r == nil {
		return key, end
	}
	grants, end := r.match(client, node)
	return key + grants.Key(), end
}

// Reads returns what a client may read of a type; nil: everything. If it may not have the type, the Membership says
// what is to be known of that.
func (r *Rules) Reads(client session.Peer, node *core.Node, t cache.TypeURL) (*policy.Reads, session.Membership, *session.End) {
	if r == nil {
		return nil, session.Membership{}, nil
	}
	grants, end := r.match(client, node)
	if end != nil {
		return nil, session.Membership{Own: true}, end
	}
	reads := grants.Of(t)
	if reads == nil { // whatever its group, that costs this type only (NODE-14)
		return nil, session.Membership{Own: true, Rules: grants.Places()}, &session.End{Reason: session.Forbidden, Message: fmt.Sprintf("no rule lets this client read %s", t)}
	}
	return reads, session.Membership{Reads: reads}, nil
}

// rulesSettle is how long a file that was written in place must stay as it is until it counts. Half of a file
// of rules may be a valid one.
const rulesSettle = 500 * time.Millisecond

// authorizer has the rules in force, and follows their file. Its methods may be called from any goroutine.
type authorizer struct {
	log      *slog.Logger
	observer RulesObserver // may be nil
	events   *events.Ring
	poll     bool // do without the system's help in following the file
	now      atomic.Pointer[Rules]

	mu     sync.Mutex // one change at a time
	config *config.Config
	failed bool               // the file had a mistake when it was last read
	stop   context.CancelFunc // ends following the file
}

// use puts rules in force, and follows their file until the next call. changed is called when the file has put
// others in force; run starts a goroutine that ends with the relay.
func (a *authorizer) use(r *Rules, c *config.Config, run func(func(context.Context)), changed func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stop != nil {
		a.stop()
		a.stop = nil
	}
	a.config, a.failed = c, false
	a.now.Store(r)
	if r == nil {
		return
	}
	a.tell(r)
	stopped, stop := context.WithCancel(context.Background())
	a.stop = stop
	run(func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(stopped, cancel)()
		w := reload.NewWatch(r.path, a.log)
		w.What, w.Settle, w.Known, w.Blind = "the rules", rulesSettle, r.Text(), a.poll
		w.Gone = func() { a.read(changed) } // which says what is wrong
		w.Run(ctx, func() { a.read(changed) })
	})
}

// read reads the file again, and reports whether other rules are in force since. With a mistake in it the rules
// stay as they are.
func (a *authorizer) read(changed func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.config.Authz.RulesFile == "" {
		return false
	}
	r, err := LoadRules(a.config)
	if err == nil && !a.failed && bytes.Equal(r.Text(), a.now.Load().Text()) {
		return false // it was read on request before its change was noticed, or the other way round
	}
	a.failed = err != nil
	if a.observer != nil {
		a.observer.RulesReloaded(err == nil)
	}
	if err != nil {
		a.log.Error("authz.rules_file was not reloaded; the rules before stay in force", "path", a.config.Authz.RulesFile, "err", config.OneLine(err))
		a.events.Publish(events.Event{Kind: events.RulesRefused, Level: events.Error, Message: "authz.rules_file: the rules before stay in force: " + config.OneLine(err)})
		return false
	}
	a.now.Store(r)
	a.tell(r)
	a.events.Publish(events.Event{Kind: events.RulesReloaded, Level: events.Info, Count: r.Len(), Message: "authz.rules_file has changed, and is in force"})
	changed()
	return true
}

func (a *authorizer) tell(r *Rules) {
	a.log.Info("rules in force", "path", r.path, "rules", r.Len())
	for _, note := range r.Notes() {
		a.log.Warn(note, "path", r.path)
	}
}
