package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/internal/adminclient"
	"github.com/xds-relay/xds-relay/internal/config"
)

// addressEnv names the address of a running relay's probes, for commands that ask it.
const addressEnv = "XDS_RELAY_ADDRESS"

// defaultAddress is the admin address of all examples.
const defaultAddress = "127.0.0.1:18001"

func newHealthcheck() *cobra.Command {
	var address, file string
	var live bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask a running relay whether it is ready, or alive",
		Long: `Ask a running relay for /readyz, or with --live for /livez, where an image has no
shell and no curl. Prints what it answers. Exits with 0 if all is well, and with 1 if
not, or if nobody answers.

It asks at --address, else at $` + addressEnv + `, else where -c says that the relay
listens (metrics.listen, or admin.listen), else at ` + defaultAddress + `.`,
		Example: `  xds-relay healthcheck
  xds-relay healthcheck --live --address unix:///run/xds-relay/admin.sock
  xds-relay healthcheck -c /etc/xds-relay/relay.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := probeAddress(cmp.Or(address, os.Getenv(addressEnv)), file)
			if err != nil {
				return err
			}
			path := "/readyz"
			if live {
				path = "/livez"
			}
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			answer, err := askProbe(ctx, at, path)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), answer)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&address, "address", "", "address of the relay's probes, host:port or unix:///path")
	f.StringVarP(&file, "config", "c", "", "configuration file that names the address")
	f.BoolVar(&live, "live", false, "ask whether it is alive, whatever it waits for")
	f.DurationVar(&timeout, "timeout", 3*time.Second, "how long to wait for an answer")
	completeFiles(cmd, "config", "yaml", "yml")
	return cmd
}

// probeAddress is where a relay is to be asked.
func probeAddress(address, file string) (string, error) {
	if address != "" || file == "" {
		return strings.TrimSuffix(strings.TrimPrefix(cmp.Or(address, defaultAddress), "http://"), "/"), nil
	}
	c, err := config.Load(file, nil)
	if err != nil {
		return "", err
	}
	address = cmp.Or(c.Metrics.Listen, c.Admin.Listen)
	if address == "" {
		return "", fmt.Errorf("%s sets neither metrics.listen nor admin.listen, so the relay answers no probes; set one, or give --address", file)
	}
	return address, nil
}

// askProbe asks a relay on this host, or another one. The error says why all is not well.
func askProbe(ctx context.Context, address, path string) (answer string, err error) {
	relay, err := adminclient.New(address)
	if err != nil {
		return "", err
	}
	defer relay.Close()
	return relay.Text(ctx, path, nil)
}
