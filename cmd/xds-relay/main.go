// Command xds-relay stands between an xDS control plane and its clients: one
// upstream Delta ADS stream, fanned out to Envoys and gRPC applications over every
// variant of the protocol.
//
// It owns the command line, signals and the log. What the relay does is in the
// packages that internal/relay joins. Limitation: flags are read once, at start.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/internal/admin"
	"github.com/xds-relay/xds-relay/internal/config"
)

// version is set by the linker.
var version string

// The program's exit codes.
const (
	exitFailure = 1 // it could not serve, or not go on
	exitUsage   = 2 // the command line or the configuration is wrong
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int { return execute(args, os.Stdout, os.Stderr) }

// execute runs a command line, and returns the exit code.
func execute(args []string, out, errs io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.Execute()
	if err == nil {
		return 0
	}
	if cut := (*cutShort)(nil); errors.As(err, &cut) {
		return cut.code() // it is in the log
	}
	if said := (*saidError)(nil); errors.As(err, &said) {
		return exitFailure
	}
	fmt.Fprintln(errs, message(err))
	if usage := (*usageError)(nil); errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailure
}

// usageError is a mistake in the command line or the configuration.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// saidError is in the log already, or an answer that has been printed.
type saidError struct{ err error }

func (e *saidError) Error() string { return e.err.Error() }
func (e *saidError) Unwrap() error { return e.err }

// message is an error as people read it: the configuration's as they are, with
// line, column and caret, others with the program's name.
func message(err error) string {
	if len(config.All(err)) > 0 {
		return err.Error()
	}
	return "xds-relay: " + err.Error()
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:     "xds-relay",
		Short:   "Relay xDS configuration from a control plane to many clients",
		Version: describe(admin.ReadBuild(version)),
		Example: `  xds-relay serve --upstream 127.0.0.1:15010 --listen 127.0.0.1:18000 --admin 127.0.0.1:18001
  xds-relay validate -c relay.yaml`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if isConfig(args[0]) {
					return &usageError{fmt.Errorf("unknown command %[1]q; did you mean %[2]s serve -c %[1]s?", args[0], cmd.CommandPath())}
				}
				return &usageError{fmt.Errorf("unknown command %q; %s", args[0], instead(cmd, args[0]))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
	})
	root.SetVersionTemplate("{{.Version}}")
	root.AddCommand(newServe(), newDemo(), newValidate(), newCheck(), newPolicy(), newPrintConfig(), newSchema(), newHealthcheck(), newVersion(), newMan())
	root.AddCommand(newPs(), newDiff(), newResources(), newTop(), newDump(), newDrain(), newEvents(), newWatch())
	addCompletion(root)
	return root
}

// instead suggests the command that a mistyped one may stand for.
func instead(cmd *cobra.Command, arg string) string {
	cmd.SuggestionsMinimumDistance = 2
	if s := cmd.SuggestionsFor(arg); len(s) > 0 {
		return fmt.Sprintf("did you mean %q?", s[0])
	}
	return "see " + cmd.CommandPath() + " --help"
}

// noArgs refuses arguments, as a usage error.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && cmd.Flags().Lookup("config") != nil && isConfig(args[0]) {
		return &usageError{fmt.Errorf("unexpected argument %[1]q; did you mean %[2]s -c %[1]s?", args[0], cmd.CommandPath())}
	}
	if len(args) > 0 {
		return &usageError{fmt.Errorf("unexpected argument %q; see %s --help", args[0], cmd.CommandPath())}
	}
	return nil
}
