package admin

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/console"
	"github.com/xds-relay/xds-relay/internal/readable"
)

// resourceDetail is one name, and which clients have which version of it.
type resourceDetail struct {
	Type    cache.TypeURL
	Name    string
	Entries []entryDetail
	Out     []outOfStep // the clients that are out of step with it, the worst first
	More    int         // of these that are not listed
	InStep  int
	Asking  int
	Missing bool // there is no such resource
}

// OutMark says how many clients are out of step with it.
func (d resourceDetail) OutMark() mark {
	m := mark{"warn", console.Count(len(d.Out)+d.More) + " out of step"}
	if len(d.Out) > 0 && d.Out[0].step == session.StepRejected { // those come first
		m.Kind = "bad"
	}
	return m
}

// entryDetail is the name on one lane of one group, and what the group's clients have of it.
type entryDetail struct {
	entry
	Holders []holder
}

// has is the version of a resource that a client has, as far as that is known.
type has struct {
	Version  string // empty: none, or it is not known which
	Known    bool
	Probably bool
}

// hasOf says which version a client has. What it has not accepted it was sent in place of what the relay had before,
// and probably has that still.
func hasOf(n session.ClientName, before string) has {
	switch n.Step {
	case session.StepSynced:
		return has{Version: n.Now, Known: true}
	case session.StepUnsent:
		if !n.Older {
			return has{Version: n.Sent, Known: true}
		}
	case session.StepStays, session.StepAwaited:
		return has{Version: n.Sent, Known: n.Sent != ""}
	}
	return has{Version: before, Probably: before != ""}
}

// namedMark is how far a client is with a resource.
func namedMark(n session.ClientName) mark {
	if n.Step == session.StepSynced && n.Now == "" {
		return mark{"none", doesNotExist}
	}
	return stepMark(n.Step)
}

// held is what some clients have of a resource, and what they were sent last.
type held struct {
	Mark mark
	Has  has
	Sent string
}

// holder is how many clients that are.
type holder struct {
	held
	Clients int
}

// outOfStep is a client that does not have what the relay has.
type outOfStep struct {
	held
	Stream uint64
	Node   string
	Since  time.Time
	Nack   string // the client's words, if it rejects it
	step   session.Step
}

// fewOut bounds the clients that are listed of a resource.
const fewOut = 20

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
	all := u.fleets.now()
	d := resourceDetail{Type: typ, Name: name, Missing: true}
	entries, _ := u.collect(cursor{}, maxLimit, &resourceFilter{groups: func(string) bool { return true }, typ: typ, name: name})
	if len(entries) == 0 {
		u.fail(w, http.StatusNotFound, resourceLink(typ, "", nil), "All of "+shortType(typ), "The relay knows nothing of %s %q: no client asks for it, and the control plane has not sent it.", shortType(typ), name)
		return
	}
	holders := u.holders(&d, all, entries)
	for _, e := range entries {
		d.Entries = append(d.Entries, entryDetail{e, holders[e.Group]})
		d.Missing = d.Missing && e.Missing()
	}
	u.show(w, "resource", name, "resources", all.moves, d)
}

// holders looks at all clients: it returns what those of each group have, and adds those that are out of step.
func (u *ui) holders(d *resourceDetail, all *fleet, entries []entry) map[string][]holder {
	secret := u.secret(d.Type)
	latest := make(map[string]entry) // of each group: the one that says what was there before
	for _, e := range entries {
		if was := latest[e.Group]; was.Previous == "" {
			latest[e.Group] = e
		}
	}
	counts := make(map[string]map[held]int)
	for i := range all.rows {
		r := &all.rows[i]
		if !slices.ContainsFunc(r.Types, func(t rowType) bool { return t.Type == d.Type }) {
			continue
		}
		n, some := u.relay.ClientName(r.Stream, d.Type, d.Name)
		if !some {
			continue
		}
		if secret {
			n.Sent, n.Now = readable.Redact(n.Sent), readable.Redact(n.Now)
		}
		t := r.typ(d.Type)
		h := held{namedMark(n), hasOf(n, latest[t.Group].Previous), n.Sent}
		if counts[t.Group] == nil {
			counts[t.Group] = make(map[held]int)
		}
		counts[t.Group][h]++
		if d.Asking++; n.Step == session.StepSynced {
			d.InStep++
			continue
		}
		d.Out = append(d.Out, outOfStep{held: h, Stream: r.Stream, Node: r.Node, Since: later(t.Since, latest[t.Group].Changed()), step: n.Step})
	}
	u.worstOut(d)
	sorted := make(map[string][]holder)
	for group, of := range counts {
		for _, h := range slices.SortedFunc(maps.Keys(of), func(a, b held) int {
			return cmp.Or(of[b]-of[a], cmp.Compare(a.Mark.Text, b.Mark.Text), cmp.Compare(a.Sent, b.Sent))
		}) {
			sorted[group] = append(sorted[group], holder{h, of[h]})
		}
	}
	return sorted
}

// later is since when a client is out of step with a resource: with the type it may have been for longer.
func later(since, changed time.Time) time.Time {
	if !since.IsZero() && changed.After(since) {
		return changed
	}
	return since
}

// worstOut leaves the clients that reject the resource, and those that have waited longest.
func (u *ui) worstOut(d *resourceDetail) {
	good := func(o *outOfStep) int { return map[session.Step]int{session.StepRejected: -1}[o.step] }
	slices.SortStableFunc(d.Out, func(a, b outOfStep) int { return cmp.Or(good(&a)-good(&b), a.Since.Compare(b.Since)) })
	if d.More = max(len(d.Out)-fewOut, 0); d.More > 0 {
		d.Out = slices.Clip(d.Out[:fewOut])
	}
	for i := range d.Out {
		of := &d.Out[i]
		if of.step != session.StepRejected {
			continue
		}
		c, _ := u.relay.Client(of.Stream)
		for _, t := range c.Types {
			if t.Type == d.Type {
				of.Nack = t.Nack
			}
		}
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
