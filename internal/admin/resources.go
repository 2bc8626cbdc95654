package admin

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/readable"
)

// entry is one name on one lane of one group. It has no body, and so no secret.
type entry struct {
	Group    string        `json:"group,omitempty"`
	Type     cache.TypeURL `json:"type"`
	Name     string        `json:"name"`
	Wildcard bool          `json:"wildcard"`
	State    string        `json:"state"`
	Cause    string        `json:"cause,omitempty"`
	Version  string        `json:"version,omitempty"`
	Upstream string        `json:"upstream_version,omitempty"`
	Aliases  []string      `json:"aliases,omitempty"`
	Bytes    int           `json:"bytes,omitempty"`
	// ChangedAt is when the response came that made it what it is. What changed before the relay's latest
	// 4,096 responses of the group has ChangedBefore instead.
	ChangedAt     *time.Time `json:"changed_at,omitempty"`
	ChangedBefore *time.Time `json:"changed_before,omitempty"`
	// Previous is its version before that, if it is remembered.
	Previous string `json:"previous_version,omitempty"`
	Clients  int    `json:"clients"`
	// Holders are the versions that clients have, where one name is asked for.
	Holders []downstream.Holder `json:"holders,omitempty"`
	Linger  bool                `json:"lingering,omitempty"`
	Error   string              `json:"error,omitempty"`
	// Doubt: the name may exist although there is no copy; clients that came with one keep it
	// (ERR-10, MISS-4).
	Doubt bool `json:"doubt,omitempty"`
	// Held: upstream has removed it, and the guard holds the removal back until then
	// (H-22).
	Held *time.Time `json:"removal_held_until,omitempty"`
	// Expires is when its TTL ends, unless upstream renews it (TTL-1).
	Expires *time.Time `json:"expires,omitempty"`
}

var (
	states = map[cache.State]string{cache.Unknown: "unknown", cache.Present: "present", cache.Absent: "absent"}
	causes = map[cache.Cause]string{cache.Removed: "removed", cache.NotFoundError: "not_found", cache.Timer: "timer", cache.Sweep: "sweep", cache.TTLExpired: "ttl"}
)

// resourceFilter says which resources a request is about.
type resourceFilter struct {
	groups  func(name string) bool
	typ     cache.TypeURL   // "": all
	prefix  string          // of the name
	name    string          // exactly this one; "": all
	among   map[string]bool // of these names; nil: all
	holders bool            // count the clients that have each version
}

func (f *resourceFilter) named(name string) bool {
	if f.among != nil && !f.among[name] {
		return false
	}
	return strings.HasPrefix(name, f.prefix) && (f.name == "" || f.name == name)
}

func (h *handler) resources(w http.ResponseWriter, req *http.Request) {
	query := req.URL.Query()
	page, err := pagingOf(req, "group", "name", "prefix", "summary")
	if err != nil {
		badRequest(w, err)
		return
	}
	filter := resourceFilter{
		groups: func(name string) bool { return inGroup(req, name) },
		typ:    page.typ, prefix: query.Get("prefix"), name: query.Get("name"), holders: query.Has("name"),
	}
	if query.Has("summary") {
		reply(w, h.resourceSummary(&filter))
		return
	}
	list, next := h.collect(page.from, page.limit, &filter)
	replyPage(w, struct {
		Resources []entry `json:"resources"`
		Continue  string  `json:"continue,omitempty"`
	}{list, next}, page.limit)
}

// collect is a page of resources, and where the next page begins.
func (h *handler) collect(from cursor, limit int, filter *resourceFilter) (list []entry, next string) {
	list = []entry{}
	hubs := h.relay.Groups()
	for _, group := range slices.Sorted(maps.Keys(hubs)) {
		if !filter.groups(group) || group < from.Group {
			continue
		}
		hub := hubs[group]
		for _, t := range hub.Types() {
			if filter.typ != "" && t != filter.typ || group == from.Group && t < from.Type {
				continue
			}
			var after fanout.Place
			if group == from.Group && t == from.Type {
				after = fanout.Place{Name: from.Name, Wildcard: from.Wildcard}
			}
			page, more := hub.Of(t).Describe(after, limit-len(list), filter.named)
			for _, d := range page {
				list = append(list, h.entry(group, hub, t, d, filter.holders))
			}
			if more {
				last := list[len(list)-1] // limit is one at least
				return list, cursor{last.Group, last.Type, last.Name, last.Wildcard}.token()
			}
		}
	}
	return list, ""
}

// entry describes one name on one lane.
func (h *handler) entry(group string, hub *fanout.Hub, t cache.TypeURL, d fanout.Description, holders bool) entry {
	secret := hub.Properties(t).Secret
	e := describe(group, t, d, secret)
	if holders {
		e.Holders = h.relay.Holders(hub, t, d.Name)
		for i := range e.Holders {
			if secret {
				e.Holders[i].Version = readable.Redact(e.Holders[i].Version)
			}
		}
	}
	return e
}

// typeSummary counts the resources of one type of one group.
type typeSummary struct {
	Group     string        `json:"group"`
	Type      cache.TypeURL `json:"type"`
	Resources int           `json:"resources"`
	Bytes     int           `json:"bytes"`
	Absent    int           `json:"absent"`
	Held      int           `json:"removals_held"`
	Wildcards int           `json:"wildcard_clients"`
	Named     int           `json:"named_subscriptions"`
}

// resourceSummary counts the resources of each type and group. Names are not told apart.
func (h *handler) resourceSummary(filter *resourceFilter) (sums []typeSummary) {
	hubs := h.relay.Groups()
	for _, group := range slices.Sorted(maps.Keys(hubs)) {
		if !filter.groups(group) {
			continue
		}
		for _, s := range hubs[group].Summarize() {
			if filter.typ != "" && s.Type != filter.typ {
				continue
			}
			absent := 0
			for _, n := range s.Absent {
				absent += n
			}
			sums = append(sums, typeSummary{group, s.Type, s.Resources, s.Bytes, absent, s.Held, s.Wildcards, s.Named})
		}
	}
	return sums
}

func describe(group string, t cache.TypeURL, d fanout.Description, secret bool) entry {
	e := entry{
		Group: group, Type: t, Name: d.Name, Wildcard: d.Wildcard,
		State: states[d.State], Cause: causes[d.Cause], Upstream: d.Upstream,
		Clients: d.Clients, Linger: d.Lingering, Error: d.Error, Doubt: d.Doubt,
	}
	if !d.Held.IsZero() {
		e.Held = &d.Held
	}
	if !d.Ends.IsZero() {
		e.Expires = &d.Ends
	}
	switch {
	case d.Changed.IsZero():
	case d.ChangedBefore:
		e.ChangedBefore = &d.Changed
	default:
		e.ChangedAt = &d.Changed
	}
	if d.Former != nil {
		e.Previous = d.Former.Version
	}
	if d.Resource != nil {
		e.Version, e.Aliases, e.Bytes = d.Resource.Version, d.Resource.Aliases, d.Resource.Size()
	}
	if secret {
		// Whoever can guess at a weak secret could check the guess against a hash,
		// and both versions may be one (RECON-1).
		e.Version, e.Upstream, e.Previous = readable.Redact(e.Version), readable.Redact(e.Upstream), readable.Redact(e.Previous)
	}
	return e
}
