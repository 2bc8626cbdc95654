package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/readable"
)

// resourceList is what the relay has of each type, and a page of the names of one.
type resourceList struct {
	Types  []typeSummary
	Type   cache.TypeURL // whose names are listed; empty: none
	Group  string
	Prefix string
	Rows   []entry
	Next   string
}

// resourceDetail is one name, and which clients have which version of it.
type resourceDetail struct {
	Type    cache.TypeURL
	Name    string
	Entries []entry
	Held    []holding // those that do not have what the relay has
	More    bool      // there are others
	InStep  int
	Asking  int
}

// holding is a client that has another version, or none.
type holding struct {
	Stream  uint64
	Node    string
	Step    session.Step
	Version string
}

// fewHoldings bounds the clients that are listed of a resource.
const fewHoldings = 25

func (u *ui) resourcesView(w http.ResponseWriter, req *http.Request) {
	if !u.asks(w, req, "type", "group", "prefix", "after") {
		return
	}
	query := req.URL.Query()
	typ, err := typeOf(req)
	d := resourceList{Type: typ, Group: query.Get("group"), Prefix: query.Get("prefix")}
	var from cursor
	if token := query.Get("after"); err == nil && token != "" {
		from, err = cursorOf(token)
	}
	if err != nil {
		u.fail(w, http.StatusBadRequest, "/ui/resources", "All resources", "%v", err)
		return
	}
	moves := u.metrics.observed.moves.Load()
	d.Types = u.resourceSummary(&resourceFilter{groups: func(string) bool { return true }})
	slices.SortStableFunc(d.Types, func(a, b typeSummary) int { return cmp.Compare(a.Type.Rank(), b.Type.Rank()) })
	if typ != "" {
		filter := resourceFilter{groups: func(name string) bool { return d.Group == "" || name == d.Group }, typ: typ, prefix: d.Prefix}
		var next string
		if d.Rows, next = u.collect(from, pageNames, &filter); next != "" {
			d.Next = resourceLink(typ, d.Group, url.Values{"prefix": {d.Prefix}, "after": {next}})
		}
	}
	u.show(w, "resources", "Resources", "resources", moves, d)
}

func resourceLink(t cache.TypeURL, group string, more url.Values) string {
	q := url.Values{"type": {wordOf(t)}}
	if group != "" {
		q.Set("group", group)
	}
	for key, values := range more {
		if values[0] != "" {
			q[key] = values
		}
	}
	return "/ui/resources?" + q.Encode()
}

// wordOf is a type as a parameter names it.
func wordOf(t cache.TypeURL) string {
	if short := t.Short(); short != cache.OtherShort {
		return short
	}
	return string(t)
}

// Link is where the names of a type are listed.
func (s typeSummary) Link() string { return resourceLink(s.Type, s.Group, nil) }

// Link is where one name is shown.
func (e entry) Link() string { return nameLink(e.Type, e.Name) }

func nameLink(t cache.TypeURL, name string) string {
	return "/ui/resource?" + url.Values{"type": {wordOf(t)}, "name": {name}}.Encode()
}

// Link is where the resource is shown.
func (c clientName) Link() string { return nameLink(c.Type, c.Name) }

// Changed is when it changed; zero: it is not known.
func (e entry) Changed() time.Time {
	switch {
	case e.ChangedAt != nil:
		return *e.ChangedAt
	case e.ChangedBefore != nil:
		return *e.ChangedBefore
	}
	return time.Time{}
}

// Mark is the state of a name.
func (e entry) Mark() mark {
	switch {
	case e.Held != nil:
		return mark{"warn", "Removal held"}
	case e.State == states[cache.Present]:
		return mark{"ok", "Present"}
	case e.State == states[cache.Absent]:
		return mark{"none", absences[e.Cause]}
	}
	return mark{"wait", "Not answered"}
}

// absences say how the relay knows that a name does not exist.
var absences = map[string]string{
	causes[cache.Removed]: "Removed", causes[cache.NotFoundError]: "Not found", causes[cache.Timer]: "No answer", causes[cache.Sweep]: "Not in the set", causes[cache.TTLExpired]: "Expired",
}

func (u *ui) resourceView(w http.ResponseWriter, req *http.Request) {
	if !u.asks(w, req, "type", "name") {
		return
	}
	typ, err := typeOf(req)
	name := req.URL.Query().Get("name")
	if err == nil && (typ == "" || name == "") {
		err = fmt.Errorf("name a type and a resource, as in ?type=CDS&name=checkout")
	}
	if err != nil {
		u.fail(w, http.StatusBadRequest, "/ui/resources", "All resources", "%v", err)
		return
	}
	moves := u.metrics.observed.moves.Load()
	d := resourceDetail{Type: typ, Name: name}
	filter := resourceFilter{groups: func(string) bool { return true }, typ: typ, name: name, holders: true}
	d.Entries, _ = u.collect(cursor{}, maxLimit, &filter)
	if len(d.Entries) == 0 {
		u.fail(w, http.StatusNotFound, resourceLink(typ, "", nil), "All of "+shortType(typ), "The relay knows nothing of %s %q: no client asks for it, and the control plane has not sent it.", shortType(typ), name)
		return
	}
	u.holdings(&d)
	u.show(w, "resource", name, "resources", moves, d)
}

// holdings adds the clients that do not have what the relay has.
func (u *ui) holdings(d *resourceDetail) {
	secret := u.secret(d.Type)
	all := u.fleets.now()
	for i := range all.rows {
		r := &all.rows[i]
		if !slices.ContainsFunc(r.Types, func(t rowType) bool { return t.Type == d.Type }) {
			continue
		}
		n, some := u.relay.ClientName(r.Stream, d.Type, d.Name)
		if !some {
			continue
		}
		d.Asking++
		if n.Step == session.StepSynced {
			d.InStep++
			continue
		}
		h := holding{r.Stream, r.Node, n.Step, n.Sent}
		if secret {
			h.Version = readable.Redact(h.Version)
		}
		d.Held = append(d.Held, h)
	}
	rejected := func(h holding) int { return map[session.Step]int{session.StepRejected: -1}[h.Step] }
	slices.SortStableFunc(d.Held, func(a, b holding) int { return rejected(a) - rejected(b) })
	if d.More = len(d.Held) > fewHoldings; d.More {
		d.Held = d.Held[:fewHoldings:fewHoldings]
	}
}

// secret reports whether a type is secret in any group.
func (u *ui) secret(t cache.TypeURL) bool {
	for _, hub := range u.relay.Groups() {
		if hub.Properties(t).Secret {
			return true
		}
	}
	return false
}
