package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/internal/console"
)

// askWithin is how long a command waits for a relay's answers.
const askWithin = 30 * time.Second

// format is how a command prints what it knows.
type format struct {
	name  string
	forms []string // that it may have; the first one is the default
}

func (f *format) register(cmd *cobra.Command, forms ...string) {
	f.forms = forms
	cmd.Flags().StringVarP(&f.name, "output", "o", forms[0], strings.Join(forms[:len(forms)-1], ", ")+" or "+forms[len(forms)-1])
	completeWords(cmd, "output", forms...)
}

// check refuses a form that the command does not have.
func (f *format) check() error {
	if slices.Contains(f.forms, f.name) {
		return nil
	}
	return &usageError{fmt.Errorf("-o is %q; use one of %s", f.name, strings.Join(f.forms, ", "))}
}

// data prints a value as JSON or YAML, if that is asked for.
func (f *format) data(w io.Writer, v any) (printed bool, err error) {
	switch f.name {
	case "json":
		return true, console.WriteJSON(w, v)
	case "yaml":
		return true, console.WriteYAML(w, v)
	}
	return false, nil
}

// repeated says how often a command shows what there is.
type repeated struct {
	watch bool
	every time.Duration
}

func (r *repeated) register(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&r.watch, "watch", "w", false, "show it again and again, until Ctrl-C")
	cmd.Flags().DurationVar(&r.every, "every", 2*time.Second, "how often, with --watch")
}

// run shows once, or until the command is interrupted. What goes wrong between is told, and is no end.
func (r *repeated) run(cmd *cobra.Command, show func(ctx context.Context, w io.Writer) error) error {
	ctx, stop := interruptible(cmd)
	defer stop()
	once := func(w io.Writer) error {
		ctx, cancel := context.WithTimeout(ctx, askWithin)
		defer cancel()
		return show(ctx, w)
	}
	out := cmd.OutOrStdout()
	if !r.watch {
		return once(out)
	}
	if r.every < 100*time.Millisecond {
		return &usageError{fmt.Errorf("--every is %v; use 100ms or more", r.every)}
	}
	tick := time.NewTicker(r.every)
	defer tick.Stop()
	for {
		var page strings.Builder
		if err := once(&page); err != nil && ctx.Err() == nil {
			fmt.Fprintln(cmd.ErrOrStderr(), message(err))
		}
		if ctx.Err() == nil {
			fmt.Fprint(out, clearScreen(out)+page.String())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// clearScreen begins a new page: on a terminal in place of the last one, else after an empty line.
func clearScreen(w io.Writer) string {
	if f, ok := w.(*os.File); ok && isTerminal(f) {
		return "\x1b[H\x1b[2J"
	}
	return "\n"
}

// interruptible is a command's context, which ends on Ctrl-C.
func interruptible(cmd *cobra.Command) (ctx context.Context, stop func()) {
	ctx = cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	return signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
}

// atMost takes so many arguments; what says which.
func atMost(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return &usageError{fmt.Errorf("unexpected argument %q; give %s at most, see %s --help", args[n], what, cmd.CommandPath())}
		}
		return nil
	}
}

// shortType is a type as people call it: CDS, or the name of its message.
func shortType(t cache.TypeURL) string {
	name := t.Name()
	return name[strings.LastIndexAny(name, "/.")+1:]
}

// byRank orders types as they are sent.
func byRank(a, b cache.TypeURL) int {
	if a.Rank() != b.Rank() {
		return a.Rank() - b.Rank()
	}
	return strings.Compare(string(a), string(b))
}

// ambiguous says which clients an argument may mean.
func ambiguous(arg string, total int, some []downstream.Client) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d clients have a node id like %q; give the number of the stream:", total, arg)
	for _, c := range some {
		fmt.Fprintf(&b, "\n  %d  %s from %s, connected %s", c.Stream, console.Clean(c.Node), console.Clean(c.Peer), console.Ago(c.Since, time.Now()))
	}
	if total > len(some) {
		fmt.Fprintf(&b, "\n  and %d more", total-len(some))
	}
	return &usageError{fmt.Errorf("%s", b.String())}
}
