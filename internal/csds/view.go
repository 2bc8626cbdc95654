package csds

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/readable"
	upsession "github.com/xds-relay/xds-relay/upstream/session"
)

// Relay is what the service reads. Every method may be called at any time and from any goroutine.
type Relay interface {
	// Groups are the Hubs of the groups by their names, and Upstream how these get on with their control planes.
	Groups() map[string]*fanout.Hub
	Upstream() map[string]upsession.State
	// Streams are the numbers of the open client streams, oldest first, and View looks at one of them if its
	// client's node is wanted.
	Streams() []uint64
	View(stream uint64, wanted func(*core.Node) bool, into *downstream.View) bool
}

// defaultGroup is the name of the group without a key.
const defaultGroup = "default"

// ownView composes the view of a client of the control plane: exactly one ClientConfig (CSDS-3).
func (a *answer) ownView(r Relay, b *bodies) error {
	defer a.end()
	hubs := r.Groups()
	name := defaultGroup
	if hubs[name] == nil && len(hubs) == 1 {
		name = slices.Collect(maps.Keys(hubs))[0]
	}
	hub := hubs[name]
	if hub == nil {
		return a.put(&a.open.scope, a.scope(fmt.Sprintf("%d groups; use node_matchers", len(hubs))))
	}
	state := r.Upstream()[name]
	rejected := make(map[cache.TypeURL]map[string]*failure)
	for _, n := range state.Nacks {
		if rejected[n.Type] == nil {
			rejected[n.Type] = make(map[string]*failure)
		}
		rejected[n.Type][n.Name] = &failure{at: n.At, details: n.Details}
	}
	if err := a.put(&a.open.node, a.node(state.Shown)); err != nil {
		return err
	}
	for _, t := range hub.Types() {
		if err := a.ownType(hub, t, rejected[t], b); err != nil {
			return err
		}
	}
	return a.put(&a.open.scope, a.scope(name))
}

// ownType adds the resources of a type, and those that were rejected and are not there.
func (a *answer) ownType(hub *fanout.Hub, t cache.TypeURL, rejected map[string]*failure, b *bodies) error {
	secret := hub.Properties(t).Secret
	list, typ := a.list[:0], a.typ(t)
	for _, d := range once(hub.Of(t).DescribeAll()) {
		g := own(d, rejected[d.Name])
		g.typ = typ
		delete(rejected, d.Name)
		if secret {
			g.version = readable.Redact(g.version)
		} else {
			g.body = b.of(d.Resource)
		}
		if list = a.generic(list, &g); len(list) > a.memory {
			return errTooLarge
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rejected)) {
		g := generic{typ: typ, name: name, client: clientNacked, failure: rejected[name]}
		list = a.generic(list, &g)
	}
	a.list = list
	return a.add(list)
}

// once leaves one of the two lanes on which a name may be: the one that upstream has sent it on. It takes the list.
func once(all []fanout.Description) []fanout.Description {
	list := all[:0]
	for _, d := range all {
		last := len(list) - 1
		switch {
		case last < 0 || list[last].Name != d.Name:
			list = append(list, d)
		case list[last].Upstream == "":
			list[last] = d
		}
	}
	return list
}

// own is one resource as the relay has it from the control plane.
func own(d fanout.Description, rejected *failure) generic {
	g := generic{name: d.Name, version: d.Upstream}
	if !d.ChangedBefore {
		g.updated = d.Changed
	}
	switch {
	case rejected != nil:
		g.client, g.failure = clientNacked, rejected
	case d.State == cache.Absent:
		g.client = clientDoesNotExist
	case d.TimedOut:
		g.client, g.failure = clientTimeout, &failure{details: d.Error}
	case d.Error != "":
		g.client, g.failure = clientReceivedError, &failure{details: d.Error}
	case d.State == cache.Present:
		g.client = clientAcked
	default:
		g.client = clientRequested
	}
	return g
}

// clientViews composes one ClientConfig for each stream whose client's node is wanted (CSDS-4).
func (a *answer) clientViews(ctx context.Context, r Relay, wanted test[*core.Node], b *bodies) error {
	hubs := r.Groups()
	var v downstream.View
	for _, id := range r.Streams() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !r.View(id, wanted, &v) {
			continue
		}
		if err := a.put(&a.open.node, a.node(v.Node)); err != nil {
			return err
		}
		for i := range v.Types {
			if err := a.clientType(&v.Types[i], hubs[v.Types[i].Group], b); err != nil {
				return err
			}
		}
		a.end()
	}
	return nil
}

// clientType adds the resources of one type of a client. The group may be gone.
func (a *answer) clientType(t *downstream.TypeView, hub *fanout.Hub, b *bodies) error {
	secret := hub == nil || hub.Properties(t.Type).Secret
	if t.Whole == nil {
		list, err := a.resources(t, t.Names, secret, b)
		if err != nil {
			return err
		}
		return a.add(list)
	}
	kept, known := a.whole[t.Whole] // most clients have the same
	if !known {
		list, err := a.resources(t, namesOf(t.Whole), secret, b)
		if err == nil {
			kept, err = a.keep(list)
		}
		if err != nil {
			return err
		}
		a.whole[t.Whole] = kept
	}
	return a.addKept(kept)
}

// namesOf are the resources of a set that a client has accepted all of.
func namesOf(set *fanout.News) []session.ClientName {
	names := make([]session.ClientName, 0, len(set.Resources))
	for _, r := range set.Resources {
		names = append(names, session.ClientName{Name: r.Name, Step: session.StepSynced, Sent: r.Version, Now: r.Version, Resource: r})
	}
	slices.SortFunc(names, func(a, b session.ClientName) int { return strings.Compare(a.Name, b.Name) })
	return names
}

// resources lists the resources of one type of a client. The list is valid until the next one is made.
func (a *answer) resources(t *downstream.TypeView, names []session.ClientName, secret bool, b *bodies) (list []byte, err error) {
	list, typ := a.list[:0], a.typ(t.Type)
	for i := range names {
		n := &names[i]
		g := ofClient(t, n)
		g.typ = typ
		if secret {
			g.version = readable.Redact(g.version)
		} else if n.Sent == n.Now {
			g.body = b.of(n.Resource)
		}
		if list = a.generic(list, &g); len(list) > a.memory {
			return nil, errTooLarge
		}
	}
	a.list = list
	return list, nil
}

// ofClient is one resource as a client has it.
func ofClient(t *downstream.TypeView, n *session.ClientName) generic {
	g := generic{name: n.Name, version: n.Sent, config: statusOf(t, n.Step)}
	switch {
	case t.Refused != "":
		g.config, g.failure = configNotSent, &failure{details: t.Refused}
	case g.config == configError:
		g.failure = &failure{at: t.NackedAt, details: t.Nack}
	}
	return g
}

// statusOf says how far the client is with a resource, in the words of CSDS.
func statusOf(t *downstream.TypeView, s session.Step) configStatus {
	switch {
	case s == session.StepSynced:
		return configSynced
	case s == session.StepRejected:
		return configError
	case t.Nonce == "" || s == session.StepAwaited:
		return configNotSent
	case s == session.StepUnknown:
		return configUnknown
	}
	return configStale
}
