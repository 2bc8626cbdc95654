package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
	network, dial, err := config.SplitListen(address)
	if err != nil {
		return "", fmt.Errorf("address %q: %w", address, err)
	}
	if host, port, err := net.SplitHostPort(dial); network == "tcp" && err == nil {
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			dial = net.JoinHostPort("localhost", port) // what listens on all addresses listens here
		}
	}
	var d net.Dialer
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, network, dial) },
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "", fmt.Errorf("%s does not answer %s in time; the relay may be stuck, or something else listens there", address, path)
	case err != nil && !failedToDial(err):
		return "", fmt.Errorf("what listens at %s does not answer %s as a relay does: %w; is this admin.listen or metrics.listen?", address, path, cause(err))
	case err != nil:
		return "", fmt.Errorf("nobody answers at %s: %w; is the relay running, with this as admin.listen or metrics.listen?", address, cause(err))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return "", err
	}
	answer = strings.TrimSpace(string(text))
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answers %s with %d: %s", address, path, resp.StatusCode, answer)
	}
	return answer, nil
}

// failedToDial: there was no connection at all.
func failedToDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// cause is an error without the URL that it was met at.
func cause(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}
