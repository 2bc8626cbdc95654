package admin

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/console"
	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/internal/readable"
)

// clientPageData is one client.
type clientDetail struct {
	downstream.Client
	State  ClientState
	Behind int
	Types  []typeDetail
	// Diffs are the resources in which it differs from the relay. MoreDiffs: there are others. DiffsWait: too many
	// others look at differences now.
	Diffs                []diffDetail
	MoreDiffs, DiffsWait bool
	Names                []nameRow
	OfType               string // whose names are listed
	All                  bool   // also those that are in step
	Next                 string // the next page of names
	Events               []events.Event
}

// typeDetail is one type of it.
type typeDetail struct {
	session.ClientType
	State  ClientState
	Behind int
	Reject string // for how long, or empty
}

// Here is the list of the names of a type.
func (t typeDetail) Here() string {
	return "?type=" + url.QueryEscape(shortType(t.Type)) + "&names=all"
}

// Why says which reason a type that is out of step has, of those that its last rejection does not tell; empty: none.
func (t typeDetail) Why() string {
	switch {
	case t.State == Refused:
		return "refused"
	case t.State == NotSent:
		return "nothing"
	case t.State == Stale && t.Sync == session.SyncStates()[1]:
		return "unsent"
	case t.State == Stale:
		return "unanswered"
	}
	return ""
}

// Unresolved is how many names the control plane has not answered.
func (t typeDetail) Unresolved() int { return t.ClientType.Names - t.Resolved }

// More is how many names of a NACK are not listed.
func (t typeDetail) More() int { return t.Nacked - len(t.NackedNames) }

// nameRow is one resource of a client, and which version of it the client has.
type nameRow struct {
	clientName
	Has has
}

// Mark is how far the client is with it.
func (c clientName) Mark() mark { return namedMark(c.ClientName) }

// diffDetail is one resource in which a client differs from the relay, field by field.
type diffDetail struct {
	difference
	Changes []console.Change
	More    int    // changes that are not listed
	Omitted string // why there is no comparison
}

const (
	fewDiffs    = 10
	fewChanges  = 60
	longValue   = 400 // characters of a value
	pageNames   = 50
	clientsOwn  = 10 // events of the client
	lookEvents  = 1000
	notCompared = "there is nothing to compare: "
)

func (u *ui) clientView(w http.ResponseWriter, req *http.Request) {
	if !u.asks(w, req, "type", "names", "after") {
		return
	}
	id, err := strconv.ParseUint(req.PathValue("stream"), 10, 64)
	if err != nil {
		u.fail(w, http.StatusBadRequest, "/ui/clients", "All clients", "%q is no stream; the list of clients links to each.", req.PathValue("stream"))
		return
	}
	only, err := typeOf(req)
	if err != nil {
		u.fail(w, http.StatusBadRequest, "/ui/clients/"+strconv.FormatUint(id, 10), "This client", "%v", err)
		return
	}
	if names := req.URL.Query().Get("names"); names != "" && names != "all" {
		u.fail(w, http.StatusBadRequest, "/ui/clients/"+strconv.FormatUint(id, 10), "This client", "names is %q; use all, or leave it out for those that are not in step", names)
		return
	}
	moves := u.metrics.observed.moves.Load()
	c, ok := u.relay.Client(id)
	if !ok {
		u.fail(w, http.StatusNotFound, "/ui/clients", "All clients", "There is no stream %d. It may have ended: a client that connects again has another number.", id)
		return
	}
	d := u.detail(c)
	u.compare(&d)
	if only != "" || req.URL.Query().Has("names") {
		u.names(&d, only, req.URL.Query())
	}
	u.show(w, "client", "Client "+console.Short(c.Node, 80), "clients", moves, d)
}

func (u *ui) detail(c downstream.Client) clientDetail {
	d := clientDetail{Client: c}
	for i := range c.Types {
		t := &c.Types[i]
		of := typeDetail{ClientType: *t, State: StateOf(t), Behind: BehindOf(t)}
		d.Types = append(d.Types, of)
		d.State = max(d.State, of.State)
		d.Behind += of.Behind
	}
	slices.SortFunc(d.Types, func(a, b typeDetail) int { return a.Type.Rank() - b.Type.Rank() })
	for _, e := range slices.Backward(u.ring.List(0, nil, lookEvents).Events) {
		if e.Client != nil && e.Client.Stream == c.Stream && len(d.Events) < clientsOwn {
			d.Events = append(d.Events, e)
		}
	}
	return d
}

// compare adds what differs, unless all is in step.
func (u *ui) compare(d *clientDetail) {
	if d.State == InStep {
		return
	}
	select {
	case u.diffs <- struct{}{}:
		defer func() { <-u.diffs }()
	default:
		d.DiffsWait = true
		return
	}
	set, err := readable.Load()
	if err != nil {
		u.log.Error("bug: the descriptors cannot be read", "err", err)
		return
	}
	differ := differ{relay: u.relay, set: set, room: maxBodies, limit: fewDiffs}
	for _, t := range d.Types {
		if t.State != InStep && t.Refused == "" {
			differ.look(d.Stream, t.ClientType)
		}
	}
	for _, f := range differ.found {
		d.Diffs = append(d.Diffs, diffOf(f))
	}
	d.MoreDiffs = differ.more
}

// diffOf compares both bodies, as far as they are known.
func diffOf(f difference) diffDetail {
	d := diffDetail{difference: f}
	switch {
	case f.Relay == nil && f.Client == nil:
		d.Omitted = "the relay has nothing of it, or it is a Secret, whose content is not shown"
		return d
	case f.Relay != nil && f.Relay.Omitted != "":
		d.Omitted = notCompared + f.Relay.Omitted
		return d
	case f.Client != nil && f.Client.Omitted != "":
		d.Omitted = notCompared + f.Client.Omitted
		return d
	}
	changes, err := console.Differences(bodyOf(f.Client), bodyOf(f.Relay))
	if err != nil {
		d.Omitted = notCompared + "a body cannot be read"
		return d
	}
	if len(changes) > fewChanges {
		d.More, changes = len(changes)-fewChanges, changes[:fewChanges]
	}
	for _, c := range changes {
		d.Changes = append(d.Changes, console.Change{Path: console.Clean(c.Path), Old: console.Short(c.Old, longValue), New: console.Short(c.New, longValue)})
	}
	return d
}

// bodyOf is a body as JSON; without one it has no fields.
func bodyOf(b *body) []byte {
	if b == nil || len(b.Body) == 0 {
		return []byte("{}")
	}
	return b.Body
}

// names adds a page of the client's resources of a type, or of all.
func (u *ui) names(d *clientDetail, only cache.TypeURL, query url.Values) {
	page := paging{limit: pageNames, typ: only}
	d.All = true
	if only != "" {
		d.OfType = shortType(only)
	}
	if token := query.Get("after"); token != "" {
		from, err := cursorOf(token)
		if err == nil {
			page.from = from
		}
	}
	names, next := u.clientNames(d.Client, page)
	before := u.before(d.Client, names)
	for _, n := range names {
		d.Names = append(d.Names, nameRow{n, hasOf(n.ClientName, before[n.Type][n.Name])})
	}
	if next != "" {
		q := url.Values{"names": {"all"}, "after": {next}}
		if only != "" {
			q.Set("type", query.Get("type"))
		}
		d.Next = "?" + q.Encode()
	}
}

// before are the versions that the relay had before, of names that the client has not accepted as they are.
func (u *ui) before(c downstream.Client, names []clientName) map[cache.TypeURL]map[string]string {
	found := make(map[cache.TypeURL]map[string]string)
	hubs := u.relay.Groups()
	for _, t := range c.Types {
		hub, of := hubs[t.Group], make(map[string]bool)
		for _, n := range names {
			if n.Type == t.Type && n.Step != session.StepSynced {
				of[n.Name] = true
			}
		}
		if hub == nil || len(of) == 0 {
			continue
		}
		found[t.Type] = make(map[string]string)
		for name, v := range bodiesOf(hub, t.Type, of) {
			if v.former != nil {
				found[t.Type][name] = v.former.Version
			}
			if hub.Properties(t.Type).Secret {
				found[t.Type][name] = readable.Redact(found[t.Type][name])
			}
		}
	}
	return found
}

// Changed is when a resource of a client changed; zero: it is not known.
func (c clientName) Changed() time.Time {
	if c.ChangedAt == nil {
		return time.Time{}
	}
	return *c.ChangedAt
}
