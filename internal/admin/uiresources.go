package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// resourceList is what the relay has of each type, and a page of the names of one.
type resourceList struct {
	Types  []typeRow
	Type   cache.TypeURL // whose names are listed; empty: none
	Group  string
	Prefix string
	Rows   []resourceRow
	Next   string
	ByName bool // not those first with which clients are out of step
	Partly bool // there was no time to look at all clients that are out of step
	Hidden int  // names with which clients are out of step that are not among the first rows
}

// typeRow is a type of a group, and how many of its clients are out of step with it.
type typeRow struct {
	typeSummary
	outOfIt
}

// OutLink is where these clients are listed.
func (r typeRow) OutLink() string {
	return "/ui/clients?" + url.Values{"type": {wordOf(r.Type)}, "group": {r.Group}, "state": {"behind"}}.Encode()
}

// resourceRow is a name, and how many clients are out of step with it.
type resourceRow struct {
	entry
	outOfIt
}

// Mark is the state of a name. It is not shown as good while clients do not have it.
func (r resourceRow) Mark() mark {
	m := r.entry.Mark()
	if m.Kind == "ok" && r.outOfIt != (outOfIt{}) {
		m.Kind = "info"
	}
	return m
}

func (u *ui) resourcesView(w http.ResponseWriter, req *http.Request) {
	if !u.asks(w, req, "type", "group", "prefix", "after", "sort") {
		return
	}
	query := req.URL.Query()
	typ, err := typeOf(req)
	d := resourceList{Type: typ, Group: query.Get("group"), Prefix: query.Get("prefix")}
	var from cursor
	if token := query.Get("after"); err == nil && token != "" {
		from, err = cursorOf(token)
	}
	if sort := query.Get("sort"); err == nil && sort != "" && sort != "name" {
		err = fmt.Errorf("sort is %q; use name, or leave it out for those first with which clients are out of step", sort)
	}
	d.ByName = query.Get("sort") == "name"
	if err != nil {
		u.fail(w, http.StatusBadRequest, "/ui/resources", "All resources", "%v", err)
		return
	}
	all := u.fleets.now()
	d.Types = u.typeRows(all)
	if typ != "" {
		u.listNames(&d, all, from)
	}
	u.show(w, "resources", "Resources", "resources", all.moves, d)
}

// typeRows are all types of all groups.
func (u *ui) typeRows(all *fleet) (rows []typeRow) {
	found := all.laggards()
	for _, s := range u.resourceSummary(&resourceFilter{groups: func(string) bool { return true }}) {
		rows = append(rows, typeRow{s, found[typeOfGroup{s.Group, s.Type}]})
	}
	slices.SortStableFunc(rows, func(a, b typeRow) int { return cmp.Compare(a.Type.Rank(), b.Type.Rank()) })
	return rows
}

// listNames adds a page of names. On the first page those come first with which clients are out of step.
func (u *ui) listNames(d *resourceList, all *fleet, from cursor) {
	filter := resourceFilter{groups: func(name string) bool { return d.Group == "" || name == d.Group }, typ: d.Type, prefix: d.Prefix}
	var found map[nameOfGroup]outOfIt
	found, d.Partly = u.lookForLaggards(all, d.Type)
	first := make(map[nameOfGroup]bool)
	if from == (cursor{}) && !d.ByName {
		for _, e := range u.withLaggards(found, filter, &d.Hidden) {
			key := nameOfGroup{e.Group, e.Name}
			first[key] = true
			d.Rows = append(d.Rows, resourceRow{e, found[key]})
		}
	}
	page, next := u.collect(from, pageNames, &filter)
	for _, e := range page {
		if key := (nameOfGroup{e.Group, e.Name}); !first[key] {
			d.Rows = append(d.Rows, resourceRow{e, found[key]})
		}
	}
	if next != "" {
		d.Next = resourceLink(d.Type, d.Group, url.Values{"prefix": {d.Prefix}, "after": {next}, "sort": {d.sort()}})
	}
}

// sort is the parameter for the order of the list.
func (d *resourceList) sort() string {
	if d.ByName {
		return "name"
	}
	return ""
}

// SortLink is the list in the order of names, or with those first with which clients are out of step.
func (d resourceList) SortLink(sort string) string {
	return resourceLink(d.Type, d.Group, url.Values{"prefix": {d.Prefix}, "sort": {sort}})
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
	return t.Name()
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
		return e.absence()
	}
	return mark{"wait", "Not answered"}
}

// Missing reports whether there is no such resource and, as far as is remembered, was none.
func (e entry) Missing() bool {
	return e.State == states[cache.Absent] && e.absence().Text == doesNotExist
}

const doesNotExist = "Does not exist"

// absence says how the relay knows that a name does not exist. Upstream removes what it never sent, too, so only what was
// there is called removed.
func (e entry) absence() mark {
	switch e.Cause {
	case causes[cache.Timer]:
		return mark{"none", "No answer"}
	case causes[cache.TTLExpired]:
		return mark{"none", "Expired"}
	case causes[cache.NotFoundError]:
	default:
		if e.Previous != "" {
			return mark{"none", "Removed"}
		}
	}
	if e.Wildcard || e.Clients == 0 {
		return mark{"none", doesNotExist}
	}
	return mark{"warn", doesNotExist}
}
