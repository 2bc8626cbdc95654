package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/admin"
	"github.com/xds-relay/xds-relay/internal/adminclient"
	"github.com/xds-relay/xds-relay/internal/console"
)

// fewClients is how many are listed at most, unless all are asked for, and as long as there are no more also those
// that are in step.
const fewClients = 50

// ps says which clients are asked for, and how they are shown.
type ps struct {
	asking
	format
	repeated
	stale, nacked, all           bool
	node, prefix, group, typeURL string
}

func newPs() *cobra.Command {
	p := new(ps)
	cmd := &cobra.Command{
		Use:     "ps [CLIENT]",
		Aliases: []string{"status"},
		Short:   "Show which clients of a running relay are in step, and which are not, since when",
		Long: `Show whether the control plane is there, and how far each client is with each type,
those first that are furthest behind:

  SYNCED            it has accepted everything that the relay has for it
  STALE (3, 12s)    3 names wait to be sent or acknowledged, the first for 12 s;
                    a client that polls has shown an old version three times
  NOT SENT (3, 12s) the same, and the client was never sent anything of the type
  REJECTED (1, 3m)  it rejected 1 name 3 minutes ago, which is still as it was
  REFUSED           the relay does not serve it the type; ps CLIENT says why

Of more than 50 clients only those are listed that are not in step, and of these the
first 50; --all lists all of them. With CLIENT, a stream's number or a node id, it shows
what that client lacks, and its last rejection in full.

` + askingHelp,
		Example: `  xds-relay ps
  xds-relay ps --stale --type CDS
  xds-relay ps envoy-1
  xds-relay ps -o json --nacked`,
		Args: atMost(1, "one client"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.check(); err != nil {
				return err
			}
			relay, err := p.open()
			if err != nil {
				return err
			}
			defer relay.Close()
			return p.run(cmd, func(ctx context.Context, w io.Writer) error {
				if len(args) > 0 {
					return p.one(ctx, relay, args[0], w)
				}
				return p.show(ctx, relay, w)
			})
		},
	}
	p.asking.register(cmd)
	p.format.register(cmd, "table", "wide", "json", "yaml")
	p.repeated.register(cmd)
	f := cmd.Flags()
	f.BoolVar(&p.stale, "stale", false, "only clients that are not in step, for whatever reason")
	f.BoolVar(&p.nacked, "nacked", false, "only clients that have rejected what there still is")
	f.BoolVar(&p.all, "all", false, "list all clients, however many they are")
	f.StringVar(&p.node, "node", "", "only clients with this node id")
	f.StringVar(&p.prefix, "prefix", "", "only clients whose node ids begin like this")
	f.StringVar(&p.group, "group", "", "only clients of this group")
	f.StringVar(&p.typeURL, "type", "", "only this type, such as CDS, and clients that ask for it")
	return cmd
}

// query is what the relay is asked for.
func (p *ps) query() url.Values {
	q := url.Values{}
	for key, value := range map[string]string{"node": p.node, "prefix": p.prefix, "group": p.group, "type": p.typeURL} {
		if value != "" {
			q.Set(key, value)
		}
	}
	return q
}

// fleet is what ps shows. As JSON it is stable.
type fleet struct {
	Relay  relayInfo      `json:"relay"`
	Planes []*planeView   `json:"control_planes"`
	Total  int            `json:"total"`
	States map[string]int `json:"states"` // counts every client that was asked for by its worst type
	// Clients are those that are listed, worst first.
	Clients []clientView `json:"clients"`
}

// look asks the relay.
func (p *ps) look(ctx context.Context, relay *adminclient.Client) (*fleet, error) {
	f := &fleet{States: make(map[string]int), Clients: []clientView{}}
	if err := relay.Get(ctx, "/server_info", nil, &f.Relay); err != nil {
		return nil, answered(err)
	}
	var err error
	if f.Planes, err = planesOf(ctx, relay); err != nil {
		return nil, err
	}
	all, err := clientsOf(ctx, relay, p.query())
	if err != nil {
		return nil, err
	}
	f.Total = len(all)
	for _, c := range all {
		f.States[c.State.String()]++
		if p.takes(c) {
			f.Clients = append(f.Clients, c)
		}
	}
	slices.SortFunc(f.Clients, worse)
	return f, nil
}

func (p *ps) takes(c clientView) bool {
	if p.stale && c.State == inStep {
		return false
	}
	return !p.nacked || c.State == rejected
}

func (p *ps) show(ctx context.Context, relay *adminclient.Client, w io.Writer) error {
	f, err := p.look(ctx, relay)
	if err != nil {
		return err
	}
	if printed, err := p.data(w, f); printed {
		return err
	}
	now := time.Now()
	header(w, f, now)
	fmt.Fprintln(w)
	listed := f.Clients
	if !p.all && len(listed) > fewClients {
		listed = slices.DeleteFunc(slices.Clone(listed), func(c clientView) bool { return c.State == inStep })
		listed = listed[:min(len(listed), fewClients)]
	}
	if len(listed) > 0 {
		if err := p.table(listed, now).Write(w); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, f.summary(len(listed)))
	return nil
}

// header says whether the relay and its control planes are there.
func header(w io.Writer, f *fleet, now time.Time) {
	ready := "ready"
	if !f.Relay.Ready {
		ready = "NOT READY: " + f.Relay.Why
	}
	t := console.NewTable("")
	t.Row("relay", fmt.Sprintf("version %s, up %s, %s, %s", f.Relay.Version, console.For(time.Duration(f.Relay.Uptime)*time.Second), console.Things(f.Relay.Clients, "client"), ready))
	if len(f.Planes) == 0 {
		t.Row("control plane", "not asked for anything yet, since no client has asked")
	}
	for _, p := range f.Planes {
		t.Row("control plane", p.say(now))
		if trouble := p.trouble(now); trouble != "" {
			t.Row("", trouble)
		}
	}
	for _, service := range slices.Sorted(maps.Keys(f.Relay.Passthrough)) {
		t.Row("goes through", fmt.Sprintf("%s, %s", service, console.Things(f.Relay.Passthrough[service], "call")))
	}
	_ = t.Write(w) // an error is met again below
}

// say is a line about a control plane: is it there, and since when.
func (p *planeView) say(now time.Time) string {
	text := p.Address + " "
	worst := p.worst()
	switch {
	case worst == "idle" && p.Connected.IsZero():
		text += "not connected, since no client asks for anything"
	case worst == "idle", worst == "current":
		text += "connected"
	default:
		text += strings.ToUpper(worst)
		if n := p.count(); n > 1 {
			text += fmt.Sprintf(" for %d of %s", p.Groups[worst], console.Things(n, "group"))
		}
	}
	if !p.Connected.IsZero() {
		text += ", since " + console.For(now.Sub(p.Connected))
		if p.Mode != "" {
			text += " (" + p.Mode + ")"
		}
	}
	if worst != "idle" || !p.LastMessage.IsZero() {
		text += ", last message " + console.Ago(p.LastMessage, now)
	}
	if recent := p.LastError != "" && now.Sub(p.ErrorAt) < lately; recent && !slices.Contains(planeFails, worst) {
		text += "; " + console.Ago(p.ErrorAt, now) + " it failed: " + p.LastError
	}
	return text
}

// lately is how long the last error of a control plane that is there again is told.
const lately = 10 * time.Minute

// trouble is what went wrong with a control plane last, if it fails, and when it is tried again.
func (p *planeView) trouble(now time.Time) string {
	if !slices.Contains(planeFails, p.worst()) || p.LastError == "" {
		return ""
	}
	text := console.Ago(p.ErrorAt, now) + ": " + p.LastError
	if p.Retry.After(now) {
		text += "; it is tried again in " + console.For(p.Retry.Sub(now)+time.Second-1)
	}
	return text
}

// count is how many groups use the control plane.
func (p *planeView) count() (n int) {
	for _, of := range p.Groups {
		n += of
	}
	return n
}

// table has a row for each client, and a column for each type that any of them asks for.
func (p *ps) table(clients []clientView, now time.Time) *console.Table {
	var types []cache.TypeURL
	for _, c := range clients {
		for _, t := range c.Types {
			if !slices.Contains(types, t.Type) {
				types = append(types, t.Type)
			}
		}
	}
	slices.SortFunc(types, byRank)
	headings := []string{"CLIENT", "STREAM", "GROUP", "PROTOCOL", "CONNECTED"}
	if p.name == "wide" {
		headings = append(headings, "IDENTITY", "PEER")
	}
	for _, t := range types {
		headings = append(headings, shortType(t))
	}
	table := console.NewTable("", headings...)
	for _, c := range clients {
		row := []string{c.Node, fmt.Sprint(c.Stream), groupsOf(c), c.Protocol, console.For(now.Sub(c.Since))}
		if p.name == "wide" {
			row = append(row, orDash(c.Identity), c.Peer)
		}
		for _, t := range types {
			row = append(row, cell(c, t, now))
		}
		table.Row(row...)
	}
	return table
}

// groupsOf are the groups that serve a client.
func groupsOf(c clientView) string {
	var groups []string
	for _, t := range c.Types {
		if !slices.Contains(groups, t.Group) && t.Refused == "" {
			groups = append(groups, t.Group)
		}
	}
	return orDash(strings.Join(groups, ","))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// cell is how far a client is with a type, and with how much it is behind.
func cell(c clientView, of cache.TypeURL, now time.Time) string {
	i := slices.IndexFunc(c.Types, func(t typeView) bool { return t.Type == of })
	if i < 0 {
		return "-"
	}
	return c.Types[i].say(now)
}

// say is the state of a type, and for all but those in step with how many names it is behind, and for how long.
func (t *typeView) say(now time.Time) string {
	if t.State == inStep || t.State == refused {
		return t.State.String()
	}
	var more []string
	if n := admin.BehindOf(&t.ClientType); n > 0 {
		more = append(more, console.Count(n))
	}
	if !t.Since.IsZero() {
		more = append(more, console.For(now.Sub(t.Since)))
	}
	if len(more) == 0 {
		return t.State.String()
	}
	return fmt.Sprintf("%s (%s)", t.State, strings.Join(more, ", "))
}

// summary counts the clients, and says how many of them are listed.
func (f *fleet) summary(listed int) string {
	if f.Total == 0 {
		return "no clients"
	}
	in := f.States[inStep.String()]
	text := fmt.Sprintf("%s: %s in step", console.Things(f.Total, "client"), console.Count(in))
	if out := f.Total - in; out > 0 {
		var states []string
		for i, word := range slices.Backward(admin.ClientStates) {
			if n := f.States[word]; n > 0 && clientState(i) != inStep {
				states = append(states, console.Count(n)+" "+word)
			}
		}
		text += fmt.Sprintf(", %s not (%s)", console.Count(out), strings.Join(states, ", "))
	}
	if hidden := len(f.Clients) - listed; hidden > 0 {
		text += fmt.Sprintf("; %s not listed, --all lists them", console.Count(hidden))
	}
	return text
}
