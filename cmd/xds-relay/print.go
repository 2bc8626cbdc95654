package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/deploy/schema"
	"github.com/xds-relay/xds-relay/internal/config"
)

func newPrintConfig() *cobra.Command {
	var s settings
	var mode, format string
	cmd := &cobra.Command{
		Use:   "print-config",
		Short: "Print the configuration that a file and flags make up, defaults filled in",
		Long: `Print every key with its value: what the file, an environment variable or a flag says, or
else the default. It is a file that serve reads. The values of headers, and what
addresses hold before an @, are [redacted], unless --mode is full-unsafe.`,
		Example: `  xds-relay print-config -c relay.yaml
  xds-relay print-config -c relay.yaml --set timers.settle=50ms --format json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if mode != "redacted" && mode != "full-unsafe" {
				return &usageError{fmt.Errorf("--mode is %q; use redacted or full-unsafe", mode)}
			}
			c, err := s.load(cmd)
			if err != nil {
				return err
			}
			print, ok := map[string]func(*config.Config, bool) ([]byte, error){"yaml": (*config.Config).YAML, "json": (*config.Config).JSON}[format]
			if !ok {
				return &usageError{fmt.Errorf("--format is %q; use yaml or json", format)}
			}
			out, err := print(c, mode == "full-unsafe")
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(out)
			return err
		},
	}
	s.register(cmd)
	cmd.Flags().StringVar(&mode, "mode", "redacted", "redacted, or full-unsafe to show secrets")
	cmd.Flags().StringVar(&format, "format", "yaml", "yaml or json")
	return cmd
}

func newSchema() *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of the configuration file",
		Long:    `Print the JSON Schema of the configuration file, for editors and programs that write one.`,
		Example: `  xds-relay schema > xds-relay.schema.json`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(schema.JSON)
			return err
		},
	}
}
