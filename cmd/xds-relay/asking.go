package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/internal/adminclient"
	"github.com/xds-relay/xds-relay/internal/config"
)

// asking says where the relay is that a command asks.
type asking struct{ address, file string }

// askingHelp says where a command asks.
const askingHelp = `It asks at --address, else at $` + addressEnv + `, else where -c says that the admin endpoint
listens (admin.listen), else at ` + defaultAddress + `.`

func (a *asking) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.address, "address", "", "address of the relay's admin endpoint, host:port or unix:///path")
	f.StringVarP(&a.file, "config", "c", "", "configuration file that names the address")
	completeFiles(cmd, "config", "yaml", "yml")
}

// open returns a client of the relay, which has not been asked yet.
func (a *asking) open() (*adminclient.Client, error) {
	address := cmp.Or(a.address, os.Getenv(addressEnv))
	if address == "" && a.file != "" {
		c, err := config.Load(a.file, nil)
		if err != nil {
			return nil, err
		}
		if address = c.Admin.Listen; address == "" {
			return nil, fmt.Errorf("%s does not set admin.listen, so the relay cannot be asked; set it, as in admin: {listen: %s}, or give --address", a.file, defaultAddress)
		}
	}
	address = strings.TrimSuffix(strings.TrimPrefix(cmp.Or(address, defaultAddress), "http://"), "/")
	client, err := adminclient.New(address)
	if err != nil {
		return nil, &usageError{err}
	}
	return client, nil
}
