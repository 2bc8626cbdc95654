package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newMan prints the manual page, for packages. It says what --help says; cobra's own
// generator would bring a Markdown parser along.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:     "man",
		Short:   "Print the manual page",
		Example: "  xds-relay man > /usr/local/share/man/man1/xds-relay.1",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			manPage(cmd.OutOrStdout(), cmd.Root())
			return nil
		},
	}
}

// manPage writes a page in the man macros of roff about a program and all its commands.
func manPage(w io.Writer, root *cobra.Command) {
	fmt.Fprintf(w, ".TH %s 1 \"\" \"xds-relay\" \"User Commands\"\n", strings.ToUpper(root.Name()))
	fmt.Fprintf(w, ".SH NAME\n%s \\- %s\n", root.Name(), roff(lowerFirst(root.Short)))
	fmt.Fprintf(w, ".SH SYNOPSIS\n.B %s\n.I command\n[\\fIflags\\fR]\n", root.Name())
	fmt.Fprintf(w, ".SH DESCRIPTION\n%s.\nIt stands between a control plane and its clients, Envoy and gRPC applications, keeps a copy of the configuration, and sends each client the resources that it subscribed to.\n", roff(root.Short))
	fmt.Fprint(w, ".SH COMMANDS\n")
	manCommands(w, root)
	fmt.Fprintf(w, ".SH ENVIRONMENT\n.TP\n.B %s\nAddress of the running relay, for the commands that ask one: host:port or unix:///path.\n", addressEnv)
	fmt.Fprint(w, ".SH FILES\n.TP\n.I /etc/xds-relay/relay.yaml\nThe configuration, where packages have it. \\fBxds-relay print-config\\fR prints every key, \\fBxds-relay validate\\fR says what is wrong.\n.TP\n.I /var/lib/xds-relay\nThe last known good state, where packages have it (cache.snapshot.dir).\n")
	fmt.Fprint(w, ".SH SEE ALSO\nhttps://github.com/xds-relay/xds-relay\n")
}

func manCommands(w io.Writer, parent *cobra.Command) {
	for _, cmd := range parent.Commands() {
		if !cmd.IsAvailableCommand() || cmd.Name() == "help" {
			continue
		}
		if cmd.HasAvailableSubCommands() {
			manCommands(w, cmd)
			continue
		}
		fmt.Fprintf(w, ".SS %s\n%s\n", roff(cmd.UseLine()), roff(cmp.Or(cmd.Long, cmd.Short+".")))
		cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Name == "help" {
				return
			}
			name := "--" + f.Name
			if f.Shorthand != "" {
				name = "-" + f.Shorthand + ", " + name
			}
			value, usage := pflag.UnquoteUsage(f)
			if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" {
				usage += " (" + f.DefValue + ")"
			}
			fmt.Fprintf(w, ".TP\n.B %s \\fI%s\\fR\n%s\n", roff(name), roff(value), roff(usage))
		})
		if cmd.Example != "" {
			fmt.Fprintf(w, ".PP\n.nf\n%s\n.fi\n", roff(cmd.Example))
		}
	}
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }

// roff is text in which nothing is a request: no line begins with a dot or a quote, a backslash is
// one, and a hyphen can be copied. An empty line begins a paragraph.
func roff(text string) string {
	lines := strings.Split(strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text), "\n")
	for i, line := range lines {
		switch {
		case strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'"):
			lines[i] = `\&` + line
		case line == "":
			lines[i] = ".PP"
		}
	}
	return strings.Join(lines, "\n")
}
