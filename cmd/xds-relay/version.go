package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/internal/admin"
)

func newVersion() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print what this is built from",
		Example: `  xds-relay version
  xds-relay version -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := admin.ReadBuild(version)
			switch output {
			case "json":
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(b)
			case "text":
				_, err := fmt.Fprint(cmd.OutOrStdout(), describe(b))
				return err
			}
			return &usageError{fmt.Errorf("-o is %q; use text or json", output)}
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	completeWords(cmd, "output", "text", "json")
	return cmd
}

// describe is a build as people read it.
func describe(b admin.Build) string {
	return fmt.Sprintf("xds-relay %s\n  revision  %s\n  go        %s\n  protos    %s\n  platform  %s/%s\n",
		b.Version, b.Revision, b.Go, b.Protos, b.OS, b.Arch)
}
