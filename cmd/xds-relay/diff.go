package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/console"
)

// bodyView is one version of a resource.
type bodyView struct {
	Version string          `json:"version"`
	Bytes   int             `json:"bytes"`
	Body    json.RawMessage `json:"body,omitempty"`
	Omitted string          `json:"omitted,omitempty"`
}

// known reports whether it is known what a side has: its body is there, or it has nothing.
func (b *bodyView) known() bool { return b == nil || b.Body != nil }

// differenceView is a resource that a client does not have as the relay has it.
type differenceView struct {
	nameView
	Probably bool      `json:"probably,omitempty"`
	Client   *bodyView `json:"client,omitempty"`
	Relay    *bodyView `json:"relay,omitempty"`
	// Changes are the fields that differ, if both are known.
	Changes []console.Change `json:"changes,omitempty"`
}

// diffView is what diff shows. As JSON it is stable.
type diffView struct {
	downstream.Client
	Differences []differenceView `json:"differences"`
	More        bool             `json:"more,omitempty"`
}

func newDiff() *cobra.Command {
	var a asking
	var f format
	var limit string
	cmd := &cobra.Command{
		Use:   "diff CLIENT [TYPE]",
		Short: "Show what would change at a client: what the relay has, against what the client acknowledged",
		Long: `Show, for each resource with which a client is not in step, what the client acknowledged
and what the relay has, field by field:

  ~ connect_timeout: "5s" → "10s"     a field with another value
  + lb_policy: "RING_HASH"            a field that only the relay's version has
  - health_checks[0]: {…}             a field that only the client's version has

The relay remembers one former version of each resource, within admin.history bytes. Where
it is not certain that this is the one that the client has, it says "probably". Of Secrets
only the names are shown; sensitive fields and inline data are [redacted]. Exits with 0
whether something differs or not.

` + askingHelp,
		Example: `  xds-relay diff envoy-1
  xds-relay diff 17 CDS
  xds-relay diff envoy-1 EDS -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &usageError{fmt.Errorf("diff needs a client, the number of a stream or a node id; xds-relay ps lists them")}
			}
			return atMost(2, "one client and one type")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			relay, err := a.open()
			if err != nil {
				return err
			}
			defer relay.Close()
			ctx, stop := interruptible(cmd)
			defer stop()
			ctx, cancel := context.WithTimeout(ctx, askWithin)
			defer cancel()
			stream, err := findClient(ctx, relay, args[0])
			if err != nil {
				return err
			}
			query := url.Values{"limit": {limit}}
			if len(args) > 1 {
				query.Set("type", args[1])
			}
			d := new(diffView)
			if err := relay.Get(ctx, fmt.Sprintf("/clients/%d/diff", stream), query, d); err != nil {
				return answered(err)
			}
			for i := range d.Differences {
				if err := d.Differences[i].compare(); err != nil {
					return err
				}
			}
			if printed, err := f.data(cmd.OutOrStdout(), d); printed {
				return err
			}
			d.print(cmd.OutOrStdout(), time.Now())
			return nil
		},
	}
	a.register(cmd)
	f.register(cmd, "text", "json", "yaml")
	cmd.Flags().StringVar(&limit, "limit", "100", "how many resources to look at, 1000 at most")
	return cmd
}

// compare finds the fields that differ. What one side lacks is compared with nothing.
func (d *differenceView) compare() (err error) {
	body := func(b *bodyView) json.RawMessage {
		if b == nil {
			return json.RawMessage("{}")
		}
		return b.Body
	}
	if !d.comparable() {
		return nil
	}
	d.Changes, err = console.Differences(body(d.Client), body(d.Relay))
	return err
}

// comparable reports whether it is known what either side has: a body, or that there is nothing.
func (d *differenceView) comparable() bool {
	if d.Client == nil && d.Probably {
		return false // it may have a version that the relay does not remember
	}
	return d.Client.known() && d.Relay.known()
}

// differsHidden reports whether the two versions differ, and nothing that may be shown does.
func (d *differenceView) differsHidden() bool {
	if d.Client == nil || d.Relay == nil {
		return false
	}
	return len(d.Changes) == 0 && d.Client.Version != d.Relay.Version
}

func (d *diffView) print(w io.Writer, now time.Time) {
	if len(d.Differences) == 0 {
		fmt.Fprintf(w, "%s (stream %d) has what the relay has\n", console.Clean(d.Node), d.Stream)
		return
	}
	for i := range d.Differences {
		if i > 0 {
			fmt.Fprintln(w)
		}
		d.Differences[i].print(w, now)
	}
	if d.More {
		fmt.Fprintln(w, "\nthere are more; see --limit")
	}
}

func (d *differenceView) print(w io.Writer, now time.Time) {
	fmt.Fprintf(w, "%s %s: %s", console.Clean(shortType(d.Type)), console.Clean(d.Name), steps[d.Step])
	if !d.ChangedAt.IsZero() {
		fmt.Fprintf(w, ", changed %s", console.Ago(d.ChangedAt, now))
	}
	fmt.Fprintln(w)
	if d.Step == session.StepAwaited {
		return
	}
	if d.Client == nil && d.Relay == nil {
		fmt.Fprintln(w, "  what is in it is not shown")
		return
	}
	fmt.Fprintf(w, "  --- client  %s\n  +++ relay   %s\n", d.side(d.Client, d.Probably), d.side(d.Relay, false))
	switch {
	case !d.comparable():
	case d.differsHidden():
		fmt.Fprintln(w, "  they differ only in what is not shown")
	default:
		for _, c := range d.Changes {
			fmt.Fprintln(w, "  "+c.String())
		}
	}
}

// side says which version one side has.
func (d *differenceView) side(b *bodyView, probably bool) string {
	text := "nothing"
	switch {
	case b == nil && probably:
		return "not known: no former version is remembered (admin.history); perhaps the client has none"
	case b != nil && b.Version == "":
		text = "some version"
	case b != nil:
		text = "version " + console.Clean(b.Version)
	}
	if b != nil && b.Bytes > 0 {
		text += ", " + console.Bytes(int64(b.Bytes))
	}
	if probably {
		text += ", probably"
	}
	if b != nil && b.Omitted != "" {
		text += "; not shown: " + console.Clean(b.Omitted)
	}
	return text
}
