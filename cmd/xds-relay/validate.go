package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/origin/files"
	"github.com/xds-relay/xds-relay/internal/relay"
)

func newValidate() *cobra.Command {
	var s settings
	var strict bool
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check a configuration and the files it names",
		Long: `Check a configuration, and that the certificates, keys, tokens and directories it names
can be used. What serve would refuse is refused, and so is what it would do without.
Exits with 0 if all is well; else with 2, and every mistake with its line, column
and what to do. A note is about what is valid, and may not be what was meant, or about
a certificate that can be used and has expired, or soon will have.

Files that are served in place of a control plane (files:///path, --from) are read, too. Notes
about them are what a client would reject or miss: values that Envoy's API does not allow,
clusters of type EDS without endpoints, routes to clusters that are not there. With --strict
such a note is a mistake.`,
		Example: `  xds-relay validate -c relay.yaml
  xds-relay validate --strict --from /etc/xds`,
		Args: noArgs,
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
			doubts, err := fromFiles(cmd, c)
			if err != nil {
				return err
			}
			if hint := s.unread(); hint != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "note: %s\n", hint)
			}
			if strict && doubts > 0 {
				return &usageError{fmt.Errorf("%d notes about files, which --strict takes for mistakes", doubts)}
			}
			fmt.Fprintln(cmd.OutOrStdout(), "the configuration is valid")
			return nil
		},
	}
	s.register(cmd)
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 2 if there are notes about files of resources")
	return cmd
}

// fromFiles reads the files that are served, and prints what they hold and the notes about them.
func fromFiles(cmd *cobra.Command, c *config.Config) (notes int, err error) {
	out := cmd.OutOrStdout()
	err = relay.CheckFromFiles(c, func(section, path string, s *files.Set) {
		fmt.Fprintf(out, "%s: %s: %d files, %d types, %d resources\n", section, path, s.Files, len(s.Resources), s.Count())
		for _, note := range s.Notes() {
			notes++
			fmt.Fprintf(out, "note: %s\n", note)
		}
	})
	if err != nil {
		err = &usageError{err}
	}
	return notes, err
}
