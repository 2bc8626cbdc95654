package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/xds-relay/xds-relay/internal/adminclient"
	"github.com/xds-relay/xds-relay/internal/console"
)

// topOrder is what top sorts by.
type topOrder struct {
	key  byte
	name string
	less func(a, b *topRow) int // the one that stands first is less
}

var topOrders = []topOrder{
	{'l', "lag", func(a, b *topRow) int { return worse(a.clientView, b.clientView) }},
	{'p', "pending", func(a, b *topRow) int { return cmp.Compare(b.Behind, a.Behind) }},
	{'b', "bytes", func(a, b *topRow) int {
		return cmp.Or(cmp.Compare(b.rate, a.rate), cmp.Compare(b.Bytes, a.Bytes))
	}},
	{'n', "nacks", func(a, b *topRow) int { return cmp.Compare(b.Nacks, a.Nacks) }},
}

// topRow is a client, and how many bytes it is sent a second.
type topRow struct {
	clientView
	rate int64
}

// top is the live table.
type top struct {
	asking
	sort  string
	every time.Duration
	turns int
	once  bool
	rows  int
	group string

	order topOrder
	// What the relay said last.
	clients []*topRow
	planes  []*planeView
	at      time.Time
	bytes   map[uint64]int64 // of each stream
}

func newTop() *cobra.Command {
	t := new(top)
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch the clients of a running relay, those first that lag, or are sent most",
		Long: `Watch the clients of a running relay. On a terminal, l sorts them by lag (since when they are
not in step), p by pending names, b by bytes a second, n by NACKs, and q or Ctrl-C ends it.
Elsewhere it prints one table, or with -n as many as are asked for.

` + askingHelp,
		Example: `  xds-relay top
  xds-relay top --sort bytes
  xds-relay top --once --rows 10`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i := slices.IndexFunc(topOrders, func(o topOrder) bool { return o.name == t.sort })
			switch {
			case i < 0:
				return &usageError{fmt.Errorf("--sort is %q; use lag, pending, bytes or nacks", t.sort)}
			case t.every < 100*time.Millisecond:
				return &usageError{fmt.Errorf("--every is %v; use 100ms or more", t.every)}
			case t.turns < 0 || t.rows < 0:
				return &usageError{fmt.Errorf("-n is %d and --rows %d; use numbers above 0", t.turns, t.rows)}
			}
			t.order = topOrders[i]
			relay, err := t.open()
			if err != nil {
				return err
			}
			defer relay.Close()
			ctx, stop := interruptible(cmd)
			defer stop()
			if t.once {
				t.turns = 1
			}
			if t.turns == 0 && isTerminal(os.Stdin) && isTerminal(os.Stdout) {
				return t.live(ctx, relay)
			}
			return t.plain(ctx, relay, cmd.OutOrStdout())
		},
	}
	t.register(cmd)
	f := cmd.Flags()
	f.StringVar(&t.sort, "sort", "lag", "lag, pending, bytes or nacks")
	f.DurationVar(&t.every, "every", 2*time.Second, "how often to look")
	f.BoolVar(&t.once, "once", false, "print one table and end")
	f.IntVarP(&t.turns, "turns", "n", 0, "print so many tables and end; 0: until q on a terminal, else one")
	f.IntVar(&t.rows, "rows", 0, "how many clients; 0: as many as the terminal, or a page of 24 lines, has room for")
	f.StringVar(&t.group, "group", "", "only clients of this group")
	completeWords(cmd, "sort", "lag", "pending", "bytes", "nacks")
	return cmd
}

// look asks the relay once.
func (t *top) look(ctx context.Context, relay *adminclient.Client) error {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	query := url.Values{}
	if t.group != "" {
		query.Set("group", t.group)
	}
	clients, err := clientsOf(ctx, relay, query)
	if err != nil {
		return err
	}
	planes, err := planesOf(ctx, relay)
	if err != nil {
		return err
	}
	t.planes = planes
	t.measure(clients, time.Now())
	return nil
}

// measure compares the bytes of each client with the last look.
func (t *top) measure(clients []clientView, now time.Time) {
	bytes := make(map[uint64]int64, len(clients))
	t.clients = make([]*topRow, 0, len(clients))
	for _, c := range clients {
		r := &topRow{clientView: c}
		bytes[c.Stream] = c.Bytes
		if was, known := t.bytes[c.Stream]; known && now.After(t.at) {
			r.rate = int64(float64(c.Bytes-was) / now.Sub(t.at).Seconds())
		}
		t.clients = append(t.clients, r)
	}
	t.bytes, t.at = bytes, now
}

// page is what was found last, in so many lines.
func (t *top) page(lines int, keys string) string {
	slices.SortFunc(t.clients, func(a, b *topRow) int { return cmp.Or(t.order.less(a, b), worse(a.clientView, b.clientView)) })
	var page strings.Builder
	f := fleet{Total: len(t.clients), States: make(map[string]int)}
	for _, c := range t.clients {
		f.States[c.State.String()]++
	}
	for _, p := range t.planes {
		fmt.Fprintln(&page, "control plane  "+console.Clean(p.say(t.at)))
	}
	fmt.Fprintf(&page, "%s; by %s%s\n\n", f.summary(0), t.order.name, keys)
	used := strings.Count(page.String(), "\n") + 1 // the heading
	most := cmp.Or(t.rows, max(lines-used, 1))
	return page.String() + topTable(t.clients[:min(len(t.clients), most)], t.at)
}

func topTable(rows []*topRow, now time.Time) string {
	table := console.NewTable("", "CLIENT", "STREAM", "STATE", "LAG", "PENDING", "BYTES", "BYTES/s", "RESPONSES", "NACKS")
	for _, r := range rows {
		lag := "-"
		if !r.Waits.IsZero() {
			lag = console.For(now.Sub(r.Waits))
		}
		table.Row(console.Short(r.Node, 60), fmt.Sprint(r.Stream), r.State.String(), lag, console.Count(r.Behind), console.Bytes(r.Bytes), console.Bytes(r.rate), console.Count(r.Responses), console.Count(r.Nacks))
	}
	var b strings.Builder
	_ = table.Write(&b) // a Builder takes everything
	return b.String()
}

// plain prints tables one after the other.
func (t *top) plain(ctx context.Context, relay *adminclient.Client, w io.Writer) error {
	for turn := range max(t.turns, 1) {
		if turn > 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(t.every):
			}
			fmt.Fprintln(w)
		}
		if err := t.look(ctx, relay); err != nil {
			return err
		}
		fmt.Fprint(w, t.page(height, ""))
	}
	return nil
}

// live shows the table on the terminal until a key ends it.
func (t *top) live(ctx context.Context, relay *adminclient.Client) error {
	was, err := term.MakeRaw(int(os.Stdin.Fd()))
	if err != nil {
		return fmt.Errorf("the terminal cannot be set up: %w; use --once", err)
	}
	defer func() { _ = term.Restore(int(os.Stdin.Fd()), was) }() // nothing can be done about an error
	keys := make(chan byte)
	go readKeys(ctx, keys)
	tick := time.NewTicker(t.every)
	defer tick.Stop()
	err = t.look(ctx, relay)
	for {
		t.draw(err)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			err = t.look(ctx, relay)
		case key := <-keys: // the relay is not asked for each of them
			if t.press(key) {
				return nil
			}
		}
	}
}

// draw draws a page on the terminal, whose lines are cut where it ends. Of an error only that is shown.
func (t *top) draw(err error) {
	width, lines, sized := term.GetSize(int(os.Stdout.Fd()))
	if sized != nil || width <= 0 || lines <= 0 {
		width, lines = 200, height
	}
	page := t.page(lines-1, "  (l lag, p pending, b bytes, n nacks, q quit)")
	if err != nil {
		page = message(err) + "\n"
	}
	fmt.Print("\x1b[H\x1b[2J")
	for line := range strings.Lines(page) {
		fmt.Print(console.Short(strings.TrimSuffix(line, "\n"), width) + "\r\n")
	}
}

// press takes in a key, and reports whether it ends the table.
func (t *top) press(key byte) (ends bool) {
	const interrupt, end = 3, 4 // Ctrl-C and Ctrl-D, which are no signals now
	for _, o := range topOrders {
		if o.key == key {
			t.order = o
		}
	}
	return key == 'q' || key == interrupt || key == end
}

// height is how many lines a page has where there is no terminal.
const height = 24

// readKeys reads the keyboard until the program ends: nothing can interrupt that.
func readKeys(ctx context.Context, keys chan<- byte) {
	var key [1]byte
	for {
		if n, err := os.Stdin.Read(key[:]); err != nil || n == 0 {
			return
		}
		select {
		case keys <- key[0]:
		case <-ctx.Done():
			return
		}
	}
}
