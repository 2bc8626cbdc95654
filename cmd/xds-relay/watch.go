package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/internal/adminclient"
	"github.com/xds-relay/xds-relay/internal/console"
	"github.com/xds-relay/xds-relay/internal/events"
)

func newWatch() *cobra.Command {
	var a asking
	var typ, output string
	cmd := &cobra.Command{
		Use:   "watch [CLIENT]",
		Short: "Show requests and responses as they come, without bodies",
		Long: `Show what clients and a running relay say to each other, as they say it, until Ctrl-C: what is asked for, sent,
accepted and rejected, without bodies and without versions of secrets. CLIENT is the number of a
stream, as in /clients, or the id of a node. Nothing is slowed by it: who reads too slowly loses the
oldest, and is told how many.

` + askingHelp + `

Exits with 0 at Ctrl-C; with 1 if the relay does not answer, or ends; with 2 if the command line
is wrong.`,
		Example: `  xds-relay watch
  xds-relay watch envoy-1 --type CDS
  xds-relay watch 17 -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return &usageError{fmt.Errorf("there are %d arguments; name one client, or none for all", len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "table" && output != "json" {
				return &usageError{fmt.Errorf("-o is %q; use table or json", output)}
			}
			query := url.Values{}
			if typ != "" {
				query.Set("type", typ)
			}
			if len(args) == 1 {
				query.Set(clientParameter(args[0]), args[0])
			}
			return askUntilInterrupted(cmd, a, func(ctx context.Context, c *adminclient.Client) error {
				return followStream(ctx, c, "/watch", query, messageShower(cmd.OutOrStdout(), output))
			})
		},
	}
	a.register(cmd)
	f := cmd.Flags()
	f.StringVar(&typ, "type", "", "only one type, as CDS or a type URL")
	f.StringVarP(&output, "output", "o", "table", "table, or json: one object for each line")
	completeWords(cmd, "output", "table", "json")
	return cmd
}

// clientParameter says what names a client: the number of its stream, or its node.
func clientParameter(client string) string {
	if _, err := strconv.ParseUint(client, 10, 64); err == nil {
		return "stream"
	}
	return "node"
}

// messageRow has widths that most values fit into.
const messageRow = "%-12s  %-24s  %-10s  %-6s  %-16s  %s\n"

func messageShower(out io.Writer, output string) func(events.Message) error {
	if output == "json" {
		e := json.NewEncoder(out)
		return func(m events.Message) error { return e.Encode(m) }
	}
	first := true
	return func(m events.Message) (err error) {
		if first {
			first = false
			_, err = fmt.Fprintf(out, messageRow, "TIME", "CLIENT", "", "TYPE", "NONCE", "")
		}
		if err == nil {
			_, err = fmt.Fprintf(out, messageRow, m.Time.Local().Format("15:04:05.000"), saidBy(m), arrow(m.Kind), orNone(shortType(m.Type)), orNone(m.Nonce), contents(m))
		}
		return err
	}
}

// saidBy is the client of a message, and its stream, unless the message is of a unary call.
func saidBy(m events.Message) string {
	if m.Stream == 0 {
		return console.Clean(m.Node) + " (call)"
	}
	return fmt.Sprintf("%s (%d)", console.Clean(m.Node), m.Stream)
}

// arrow says which way a message goes.
func arrow(kind events.MessageKind) string {
	if kind == events.Response {
		return "<- sent"
	}
	return "-> " + string(kind)
}

// contents is what a message has, in some words.
func contents(m events.Message) string {
	var said []string
	count := func(n int, what string) {
		if n > 0 {
			said = append(said, fmt.Sprintf("%d %s", n, what))
		}
	}
	count(m.Asked, "asked for")
	count(m.Unsubscribe, "given up")
	count(m.Resources, "resources")
	count(m.Removed, "removed")
	count(m.Errors, "errors")
	if len(m.Names) > 0 {
		names := strings.Join(m.Names, ", ")
		if m.Asked+m.Resources+m.Removed > len(m.Names) {
			names += ", ..."
		}
		said = append(said, names)
	}
	if m.Version != "" {
		said = append(said, "version "+m.Version)
	}
	if m.Nack != "" {
		said = append(said, "rejected: "+m.Nack)
	}
	return console.Clean(strings.Join(append(said, fmt.Sprintf("%d B", m.Bytes)), "; "))
}
