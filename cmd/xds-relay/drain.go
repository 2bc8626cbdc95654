package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/internal/console"
)

func newDrain() *cobra.Command {
	var a asking
	var over time.Duration
	var undo bool
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Have a running relay take no new clients, and send away those that it has",
		Long: `Have a running relay report that it is not ready, so that load balancers send new clients
elsewhere. The relay goes on serving all clients. With --for it also refuses new streams,
with UNAVAILABLE, and ends the open ones one by one over that time, as a shutdown does;
the clients keep what they have, and connect to another replica.

The relay goes on running, subscribed to what clients wanted last, until --undo or its
end. A restart ends the drain, too.

` + askingHelp,
		Example: `  xds-relay drain
  xds-relay drain --for 60s
  xds-relay drain --undo`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			away := cmd.Flags().Changed("for")
			if undo && away {
				return &usageError{fmt.Errorf("--undo and --for exclude each other; give one of them")}
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
			path, query := "/drain", url.Values{}
			if undo {
				path = "/undrain"
			}
			if away {
				query.Set("for", over.String())
			}
			text, err := relay.Post(ctx, path, query)
			if err != nil {
				return answered(err)
			}
			var answer struct {
				Clients int `json:"clients"`
			}
			if err := json.Unmarshal([]byte(text), &answer); err != nil {
				return fmt.Errorf("the answer of %s to %s cannot be read: %w; is this a relay of another version?", relay.Address(), path, err)
			}
			clients := console.Things(answer.Clients, "client")
			switch {
			case undo:
				fmt.Fprintf(cmd.OutOrStdout(), "the drain is over: the relay takes new clients, and has %s\n", clients)
			case away:
				fmt.Fprintf(cmd.OutOrStdout(), "draining: the relay is not ready, takes no new clients, and sends %s away over %v; xds-relay ps shows who is left\n", clients, over)
			default:
				fmt.Fprintf(cmd.OutOrStdout(), "draining: the relay is not ready, and goes on serving %s; --for sends them away\n", clients)
			}
			return nil
		},
	}
	a.register(cmd)
	cmd.Flags().DurationVar(&over, "for", 0, "also refuse new streams, and end the open ones over so long; 0s: at once")
	cmd.Flags().BoolVar(&undo, "undo", false, "end a drain")
	return cmd
}
