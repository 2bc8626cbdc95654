package admin

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/certs"
	"github.com/xds-relay/xds-relay/internal/console"
	"github.com/xds-relay/xds-relay/internal/events"
)

// overview is one look at a relay.
type overview struct {
	Status  relayStatus
	Numbers numbers
	Planes  []*plane
	Parts   []part
	Hidden  part // those that have no box
	ByGroup bool
	Speed   []speed
	Traffic traffic
	Held    []heldRemovals
	Events  []events.Event
}

// relayStatus is whether the relay itself is well.
type relayStatus struct {
	Ready        mark
	Why          string
	Build        Build
	Started      time.Time
	Snapshot     mark
	SnapshotAt   time.Time
	Certificates []certificate
	Config       mark
	ConfigAt     time.Time
	Rules        mark // the zero mark: as they should be, or none
}

// certificate is one that is in use, with those that expire first.
type certificate struct {
	Of      string
	Expires time.Time
	Over    bool
	Mark    mark
}

// numbers count clients, each once.
type numbers struct {
	All, InStep, Stale, Rejecting, Refused int
	Late                                   int // of the stale ones: for more than 30 s
}

// part is the clients of one cluster or group.
type part struct {
	Name    string
	Link    string
	Worst   ClientState
	All     int
	InStep  int
	Stale   int
	Rejects int
	Refused int
	Waits   time.Time // since when the one that has waited longest is out of step
}

// Bar are the widths of a bar of 100 that shows how many are in which state; whoever is there is seen.
func (p part) Bar() (bar []segment) {
	at := 0.0
	for _, s := range []struct {
		n    int
		kind string
	}{{p.Rejects, "bad"}, {p.Refused, "stop"}, {p.Stale, "warn"}, {p.InStep, "ok"}} {
		if s.n == 0 {
			continue
		}
		width := max(100*float64(s.n)/float64(p.All), 2)
		width = min(width, 100-at)
		bar = append(bar, segment{s.kind, at, width})
		at += width
	}
	return bar
}

// Marks say who is not in step, the worst first; or that everybody is.
func (p part) Marks() (marks []mark) {
	for _, s := range []struct {
		n          int
		kind, text string
	}{{p.Rejects, "bad", "rejected"}, {p.Refused, "stop", "refused"}, {p.Stale, "warn", "stale"}} {
		if s.n > 0 {
			marks = append(marks, mark{s.kind, console.Count(s.n) + " " + s.text})
		}
	}
	if marks == nil {
		marks = []mark{stateMark(InStep)}
	}
	return marks
}

type segment struct {
	Kind     string
	X, Width float64
}

// speed is how long changes of a type took which are over, in the last 15 minutes, and who still waits for one.
type speed struct {
	Type                   string
	Deliveries             int
	P50, P99               time.Duration
	Changes                int
	Last, LastP99, Slowest time.Duration // to the last client: the median, the 99th percentile, the slowest
	waiting
}

// waiting is how many clients are out of step with a type, and since when the one that has been for longest.
type waiting struct {
	Clients int
	Longest time.Time
	Link    string // to these clients
}

// traffic is what went through since the start.
type traffic struct {
	In, InBytes, Out, Bytes, Responses int64
	Amplification, ByBytes             float64 // of resources, and of bytes
}

// heldRemovals are those of a type of a group that the guard holds back.
type heldRemovals struct {
	Group string
	Type  cache.TypeURL
	Count int
}

// Action is where to release them.
func (h heldRemovals) Action() string {
	return "/guard/release?" + url.Values{"group": {h.Group}, "type": {string(h.Type)}}.Encode()
}

const (
	// mostParts bounds the boxes of the strip.
	mostParts = 24
	// lastEvents is how many events the overview has.
	lastEvents = 8
	// certificates that expire so soon are worth a look, or are urgent.
	soon, urgent = 7 * 24 * time.Hour, 24 * time.Hour
	// oldSnapshot: it is written each minute while the control plane is there.
	oldSnapshot = 5 * time.Minute
)

func (u *ui) overview(w http.ResponseWriter, req *http.Request) {
	if !u.asks(w, req, "by") {
		return
	}
	by := req.URL.Query().Get("by")
	if by != "" && by != "group" && by != "cluster" {
		u.fail(w, http.StatusBadRequest, "/", "Overview", "by is %q; use cluster or group", by)
		return
	}
	all, now := u.fleets.now(), time.Now()
	d := overview{Status: u.status(now), Numbers: u.numbers(all), Planes: u.planes(now), Speed: u.speed(all, now), Traffic: u.traffic(), Held: u.held()}
	u.tell(d.Planes)
	d.ByGroup = by == "group" || by == "" && !slices.ContainsFunc(all.rows, func(r row) bool { return r.Cluster != "" })
	d.Parts, d.Hidden = partsOf(all, d.ByGroup)
	d.Events = u.ring.List(0, nil, lastEvents).Events
	slices.Reverse(d.Events)
	u.show(w, "overview", "Overview", "overview", all.moves, d)
}

func (u *ui) status(now time.Time) relayStatus {
	s := relayStatus{Ready: mark{"ok", "Ready"}, Build: u.metrics.build, Started: u.started, Config: mark{"ok", "In force"}}
	ready, why := u.relay.Ready()
	if !ready {
		s.Ready, s.Why = u.unready(), why
	}
	s.Snapshot, s.SnapshotAt = u.snapshotMark(now)
	for _, c := range u.relay.Certificates() {
		s.Certificates = append(s.Certificates, certificateOf(c, now))
	}
	slices.SortStableFunc(s.Certificates, func(a, b certificate) int { return a.Expires.Compare(b.Expires) })
	if valueOf(u.metrics.reload.ok) == 0 {
		s.Config = mark{"bad", "A change was refused; the one before is in force"}
	}
	s.ConfigAt = timeAt(valueOf(u.metrics.reload.at))
	if valueOf(u.metrics.rules.fresh) == 0 {
		s.Rules = mark{"bad", "A change of the rules was refused; those before are in force"}
	}
	return s
}

func (u *ui) snapshotMark(now time.Time) (mark, time.Time) {
	at := timeAt(valueOf(u.metrics.snapshot.written))
	failed := 0.0
	for _, operation := range []string{"load", "write"} {
		failed += valueOf(u.metrics.snapshot.errors.WithLabelValues(operation))
	}
	switch {
	case at.IsZero() && failed > 0:
		return mark{"bad", "None; it cannot be written"}, at
	case at.IsZero():
		return mark{"none", "None"}, at
	case now.Sub(at) > oldSnapshot && u.metrics.open.Load() > 0:
		return mark{"bad", "Old, though the control plane is there"}, at
	}
	return mark{"ok", "Written"}, at
}

func certificateOf(c certs.State, now time.Time) certificate {
	of := "clients"
	if c.Hop == certs.Upstream {
		of = cmp.Or(c.Address, "control plane")
	}
	if c.Role == certs.RoleCA {
		of += ", authority"
	}
	to := certificate{Of: of, Expires: c.NotAfter, Mark: mark{"ok", "Valid"}}
	switch left := c.NotAfter.Sub(now); {
	case left <= 0:
		to.Over, to.Mark = true, mark{"bad", "Expired"}
	case c.Stale:
		to.Mark = mark{"bad", "Its new file cannot be used"}
	case left < urgent:
		to.Mark = mark{"bad", "Expires soon"}
	case left < soon:
		to.Mark = mark{"warn", "Expires soon"}
	}
	return to
}

// valueOf is the value of a gauge or counter.
func valueOf(m prometheus.Metric) float64 {
	var now dto.Metric
	if m.Write(&now) != nil {
		return 0
	}
	return now.GetGauge().GetValue() + now.GetCounter().GetValue()
}

// timeAt is a time in seconds since 1970; 0 is never.
func timeAt(seconds float64) (t time.Time) {
	if seconds > 0 {
		t = time.UnixMilli(int64(seconds * 1000))
	}
	return t
}

func (u *ui) numbers(all *fleet) numbers {
	n := numbers{All: len(all.rows), InStep: all.states[InStep], Stale: all.stale(), Rejecting: all.states[Rejected], Refused: all.states[Refused]}
	for i := range all.rows {
		if r := &all.rows[i]; r.stale() && !r.Waits.IsZero() && all.at.Sub(r.Waits) > 30*time.Second {
			n.Late++
		}
	}
	return n
}

// partsOf groups the clients, the worst first; few says those that have a box, and the rest is one.
func partsOf(all *fleet, byGroup bool) (few []part, rest part) {
	parts := make(map[string]*part)
	for i := range all.rows {
		r := &all.rows[i]
		name := r.Cluster
		if byGroup {
			name = groupOfRow(r)
		}
		p := parts[name]
		if p == nil {
			p = &part{Name: name, Link: partLink(name, byGroup)}
			parts[name] = p
		}
		p.add(r)
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		few = append(few, *parts[name])
	}
	slices.SortStableFunc(few, func(a, b part) int {
		return cmp.Or(cmp.Compare(b.Worst, a.Worst), cmp.Compare(b.All-b.InStep, a.All-a.InStep), cmp.Compare(b.All, a.All))
	})
	if len(few) > mostParts {
		for _, p := range few[mostParts:] {
			rest.All += p.All
			rest.InStep += p.InStep
			rest.Worst = max(rest.Worst, p.Worst)
		}
		few = few[:mostParts]
	}
	return few, rest
}

func (p *part) add(r *row) {
	p.All++
	p.Worst = max(p.Worst, r.State)
	switch r.State {
	case InStep:
		p.InStep++
	case Rejected:
		p.Rejects++
	case Refused:
		p.Refused++
	default:
		p.Stale++
	}
	if !r.Waits.IsZero() && (p.Waits.IsZero() || r.Waits.Before(p.Waits)) {
		p.Waits = r.Waits
	}
}

// groupOfRow is the group that serves most of a client: that of its first type which has one.
func groupOfRow(r *row) string {
	for _, t := range r.Types {
		if t.State != Refused {
			return cmp.Or(t.Group, defaultGroup)
		}
	}
	return "none"
}

func partLink(name string, byGroup bool) string {
	key := "cluster"
	if byGroup {
		key = "group"
	}
	return "/ui/clients?" + url.Values{key: {name}}.Encode()
}

// speed is that of the types for which there was something to deliver, or is.
func (u *ui) speed(of *fleet, now time.Time) (all []speed) {
	waits := u.waits(of)
	for _, t := range u.metrics.observed.all() {
		to, last := t.propagation.since(now), t.convergence.since(now)
		if to.Count+last.Count+waits[t.short].Clients == 0 {
			continue
		}
		all = append(all, speed{
			waiting: waits[t.short],
			Type:    t.short, Deliveries: to.Count, P50: to.quantile(0.5), P99: to.quantile(0.99),
			Changes: last.Count, Last: last.quantile(0.5), LastP99: last.quantile(0.99), Slowest: last.Slowest,
		})
	}
	return all
}

// waits are the clients that a change of a type has not reached, by the type's short name.
func (u *ui) waits(all *fleet) map[string]waiting {
	found := make(map[string]waiting)
	for i := range all.rows {
		for _, t := range all.rows[i].Types {
			if t.State == InStep || t.State == Refused {
				continue
			}
			short := u.metrics.observed.types.of(t.Type).short
			w := found[short]
			w.Clients++
			if !t.Since.IsZero() && (w.Longest.IsZero() || t.Since.Before(w.Longest)) {
				w.Longest = t.Since
			}
			w.Link = "/ui/clients?" + url.Values{"type": {wordOf(t.Type)}, "state": {"behind"}}.Encode()
			found[short] = w
		}
	}
	return found
}

func (u *ui) traffic() (t traffic) {
	t.InBytes = u.metrics.observed.bytesIn.Load()
	for _, of := range u.metrics.observed.all() {
		t.In += of.in.Load()
		t.Out += of.out.Load()
		t.Bytes += of.bytes.Load()
		t.Responses += of.deliveries.Load()
	}
	if t.In > 0 {
		t.Amplification = float64(t.Out) / float64(t.In)
	}
	if t.InBytes > 0 {
		t.ByBytes = float64(t.Bytes) / float64(t.InBytes)
	}
	return t
}

func (u *ui) held() (all []heldRemovals) {
	hubs := u.relay.Groups()
	for _, group := range slices.Sorted(maps.Keys(hubs)) {
		for _, s := range hubs[group].Summarize() {
			if s.Held > 0 {
				all = append(all, heldRemovals{group, s.Type, s.Held})
			}
		}
	}
	return all
}
