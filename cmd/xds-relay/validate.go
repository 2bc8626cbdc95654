package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/internal/relay"
)

func newValidate() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check a configuration and the files it names",
		Long: `Check a configuration, and that the certificates, keys, tokens and directories it names
can be used. What serve would refuse is refused, and so is what it would do without.
Exits with 0 if all is well; else with 2, and every mistake with its line, column
and what to do. A note is about what is valid, and may not be what was meant, or about
a certificate that can be used and has expired, or soon will have.`,
		Example: `  xds-relay validate -c relay.yaml`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.load(cmd)
			if err != nil {
				return err
			}
			if err := relay.CheckAll(c); err != nil {
				return &usageError{err}
			}
			for _, note := range append(c.Notes(), c.FileNotes(time.Now())...) {
				fmt.Fprintf(cmd.OutOrStdout(), "note: %v\n", note)
			}
			rules, err := relay.LoadRules(c)
			if err != nil {
				return &usageError{err} // it has changed since it was checked
			}
			if rules != nil {
				for _, note := range rules.Notes() {
					fmt.Fprintf(cmd.OutOrStdout(), "note: %s: %s\n", c.Authz.RulesFile, note)
				}
			}
			if hint := s.unread(); hint != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "note: %s\n", hint)
			}
			fmt.Fprintln(cmd.OutOrStdout(), "the configuration is valid")
			return nil
		},
	}
	s.register(cmd)
	return cmd
}
