package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/adminclient"
	"github.com/xds-relay/xds-relay/internal/console"
)

// resourceView is a resource of the relay.
type resourceView struct {
	Group    string              `json:"group"`
	Type     cache.TypeURL       `json:"type"`
	Name     string              `json:"name"`
	Wildcard bool                `json:"wildcard"`
	State    string              `json:"state"`
	Cause    string              `json:"cause,omitempty"`
	Version  string              `json:"version,omitempty"`
	Upstream string              `json:"upstream_version,omitempty"`
	Aliases  []string            `json:"aliases,omitempty"`
	Bytes    int64               `json:"bytes,omitempty"`
	Changed  time.Time           `json:"changed_at,omitzero"`
	Before   time.Time           `json:"changed_before,omitzero"`
	Previous string              `json:"previous_version,omitempty"`
	Clients  int                 `json:"clients"`
	Holders  []downstream.Holder `json:"holders,omitempty"`
	Linger   bool                `json:"lingering,omitempty"`
	Error    string              `json:"error,omitempty"`
	Doubt    bool                `json:"doubt,omitempty"`
	Held     time.Time           `json:"removal_held_until,omitzero"`
	Expires  time.Time           `json:"expires,omitzero"`
}

// typeSum counts the resources of a type of a group.
type typeSum struct {
	Group     string        `json:"group"`
	Type      cache.TypeURL `json:"type"`
	Resources int           `json:"resources"`
	Bytes     int64         `json:"bytes"`
	Absent    int           `json:"absent"`
	Held      int           `json:"removals_held"`
	Wildcards int           `json:"wildcard_clients"`
	Named     int           `json:"named_subscriptions"`
}

// resources says which resources are asked for, and how they are shown.
type resources struct {
	asking
	format
	group, prefix string
	limit         int
}

func newResources() *cobra.Command {
	r := new(resources)
	cmd := &cobra.Command{
		Use:   "resources [TYPE [NAME]]",
		Short: "Show what a running relay has, when it changed, and which clients still have another version",
		Long: `Show how many resources a running relay has of each type; with TYPE, such as CDS, the names,
versions and changes of the type; with NAME also how many clients have which version.
ABSENT are names that clients ask for and that do not exist, REMOVALS HELD what the guard against
mass removals holds back, WILDCARD CLIENTS those that ask for all of the type, and NAMED SUBSCRIPTIONS
what the others ask for, together. A resource is listed twice if some clients ask for it by name, and
others for all.
Bodies, and versions of Secrets, are not shown.

` + askingHelp,
		Example: `  xds-relay resources
  xds-relay resources CDS --prefix outbound
  xds-relay resources CDS checkout`,
		Args: atMost(2, "one type and one name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.check(); err != nil {
				return err
			}
			if r.limit < 1 {
				return &usageError{fmt.Errorf("--limit is %d; use a number above 0", r.limit)}
			}
			relay, err := r.open()
			if err != nil {
				return err
			}
			defer relay.Close()
			ctx, stop := interruptible(cmd)
			defer stop()
			ctx, cancel := context.WithTimeout(ctx, askWithin)
			defer cancel()
			query := url.Values{}
			if r.group != "" {
				query.Set("group", r.group)
			}
			if r.prefix != "" {
				query.Set("prefix", r.prefix)
			}
			if len(args) == 0 {
				return r.sums(ctx, relay, query, cmd.OutOrStdout())
			}
			query.Set("type", args[0])
			if len(args) > 1 {
				query.Set("name", args[1])
				return r.one(ctx, relay, query, cmd.OutOrStdout())
			}
			return r.list(ctx, relay, query, cmd.OutOrStdout())
		},
	}
	r.asking.register(cmd)
	r.format.register(cmd, "table", "json", "yaml")
	cmd.Flags().StringVar(&r.group, "group", "", "only this group")
	cmd.Flags().StringVar(&r.prefix, "prefix", "", "only names that begin like this")
	cmd.Flags().IntVar(&r.limit, "limit", 1000, "how many resources to list")
	return cmd
}

// sums shows what there is of each type.
func (r *resources) sums(ctx context.Context, relay *adminclient.Client, query url.Values, w io.Writer) error {
	query.Set("summary", "")
	var sums []typeSum
	if err := relay.Get(ctx, "/resources", query, &sums); err != nil {
		return answered(err)
	}
	if printed, err := r.data(w, struct {
		Types []typeSum `json:"types"`
	}{append([]typeSum{}, sums...)}); printed {
		return err
	}
	if len(sums) == 0 {
		fmt.Fprintln(w, "no resources")
		return nil
	}
	slices.SortStableFunc(sums, func(a, b typeSum) int { return byRank(a.Type, b.Type) })
	t := console.NewTable("", "TYPE", "GROUP", "RESOURCES", "SIZE", "ABSENT", "REMOVALS HELD", "WILDCARD CLIENTS", "NAMED SUBSCRIPTIONS")
	for _, s := range sums {
		t.Row(shortType(s.Type), s.Group, console.Count(s.Resources), console.Bytes(s.Bytes), console.Count(s.Absent), console.Count(s.Held), console.Count(s.Wildcards), console.Count(s.Named))
	}
	return t.Write(w)
}

// ask asks for resources, at most so many.
func (r *resources) ask(ctx context.Context, relay *adminclient.Client, query url.Values) (all []resourceView, more bool, err error) {
	all = []resourceView{}
	for len(all) < r.limit {
		query.Set("limit", fmt.Sprint(min(r.limit-len(all), 10_000)))
		var page struct {
			Resources []resourceView `json:"resources"`
			Continue  string         `json:"continue"`
		}
		if err := relay.Get(ctx, "/resources", query, &page); err != nil {
			return nil, false, answered(err)
		}
		all = append(all, page.Resources...)
		if page.Continue == "" {
			return all, false, nil
		}
		query.Set("continue", page.Continue)
	}
	return all, true, nil
}

// list shows the names of a type.
func (r *resources) list(ctx context.Context, relay *adminclient.Client, query url.Values, w io.Writer) error {
	all, more, err := r.ask(ctx, relay, query)
	if err != nil {
		return err
	}
	if printed, err := r.data(w, struct {
		Resources []resourceView `json:"resources"`
		More      bool           `json:"more,omitempty"`
	}{all, more}); printed {
		return err
	}
	if len(all) == 0 {
		fmt.Fprintln(w, "no resources")
		return nil
	}
	now := time.Now()
	t := console.NewTable("", "NAME", "GROUP", "ASKED FOR", "STATE", "VERSION", "UPSTREAM VERSION", "SIZE", "CHANGED", "CLIENTS")
	for _, e := range all {
		t.Row(e.Name, e.Group, e.by(), e.state(), orDash(e.Version), orDash(e.Upstream), console.Bytes(e.Bytes), e.changed(now), console.Count(e.Clients))
	}
	if err := t.Write(w); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(w, "\nthere are more; use --limit, or --prefix for names that begin like something\n")
	}
	return nil
}

// state is whether there is a resource, and if not, why.
func (e *resourceView) state() string {
	text := e.State
	if e.State == "absent" && e.Cause != "" {
		text += " (" + e.Cause + ")"
	}
	if e.Doubt {
		text += ", in doubt"
	}
	if !e.Held.IsZero() {
		text += ", removal held back"
	}
	if e.Linger {
		text += ", lingers"
	}
	return text
}

// by is how upstream was asked for it: a resource that clients ask for in both ways stands there twice (WILD-16).
func (e *resourceView) by() string {
	if e.Wildcard {
		return "by wildcard"
	}
	return "by name"
}

// changed is when the response came that made it what it is.
func (e *resourceView) changed(now time.Time) string {
	switch {
	case !e.Changed.IsZero():
		return console.Ago(e.Changed, now)
	case !e.Before.IsZero():
		return "more than " + console.Ago(e.Before, now)
	}
	return "-"
}

// one shows a resource, and who has which version of it.
func (r *resources) one(ctx context.Context, relay *adminclient.Client, query url.Values, w io.Writer) error {
	all, _, err := r.ask(ctx, relay, query)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("the relay has nothing named %q of this type, and no client asks for it", query.Get("name"))
	}
	if printed, err := r.data(w, struct {
		Resources []resourceView `json:"resources"`
	}{all}); printed {
		return err
	}
	now := time.Now()
	for i, e := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		t := console.NewTable("")
		t.Row("name", e.Name)
		t.Row("type", shortType(e.Type))
		t.Row("group", e.Group)
		t.Row("asked for", e.by())
		t.Row("state", e.state())
		t.Row("version", orDash(e.Version))
		t.Row("upstream version", orDash(e.Upstream))
		t.Row("previous version", orDash(e.Previous))
		t.Row("changed", e.changed(now))
		if e.Error != "" {
			t.Row("error", e.Error)
		}
		if !e.Expires.IsZero() {
			t.Row("TTL ends in", console.For(e.Expires.Sub(now)))
		}
		if err := t.Write(w); err != nil {
			return err
		}
		fmt.Fprint(w, e.holders())
	}
	return nil
}

// holders says how many clients have the version that there is, and what the others have.
func (e *resourceView) holders() string {
	total, current := 0, 0
	for _, h := range e.Holders {
		total += h.Clients
		if h.Step == session.StepSynced {
			current += h.Clients
		}
	}
	if total == 0 {
		return "no client has it, or asks for it\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s in step\n", console.Count(current), console.Things(total, "client"))
	for _, h := range e.Holders {
		if h.Step == session.StepSynced {
			continue
		}
		has := "still have version " + console.Clean(h.Version)
		switch {
		case h.Step == session.StepUnacked, h.Step == session.StepRejected:
			has = "were sent version " + console.Clean(h.Version)
		case h.Version == "" && h.Step == session.StepUnsent:
			has = "have nothing"
		case h.Version == "":
			has = "have some version, or none"
		}
		fmt.Fprintf(&b, "  %s of %s %s: %s\n", console.Count(h.Clients), console.Count(total), has, steps[h.Step])
	}
	return b.String()
}
