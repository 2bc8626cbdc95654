package csds

import (
	"context"
	"fmt"
	"maps"
	"slices"

	admin "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	status "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"

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
		return a.add(text(nil, fieldScope, fmt.Sprintf("%d groups; use node_matchers", len(hubs))))
	}
	state := r.Upstream()[name]
	rejected := make(map[cache.TypeURL]map[string]*failure)
	for _, n := range state.Nacks {
		if rejected[n.Type] == nil {
			rejected[n.Type] = make(map[string]*failure)
		}
		rejected[n.Type][n.Name] = &failure{at: n.At, details: n.Details}
	}
	if err := a.add(message(nil, fieldNode, state.Shown)); err != nil {
		return err
	}
	for _, t := range hub.Types() {
		if err := a.ownType(hub, t, rejected[t], b); err != nil {
			return err
		}
	}
	return a.add(text(nil, fieldScope, name))
}

// ownType adds the resources of a type, and those that were rejected and are not there.
func (a *answer) ownType(hub *fanout.Hub, t cache.TypeURL, rejected map[string]*failure, b *bodies) error {
	secret := hub.Properties(t).Secret
	list, typ := a.list[:0], typeField(t)
	for _, d := range once(hub.Of(t).DescribeAll()) {
		g := own(d, rejected[d.Name])
		g.typ = typ
		delete(rejected, d.Name)
		if secret {
			g.version = readable.Redact(g.version)
		} else {
			g.body = b.of(d.Resource)
		}
		if list, a.scratch = g.append(list, a.scratch); len(list) > a.memory {
			return errTooLarge
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rejected)) {
		g := generic{typ: typ, name: name, client: admin.ClientResourceStatus_NACKED, failure: rejected[name]}
		list, a.scratch = g.append(list, a.scratch)
	}
	a.list = list
	return a.add(list)
}

// once leaves one of the two lanes on which a name may be: the one that upstream has sent it on.
func once(all []fanout.Description) (list []fanout.Description) {
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
		g.client, g.failure = admin.ClientResourceStatus_NACKED, rejected
	case d.State == cache.Absent:
		g.client = admin.ClientResourceStatus_DOES_NOT_EXIST
	case d.TimedOut:
		g.client, g.failure = admin.ClientResourceStatus_TIMEOUT, &failure{details: d.Error}
	case d.Error != "":
		g.client, g.failure = admin.ClientResourceStatus_RECEIVED_ERROR, &failure{details: d.Error}
	case d.State == cache.Present:
		g.client = admin.ClientResourceStatus_ACKED
	default:
		g.client = admin.ClientResourceStatus_REQUESTED
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
		if err := a.add(message(nil, fieldNode, v.Node)); err != nil {
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
	list, typ := a.list[:0], typeField(t.Type)
	for i := range t.Names {
		n := &t.Names[i]
		g := ofClient(t, n)
		g.typ = typ
		if secret {
			g.version = readable.Redact(g.version)
		} else if n.Held == n.Now {
			g.body = b.of(n.Resource)
		}
		if list, a.scratch = g.append(list, a.scratch); len(list) > a.memory {
			return errTooLarge
		}
	}
	a.list = list
	return a.add(list)
}

// ofClient is one resource as a client has it.
func ofClient(t *downstream.TypeView, n *session.ClientName) generic {
	g := generic{name: n.Name, version: n.Held, config: statusOf(t, n.Step)}
	switch {
	case t.Refused != "":
		g.config, g.failure = status.ConfigStatus_NOT_SENT, &failure{details: t.Refused}
	case g.config == status.ConfigStatus_ERROR:
		g.failure = &failure{at: t.NackedAt, details: t.Nack}
	}
	return g
}

// statusOf says how far the client is with a resource, in the words of CSDS.
func statusOf(t *downstream.TypeView, s session.Step) status.ConfigStatus {
	switch {
	case s == session.StepSynced:
		return status.ConfigStatus_SYNCED
	case s == session.StepRejected:
		return status.ConfigStatus_ERROR
	case t.Nonce == "" || s == session.StepAwaited:
		return status.ConfigStatus_NOT_SENT
	case s == session.StepUnknown:
		return status.ConfigStatus_UNKNOWN
	}
	return status.ConfigStatus_STALE
}
