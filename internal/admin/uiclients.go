package admin

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/config"
)

// pageRows is how many clients a page of the list has.
const pageRows = 50

// clientList is a page of the clients that a filter leaves.
type clientList struct {
	Filter     listFilter
	Rows       []row
	From, To   int // the first and the last of the page, counted from 1
	Found, All int
	Pages      []pageLink
	Types      []cache.TypeURL // that clients ask for
	States     []stateChoice
	Sorts      []sortLink
	Clear      string // the list without a filter
}

type (
	pageLink struct {
		Text, Link string
		Here       bool
	}
	stateChoice struct {
		Value, Text string
		On          bool
	}
	sortLink struct {
		Text, Link string
		Number     bool   // the column is one of numbers
		Class      string // of its cells
		How        string // ascending or descending if the list is sorted so
	}
)

// listFilter is what the list is asked for.
type listFilter struct {
	Text    string // in the node's id or cluster, the identity or the address
	State   string // a word of stateFilters, or empty
	Type    string // as it was asked for, and what that is
	url     cache.TypeURL
	Group   string
	Cluster string
	Sort    string // a column, with - before it if the other way round
	Page    int

	states     []ClientState
	anyCluster bool
	lower      string // Text in lower case
}

type stateFilter struct {
	word, text string
	states     []ClientState
}

// stateFilters are the words with which states are asked for.
var stateFilters = []stateFilter{
	{"", "Any state", nil},
	{"out", "Out of step", []ClientState{NotSent, Stale, Refused, Rejected}},
	{"behind", "Rejected or stale", []ClientState{NotSent, Stale, Rejected}},
	{"rejected", "Rejected", []ClientState{Rejected}},
	{"stale", "Stale or not sent", []ClientState{Stale, NotSent}},
	{"refused", "Refused", []ClientState{Refused}},
	{"in-step", "In step", []ClientState{InStep}},
}

// columns are those by which the list can be sorted, each with its first order.
var columns = []struct {
	key, text, class string // class: it is one of numbers
	compare          func(a, b *row) int
}{
	{"state", "State", "", worseRow},
	{"node", "Client", "", func(a, b *row) int { return strings.Compare(a.Node, b.Node) }},
	{"behind", "Behind", "behind", func(a, b *row) int { return cmp.Compare(b.Behind, a.Behind) }},
	{"connected", "Connected", "since", func(a, b *row) int { return b.Since.Compare(a.Since) }},
}

// worseRow orders clients: those in the worst state first, of these the ones that have waited longest.
func worseRow(a, b *row) int {
	waits := func(r *row) int64 {
		if r.Waits.IsZero() {
			return 1 << 62
		}
		return r.Waits.UnixNano()
	}
	return cmp.Or(cmp.Compare(b.State, a.State), cmp.Compare(waits(a), waits(b)))
}

// filterOf reads what the list is asked for.
func filterOf(q url.Values) (f listFilter, err error) {
	f = listFilter{Text: q.Get("q"), State: q.Get("state"), Type: q.Get("type"), Group: q.Get("group"), Cluster: q.Get("cluster"), Sort: q.Get("sort"), Page: 1}
	f.anyCluster, f.lower = !q.Has("cluster"), strings.ToLower(f.Text)
	i := slices.IndexFunc(stateFilters, func(s stateFilter) bool { return s.word == f.State })
	if i < 0 {
		return f, fmt.Errorf("state is %q; use out, behind, rejected, stale, refused or in-step", f.State)
	}
	f.states = stateFilters[i].states
	if f.Type != "" {
		t, ok := config.TypeURL(f.Type)
		if !ok {
			return f, fmt.Errorf("type is %q; use a short name such as CDS, or a type URL", f.Type)
		}
		f.url = cache.TypeURL(t)
	}
	if f.column() < 0 {
		return f, errors.New("sort is " + strconv.Quote(f.Sort) + "; use state, node, behind or connected, with - before it for the other way round")
	}
	if text := q.Get("page"); text != "" {
		if f.Page, err = strconv.Atoi(text); err != nil || f.Page < 1 {
			return f, fmt.Errorf("page is %q; use a number from 1 on", text)
		}
	}
	return f, nil
}

// Asks reports whether the filter is about a type, ByCluster whether it is about a cluster, and Some whether it is
// about anything.
func (f listFilter) Asks(t cache.TypeURL) bool { return f.url == t }
func (f listFilter) ByCluster() bool           { return !f.anyCluster }
func (f listFilter) Some() bool {
	return f.ByCluster() || f.Text+f.State+f.Type+f.Group != ""
}

// column is the place in columns by which the list is sorted, or -1.
func (f *listFilter) column() int {
	key := cmp.Or(strings.TrimPrefix(f.Sort, "-"), "state")
	for i := range columns {
		if columns[i].key == key {
			return i
		}
	}
	return -1
}

// takes reports whether a client is among those that are asked for.
func (f *listFilter) takes(r *row) bool {
	if !f.anyCluster && r.Cluster != f.Cluster {
		return false
	}
	if f.lower != "" && !r.mentions(f.lower) {
		return false
	}
	if f.url == "" && f.Group == "" {
		return f.states == nil || slices.Contains(f.states, r.State)
	}
	return slices.ContainsFunc(r.Types, f.takesType)
}

// takesType reports whether a type is what is asked for: by its name, its group, and its own state.
func (f *listFilter) takesType(t rowType) bool {
	switch {
	case f.url != "" && t.Type != f.url, f.Group != "" && t.Group != f.Group:
		return false
	}
	return f.states == nil || slices.Contains(f.states, t.State)
}

// mentions reports whether what a client is called has a text, which is in lower case.
func (r *row) mentions(text string) bool {
	for _, s := range []string{r.Node, r.Cluster, r.Identity, r.Peer} {
		if strings.Contains(strings.ToLower(s), text) {
			return true
		}
	}
	return false
}

// link is the list with one parameter changed; the first page, unless that is the change.
func (f *listFilter) link(key, value string) string {
	q := url.Values{}
	for k, v := range map[string]string{"q": f.Text, "state": f.State, "type": f.Type, "group": f.Group, "sort": f.Sort} {
		if v != "" {
			q.Set(k, v)
		}
	}
	if !f.anyCluster {
		q.Set("cluster", f.Cluster)
	}
	if q.Set(key, value); value == "" {
		q.Del(key)
	}
	if len(q) == 0 {
		return "/ui/clients"
	}
	return "/ui/clients?" + q.Encode()
}

func (u *ui) clientsView(w http.ResponseWriter, req *http.Request) {
	if !u.asks(w, req, "q", "state", "type", "group", "cluster", "sort", "page") {
		return
	}
	f, err := filterOf(req.URL.Query())
	if err != nil {
		u.fail(w, http.StatusBadRequest, "/ui/clients", "All clients", "%v", err)
		return
	}
	all := u.fleets.now()
	found := f.of(all)
	pages := max((len(found)+pageRows-1)/pageRows, 1)
	if f.Page > pages {
		u.fail(w, http.StatusNotFound, f.link("page", ""), "The first page", "There is no page %d: the list has %d, and clients come and go.", f.Page, pages)
		return
	}
	from := (f.Page - 1) * pageRows
	d := clientList{
		Filter: f, Found: len(found), All: len(all.rows), Types: typesOf(all), States: f.choices(), Sorts: f.sorts(),
		Pages: f.pages(pages), Clear: "/ui/clients", From: from + 1, To: min(from+pageRows, len(found)),
	}
	for _, i := range found[from:d.To] {
		d.Rows = append(d.Rows, all.rows[i])
	}
	u.show(w, "clients", "Clients", "clients", all.moves, d)
}

// of are the places of the clients that are asked for, in the order that is asked for.
func (f *listFilter) of(all *fleet) (found []int32) {
	for i := range all.rows {
		if f.takes(&all.rows[i]) {
			found = append(found, int32(i))
		}
	}
	compare, sign := columns[f.column()].compare, 1
	if strings.HasPrefix(f.Sort, "-") {
		sign = -1
	}
	slices.SortStableFunc(found, func(a, b int32) int { return sign * compare(&all.rows[a], &all.rows[b]) })
	return found
}

func typesOf(all *fleet) []cache.TypeURL {
	types := make(map[cache.TypeURL]bool)
	for i := range all.rows {
		for _, t := range all.rows[i].Types {
			types[t.Type] = true
		}
	}
	return slices.SortedFunc(maps.Keys(types), func(a, b cache.TypeURL) int { return cmp.Or(a.Rank()-b.Rank(), strings.Compare(string(a), string(b))) })
}

func (f *listFilter) choices() (all []stateChoice) {
	for _, s := range stateFilters {
		all = append(all, stateChoice{s.word, s.text, s.word == f.State})
	}
	return all
}

// sorts are the headings, each of which sorts by its column, and the other way round if the list is sorted by it.
func (f *listFilter) sorts() (all []sortLink) {
	here := f.column()
	for i, c := range columns {
		s := sortLink{Text: c.text, Link: f.link("sort", c.key), Number: c.class != "", Class: c.class}
		if i == here {
			s.How = "ascending"
			if strings.HasPrefix(f.Sort, "-") {
				s.How = "descending"
			} else {
				s.Link = f.link("sort", "-"+c.key)
			}
		}
		all = append(all, s)
	}
	return all
}

// pages are links to the first page, the last, and those around the one that is shown.
func (f *listFilter) pages(count int) (all []pageLink) {
	if count == 1 {
		return nil
	}
	last := 0
	for n := 1; n <= count; n++ {
		if n > 1 && n < count && (n < f.Page-2 || n > f.Page+2) {
			continue
		}
		if n > last+1 {
			all = append(all, pageLink{Text: "…"})
		}
		all, last = append(all, pageLink{strconv.Itoa(n), f.link("page", strconv.Itoa(n)), n == f.Page}), n
	}
	return all
}
