package admin

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/config"
)

// Lists are paged: limit entries at most, and a token with which the next page is
// asked for.
const (
	defaultLimit = 1000
	maxLimit     = 10000
)

func limitOf(req *http.Request) (int, error) {
	s := req.URL.Query().Get("limit")
	if s == "" {
		return defaultLimit, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxLimit {
		return 0, fmt.Errorf("limit is %q; use a number from 1 to %d", s, maxLimit)
	}
	return n, nil
}

func badRequest(w http.ResponseWriter, err error) {
	http.Error(w, err.Error(), http.StatusBadRequest)
}

// knows refuses other query parameters than these: otherwise a misspelt filter would be
// ignored.
func knows(req *http.Request, known ...string) error {
	if _, err := url.ParseQuery(req.URL.RawQuery); err != nil { // Query leaves out what it cannot read
		return fmt.Errorf("the query cannot be read: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(req.URL.Query())) {
		if !slices.Contains(known, name) {
			return fmt.Errorf("unknown parameter %q; %s knows %s", name, req.URL.Path, strings.Join(known, ", "))
		}
	}
	return nil
}

// meant reports whether a request is about a client: by the client's node, the identity of
// its certificate, and the groups that serve its types. Parameters that the request lacks
// match every client.
func meant(query url.Values, c downstream.Client) bool {
	group := groupOf(query)
	switch {
	case query.Has("node") && c.Node != query.Get("node"):
		return false
	case query.Has("identity") && c.Identity != query.Get("identity"):
		return false
	}
	return !query.Has("group") || slices.ContainsFunc(c.Types, func(t session.ClientType) bool { return t.Group == group })
}

func (h *handler) clients(w http.ResponseWriter, req *http.Request) {
	if err := knows(req, "node", "identity", "group", "limit", "continue"); err != nil {
		badRequest(w, err)
		return
	}
	limit, err := limitOf(req)
	if err != nil {
		badRequest(w, err)
		return
	}
	after := uint64(0)
	if token := req.URL.Query().Get("continue"); token != "" {
		if after, err = strconv.ParseUint(token, 10, 64); err != nil {
			badRequest(w, fmt.Errorf("continue is %q; use what the page before gave", token))
			return
		}
	}
	query := req.URL.Query()
	all := slices.DeleteFunc(h.relay.Clients(), func(c downstream.Client) bool { return !meant(query, c) }) // oldest first: by stream number
	i, _ := slices.BinarySearchFunc(all, after+1, func(c downstream.Client, n uint64) int {
		return int(int64(c.Stream) - int64(n))
	})
	page := all[i:]
	next := ""
	if len(page) > limit {
		page = page[:limit]
		next = strconv.FormatUint(page[limit-1].Stream, 10)
	}
	reply(w, struct {
		Total    int                 `json:"total"`
		Clients  []downstream.Client `json:"clients"`
		Continue string              `json:"continue,omitempty"`
	}{len(all), page, next})
}

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
	Clients  int           `json:"clients"`
	Linger   bool          `json:"lingering,omitempty"`
	Error    string        `json:"error,omitempty"`
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

// cursor is where a page of resources ends.
type cursor struct {
	Group    string        `json:"g"`
	Type     cache.TypeURL `json:"t"`
	Name     string        `json:"n"`
	Wildcard bool          `json:"w"`
}

func (c cursor) token() string {
	data, _ := json.Marshal(c) // strings and a bool
	return base64.RawURLEncoding.EncodeToString(data)
}

// typeOf is the type that a request is about, or "" for all.
func typeOf(req *http.Request) (cache.TypeURL, error) {
	t := req.URL.Query().Get("type")
	if t == "" {
		return "", nil
	}
	url, ok := config.TypeURL(t)
	if !ok {
		return "", fmt.Errorf("type is %q; use a short name such as CDS, or a type URL", t)
	}
	return cache.TypeURL(url), nil
}

// groupOf is the group that a request names. Without a name, as in group=, it is the default one.
func groupOf(query url.Values) string { return cmp.Or(query.Get("group"), defaultGroup) }

// inGroup reports whether a request is about a group; without the parameter it is
// about all groups.
func inGroup(req *http.Request, name string) bool {
	query := req.URL.Query()
	return !query.Has("group") || name == groupOf(query)
}

func (h *handler) resources(w http.ResponseWriter, req *http.Request) {
	query := req.URL.Query()
	if err := knows(req, "type", "group", "limit", "continue"); err != nil {
		badRequest(w, err)
		return
	}
	limit, err := limitOf(req)
	if err != nil {
		badRequest(w, err)
		return
	}
	only, err := typeOf(req)
	if err != nil {
		badRequest(w, err)
		return
	}
	var from cursor
	if token := query.Get("continue"); token != "" {
		data, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil || json.Unmarshal(data, &from) != nil {
			badRequest(w, fmt.Errorf("continue is %q; use what the page before gave", token))
			return
		}
	}
	list, next := h.collect(from, limit, func(name string) bool { return inGroup(req, name) }, only)
	reply(w, struct {
		Resources []entry `json:"resources"`
		Continue  string  `json:"continue,omitempty"`
	}{list, next})
}

// collect is a page of the resources of some groups and of one type, or of all,
// and where the next page begins.
func (h *handler) collect(from cursor, limit int, inGroup func(string) bool, only cache.TypeURL) (list []entry, next string) {
	list = []entry{}
	hubs := h.relay.Groups()
	for _, group := range slices.Sorted(maps.Keys(hubs)) {
		if !inGroup(group) || group < from.Group {
			continue
		}
		for _, t := range hubs[group].Types() {
			if only != "" && t != only || group == from.Group && t < from.Type {
				continue
			}
			var after fanout.Place
			if group == from.Group && t == from.Type {
				after = fanout.Place{Name: from.Name, Wildcard: from.Wildcard}
			}
			page, more := hubs[group].Of(t).Describe(after, limit-len(list))
			secret := hubs[group].Properties(t).Secret
			for _, d := range page {
				list = append(list, describe(group, t, d, secret))
			}
			if more {
				last := list[len(list)-1] // limit is one at least
				return list, cursor{last.Group, last.Type, last.Name, last.Wildcard}.token()
			}
		}
	}
	return list, ""
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
	if d.Resource != nil {
		e.Version, e.Aliases, e.Bytes = d.Resource.Version, d.Resource.Aliases, d.Resource.Size()
	}
	if secret {
		// Whoever can guess at a weak secret could check the guess against a hash,
		// and both versions may be one (RECON-1).
		e.Version, e.Upstream = redact(e.Version), redact(e.Upstream)
	}
	return e
}

// redact hides a value, but not that there is one.
func redact(s string) string {
	if s == "" {
		return ""
	}
	return "[redacted]"
}
