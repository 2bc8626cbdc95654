package admin

import (
	"fmt"
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
	"github.com/xds-relay/xds-relay/internal/readable"
)

// clientFilter says which clients a request is about. Parameters that the request lacks match every client.
type clientFilter struct {
	query  url.Values
	group  string
	typ    cache.TypeURL // "": all
	states []session.Sync
}

var clientParameters = []string{"node", "prefix", "identity", "group", "type", "sync"}

func clientFilterOf(req *http.Request) (f clientFilter, err error) {
	f.query = req.URL.Query()
	f.group = groupOf(f.query)
	if f.typ, err = typeOf(req); err != nil {
		return f, err
	}
	if !f.query.Has("sync") {
		return f, nil
	}
	for _, s := range strings.Split(f.query.Get("sync"), ",") {
		if !slices.Contains(session.SyncStates(), session.Sync(s)) {
			return f, fmt.Errorf("sync is %q; use some of %v, with a comma between them", f.query.Get("sync"), session.SyncStates())
		}
		f.states = append(f.states, session.Sync(s))
	}
	return f, nil
}

// take reports whether the request is about a client: by the client's node, or how that begins, the identity of
// its certificate, the groups that serve its types, and how far it is. With a type, only that type counts and
// is left in the client.
func (f *clientFilter) take(c *downstream.Client) bool {
	q := f.query
	switch {
	case q.Has("node") && c.Node != q.Get("node"):
		return false
	case !strings.HasPrefix(c.Node, q.Get("prefix")):
		return false
	case q.Has("identity") && c.Identity != q.Get("identity"):
		return false
	}
	if f.typ != "" {
		c.Types = slices.DeleteFunc(c.Types, func(t session.ClientType) bool { return t.Type != f.typ })
		if len(c.Types) == 0 {
			return false
		}
		c.Sync = c.Types[0].Sync
	}
	if f.states != nil && !slices.Contains(f.states, c.Sync) {
		return false
	}
	return !q.Has("group") || slices.ContainsFunc(c.Types, func(t session.ClientType) bool { return t.Group == f.group })
}

// of leaves those that the request is about, oldest first, which is by stream number.
func (f *clientFilter) of(clients []downstream.Client) []downstream.Client {
	taken := clients[:0]
	for i := range clients {
		if c := &clients[i]; f.take(c) {
			taken = append(taken, *c)
		}
	}
	return taken
}

func (h *handler) clients(w http.ResponseWriter, req *http.Request) {
	if err := knows(req, append(clientParameters, "summary", "limit", "continue")...); err != nil {
		badRequest(w, err)
		return
	}
	limit, err := limitOf(req)
	if err != nil {
		badRequest(w, err)
		return
	}
	filter, err := clientFilterOf(req)
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
	all := filter.of(h.relay.Clients())
	if req.URL.Query().Has("summary") {
		reply(w, summarize(all))
		return
	}
	i, _ := slices.BinarySearchFunc(all, after+1, func(c downstream.Client, n uint64) int {
		return int(int64(c.Stream) - int64(n))
	})
	page := all[i:]
	next := ""
	if len(page) > limit {
		page = page[:limit]
		next = strconv.FormatUint(page[limit-1].Stream, 10)
	}
	answer := clientPage{len(all), page, next}
	if limit > defaultLimit { // as replyPage
		answer.stream(w)
		return
	}
	reply(w, answer)
}

// clientSummary counts clients: each by the worst of its types, by each of its types, and by protocol.
type clientSummary struct {
	Total     int                             `json:"total"`
	Sync      map[session.Sync]int            `json:"sync"`
	Types     map[string]map[session.Sync]int `json:"types"`
	Protocols map[string]int                  `json:"protocols"`
}

func summarize(clients []downstream.Client) clientSummary {
	sum := clientSummary{len(clients), make(map[session.Sync]int), make(map[string]map[session.Sync]int), make(map[string]int)}
	for _, c := range clients {
		sum.Sync[c.Sync]++
		sum.Protocols[c.Protocol]++
		for _, t := range c.Types {
			of := sum.Types[t.Type.Short()]
			if of == nil {
				of = make(map[session.Sync]int)
				sum.Types[t.Type.Short()] = of
			}
			of[t.Sync]++
		}
	}
	return sum
}

// clientName is one resource of a client.
type clientName struct {
	Type cache.TypeURL `json:"type"`
	session.ClientName
	ChangedAt *time.Time `json:"changed_at,omitempty"`
}

// client answers with one client, and with the resources that it has or asks for.
func (h *handler) client(w http.ResponseWriter, req *http.Request) {
	page, err := pagingOf(req)
	if err != nil {
		badRequest(w, err)
		return
	}
	c, ok := h.streamOf(w, req)
	if !ok {
		return
	}
	names, next := h.clientNames(c, page)
	replyPage(w, struct {
		downstream.Client
		Names    []clientName `json:"names"`
		Continue string       `json:"continue,omitempty"`
	}{c, names, next}, page.limit)
}

// clientNames is a page of a client's resources, and where the next one begins.
func (h *handler) clientNames(c downstream.Client, page paging) (names []clientName, next string) {
	names = []clientName{}
	hubs := h.relay.Groups()
	types := slices.Clone(c.Types)
	slices.SortFunc(types, func(a, b session.ClientType) int { return strings.Compare(string(a.Type), string(b.Type)) })
	for _, t := range types {
		if page.typ != "" && t.Type != page.typ || t.Type < page.from.Type {
			continue
		}
		after := ""
		if t.Type == page.from.Type {
			after = page.from.Name
		}
		found, more := h.relay.ClientNames(c.Stream, t.Type, after, page.limit-len(names))
		for _, n := range found {
			names = append(names, clientNameOf(hubs[t.Group], t.Type, n))
		}
		if more && len(names) > 0 {
			last := names[len(names)-1]
			return names, cursor{Type: last.Type, Name: last.Name}.token()
		}
	}
	return names, ""
}

// clientNameOf adds when a resource changed, and redacts versions of secrets. The group may be gone.
func clientNameOf(hub *fanout.Hub, t cache.TypeURL, n session.ClientName) clientName {
	c := clientName{Type: t, ClientName: n}
	if hub == nil || hub.Properties(t).Secret {
		c.Sent, c.Now = readable.Redact(c.Sent), readable.Redact(c.Now)
	}
	if hub == nil || n.Changed == 0 {
		return c
	}
	if at, exact := hub.Arrived(n.Changed); exact {
		c.ChangedAt = &at
	}
	return c
}
