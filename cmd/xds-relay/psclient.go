package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/adminclient"
	"github.com/xds-relay/xds-relay/internal/console"
)

// The most names of a client that are asked for, and that are listed of each type.
const (
	mostPages = 50
	fewNames  = 20
)

// nameView is one resource of a client.
type nameView struct {
	Type cache.TypeURL `json:"type"`
	session.ClientName
	ChangedAt time.Time `json:"changed_at,omitzero"`
}

// clientDetail is what ps CLIENT shows. As JSON it is stable.
type clientDetail struct {
	clientView
	Names []nameView `json:"names"`
	// More: there are other names, which were not asked for.
	More bool `json:"more,omitempty"`
}

// detailOf asks for a client and its names.
func detailOf(ctx context.Context, relay *adminclient.Client, stream uint64, query url.Values) (*clientDetail, error) {
	d := &clientDetail{Names: []nameView{}}
	query = withLimit(query, pageSize)
	for range mostPages {
		var page struct {
			downstream.Client
			Names    []nameView `json:"names"`
			Continue string     `json:"continue"`
		}
		if err := relay.Get(ctx, fmt.Sprintf("/clients/%d", stream), query, &page); err != nil {
			return nil, answered(err)
		}
		d.clientView = view(page.Client)
		d.Names = append(d.Names, page.Names...)
		if d.More = page.Continue != ""; !d.More {
			break
		}
		query.Set("continue", page.Continue)
	}
	return d, nil
}

// one shows one client.
func (p *ps) one(ctx context.Context, relay *adminclient.Client, arg string, w io.Writer) error {
	stream, err := findClient(ctx, relay, arg)
	if err != nil {
		return err
	}
	query := url.Values{}
	if p.typeURL != "" {
		query.Set("type", p.typeURL)
	}
	d, err := detailOf(ctx, relay, stream, query)
	if err != nil {
		return err
	}
	if printed, err := p.data(w, d); printed {
		return err
	}
	now := time.Now()
	d.head(w, now)
	shown := 0
	for _, t := range d.Types {
		if p.typeURL != "" && p.typeURL != string(t.Type) && !strings.EqualFold(p.typeURL, shortType(t.Type)) {
			continue
		}
		shown++
		fmt.Fprintln(w)
		t.detail(w, now)
		d.lacks(w, t.Type, p.all, now)
	}
	if shown == 0 {
		fmt.Fprintln(w, "it does not ask for this type")
	}
	return nil
}

// head says who the client is.
func (d *clientDetail) head(w io.Writer, now time.Time) {
	t := console.NewTable("")
	t.Row("client", d.Node)
	t.Row("stream", fmt.Sprintf("%d, %s, connected %s from %s", d.Stream, d.Protocol, console.Ago(d.Since, now), d.Peer))
	if d.Identity != "" {
		t.Row("identity", d.Identity)
	}
	if d.Cluster != "" {
		t.Row("node cluster", d.Cluster)
	}
	t.Row("sent", fmt.Sprintf("%s, %s; %s", console.Things(int(d.Responses), "response"), console.Bytes(d.Bytes), console.Things(int(d.Nacks), "NACK")))
	_ = t.Write(w) // an error is met again below
}

// detail says all that is known of a type of a client but its names.
func (t *typeView) detail(w io.Writer, now time.Time) {
	fmt.Fprintf(w, "%s  %s\n", console.Clean(shortType(t.Type)), t.say(now))
	table := console.NewTable("  ")
	if t.Refused != "" {
		table.Row("refused", t.Refused)
	}
	table.Row("asks for", t.wants())
	table.Row("group", orDash(t.Group))
	table.Row("last sent", console.Ago(t.LastSent, now))
	table.Row("last acknowledged", console.Ago(t.LastAck, now)+withVersion(t.Version))
	if !t.Since.IsZero() {
		table.Row("not in step", fmt.Sprintf("since %s (%s)", console.For(now.Sub(t.Since)), t.Since.Local().Format(time.DateTime)))
	}
	_ = table.Write(w) // an error is met again below
	if t.Nack == "" {
		return
	}
	of := "nothing that is named"
	if t.Nacked > 0 {
		of = console.Things(t.Nacked, "resource")
		if len(t.NackedNames) > 0 {
			of += ", " + console.Clean(strings.Join(t.NackedNames, ", "))
		}
		if n := t.Nacked - len(t.NackedNames); n > 0 && len(t.NackedNames) > 0 {
			of += fmt.Sprintf(" and %d more", n)
		}
	}
	fmt.Fprintf(w, "  it rejected, %s, a response with %s:\n", console.Ago(t.NackedAt, now), of)
	for _, line := range console.Lines(t.Nack) {
		fmt.Fprintln(w, "    "+line)
	}
}

// wants says what the client asks for.
func (t *typeView) wants() string {
	var wants []string
	if t.Wildcard {
		wants = append(wants, "everything (the wildcard)")
	}
	if t.Names > 0 || !t.Wildcard {
		names := console.Things(t.Names, "name")
		if t.Resolved < t.Names {
			names += fmt.Sprintf(", %s of which the control plane has not answered", console.Count(t.Names-t.Resolved))
		}
		wants = append(wants, names)
	}
	return strings.Join(wants, ", and ")
}

func withVersion(version string) string {
	if version == "" {
		return ""
	}
	return ", version " + version
}

// steps says what the steps mean.
var steps = map[session.Step]string{
	session.StepUnacked: "sent, not acknowledged", session.StepRejected: "rejected", session.StepUnsent: "waits to be sent",
	session.StepStays: "removed, and the client has it", session.StepUnknown: "the client has some version of it", session.StepAwaited: "the control plane has not answered",
}

// lacks lists the names of a type with which the client is not in step.
func (d *clientDetail) lacks(w io.Writer, of cache.TypeURL, all bool, now time.Time) {
	table := console.NewTable("  ", "NAME", "STEP", "LAST SENT", "RELAY HAS", "CHANGED")
	count := 0
	for _, n := range d.Names {
		if n.Type != of || n.Step == session.StepSynced {
			continue
		}
		if count++; all || count <= fewNames {
			changed := "-"
			if !n.ChangedAt.IsZero() {
				changed = console.Ago(n.ChangedAt, now)
			}
			table.Row(n.Name, steps[n.Step], orDash(n.Sent), orDash(n.Now), changed)
		}
	}
	if count == 0 {
		return
	}
	_ = table.Write(w) // an error is met again below
	if !all && count > fewNames {
		fmt.Fprintf(w, "  and %s more, --all lists them\n", console.Count(count-fewNames))
	}
	fmt.Fprintf(w, "  xds-relay diff %d %s says what would change\n", d.Stream, console.Clean(cmp.Or(shortType(of), string(of))))
}
