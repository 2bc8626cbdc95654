package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/internal/adminclient"
	"github.com/xds-relay/xds-relay/internal/console"
	"github.com/xds-relay/xds-relay/internal/events"
)

func newEvents() *cobra.Command {
	var a asking
	var o eventsOptions
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show what to act on: NACKs, clients that are not in step, control planes that are lost",
		Long: `Show what a running relay says that somebody should act on, and when that is over: clients
that reject a response, or are not in step for admin.stale_after; removals that are held back; control
planes that are lost and come back; configuration, certificates and rules that were reloaded or
refused. The relay has the latest 10,000 in memory. With --follow others are shown as they come.

` + askingHelp + `

Exits with 0; with 1 if the relay does not answer, or a stream of events ends; with 2 if the
command line is wrong.`,
		Example: `  xds-relay events
  xds-relay events --follow --kind nack,nack_over
  xds-relay events --since 10m -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return askUntilInterrupted(cmd, a, func(ctx context.Context, c *adminclient.Client) error { return o.run(ctx, c, cmd.OutOrStdout()) })
		},
	}
	a.register(cmd)
	f := cmd.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "go on with events as they come, until Ctrl-C")
	f.StringVar(&o.since, "since", "", "only those after an event's id, or of a time until now, as in 10m")
	f.StringSliceVar(&o.kinds, "kind", nil, "only those of some kinds, as in nack,stale")
	f.StringVarP(&o.output, "output", "o", "table", "table or json; with --follow one object for each line")
	completeWords(cmd, "output", "table", "json")
	return cmd
}

// askUntilInterrupted asks a relay until Ctrl-C.
func askUntilInterrupted(cmd *cobra.Command, a asking, f func(context.Context, *adminclient.Client) error) error {
	c, err := a.open()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, stop := interruptible(cmd)
	defer stop()
	if err = f(ctx, c); ctx.Err() != nil {
		return nil // it was told to end
	}
	if refused := (*adminclient.StatusError)(nil); errors.As(err, &refused) && refused.Code/100 == 4 && refused.Code != 404 {
		return &usageError{err}
	}
	return err
}

type eventsOptions struct {
	follow        bool
	since, output string
	kinds         []string
}

// eventList is what /events answers.
type eventList struct {
	Events []events.Event `json:"events"`
	Last   uint64         `json:"last"`
	More   bool           `json:"more,omitempty"`
	Lost   bool           `json:"lost,omitempty"`
}

func (o *eventsOptions) run(ctx context.Context, c *adminclient.Client, out io.Writer) error {
	if o.output != "table" && o.output != "json" {
		return &usageError{fmt.Errorf("-o is %q; use table or json", o.output)}
	}
	id, from, err := sinceOf(o.since, time.Now())
	if err != nil {
		return err
	}
	all, err := o.list(ctx, c, id, from)
	if err != nil {
		return err
	}
	if o.output == "json" && !o.follow {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(all)
	}
	show := o.shower(out)
	for _, e := range all.Events {
		if err := show(e); err != nil {
			return err
		}
	}
	if !o.follow {
		return nil
	}
	return o.followFrom(ctx, c, all.Last, show)
}

// list is all events after an ID, or from a time on.
func (o *eventsOptions) list(ctx context.Context, c *adminclient.Client, id uint64, from time.Time) (all eventList, err error) {
	all.Events = []events.Event{}
	query := o.query()
	query.Set("limit", strconv.Itoa(events.Most))
	if o.follow && o.since == "" {
		query.Set("limit", "10") // as much as others show that go on
	}
	for {
		if id != 0 {
			query.Set("since", strconv.FormatUint(id, 10))
		}
		var page eventList
		if err := c.Get(ctx, "/events", query, &page); err != nil {
			return all, err
		}
		for _, e := range page.Events {
			if !e.Time.Before(from) {
				all.Events = append(all.Events, e)
			}
		}
		id, all.Last, all.Lost = page.Last, page.Last, all.Lost || page.Lost
		if !page.More {
			return all, nil
		}
	}
}

func (o *eventsOptions) query() url.Values {
	query := url.Values{}
	if len(o.kinds) > 0 {
		query.Set("kind", strings.Join(o.kinds, ","))
	}
	return query
}

// followFrom shows the events after an ID as they come.
func (o *eventsOptions) followFrom(ctx context.Context, c *adminclient.Client, id uint64, show func(events.Event) error) error {
	query := o.query()
	query.Set("follow", "")
	query.Set("since", strconv.FormatUint(id, 10))
	return followStream(ctx, c, "/events", query, show)
}

// followStream shows what a stream of events has, until it ends. What was lost is said on standard error.
func followStream[T any](ctx context.Context, c *adminclient.Client, path string, query url.Values, show func(T) error) error {
	for e, err := range c.Stream(ctx, path, query) {
		if err != nil {
			return err
		}
		if e.Name == "lost" {
			fmt.Fprintf(os.Stderr, "xds-relay: some were lost, because this reader is too slow: %s\n", console.Clean(string(e.Data)))
			continue
		}
		var v T
		if err := json.Unmarshal(e.Data, &v); err != nil {
			return fmt.Errorf("the relay at %s said what cannot be read: %w; is it of another version?", c.Address(), err)
		}
		if err := show(v); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the relay at %s has ended the stream; it may be shutting down", c.Address())
}

// sinceOf reads --since: the ID of an event, or for how long before now.
func sinceOf(text string, now time.Time) (id uint64, from time.Time, err error) {
	if text == "" {
		return 0, time.Time{}, nil
	}
	if id, err = strconv.ParseUint(text, 10, 64); err == nil {
		return id, time.Time{}, nil
	}
	ago, err := time.ParseDuration(text)
	if err != nil || ago < 0 {
		return 0, time.Time{}, &usageError{fmt.Errorf("--since is %q; use the id of an event, or a time such as 10m", text)}
	}
	return 0, now.Add(-ago), nil
}

// shower shows events one by one.
func (o *eventsOptions) shower(out io.Writer) func(events.Event) error {
	if o.output == "json" {
		e := json.NewEncoder(out)
		return func(event events.Event) error { return e.Encode(event) }
	}
	first := true
	return func(e events.Event) (err error) {
		if first {
			first = false
			_, err = fmt.Fprintf(out, eventRow, "TIME", "LEVEL", "KIND", "TYPE", "ABOUT", "MESSAGE")
		}
		if err == nil {
			_, err = fmt.Fprintf(out, eventRow, e.Time.Local().Format(time.DateTime), e.Level, e.Kind, orNone(shortType(e.Type)), orNone(aboutOf(e)), messageOf(e))
		}
		return err
	}
}

// eventRow has widths that most values fit into: events come one by one.
const eventRow = "%-19s  %-5s  %-22s  %-6s  %-30s  %s\n"

func orNone(s string) string { return orDash(console.Clean(s)) }

// aboutOf is what an event is about: the client, the control plane, or the group.
func aboutOf(e events.Event) string {
	switch {
	case e.Client != nil && e.Client.Node != "":
		return fmt.Sprintf("%s (%d)", e.Client.Node, e.Client.Stream)
	case e.Client != nil:
		return fmt.Sprintf("%s (%d)", e.Client.Peer, e.Client.Stream)
	case e.ControlPlane != "":
		return e.ControlPlane
	}
	return e.Group
}

// messageOf is an event's message with what belongs to it, in one line.
func messageOf(e events.Event) string {
	text := console.Clean(e.Message)
	if len(e.Names) > 0 {
		names := console.Clean(strings.Join(e.Names, ", "))
		if more := e.Count - len(e.Names); more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		text = names + ": " + text
	} else if e.Count > 0 {
		text = fmt.Sprintf("%d: %s", e.Count, text)
	}
	if !e.Since.IsZero() {
		text += ", since " + e.Since.Local().Format(time.TimeOnly)
	}
	if e.Times > 1 {
		text += fmt.Sprintf(" (%d times since %s)", e.Times, e.First.Local().Format(time.TimeOnly))
	}
	return text
}
