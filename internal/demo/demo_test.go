package demo

import (
	"bytes"
	"context"
	"io"
	"math"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/relay"
	reserved "github.com/xds-relay/xds-relay/internal/test/e2e/loopback"
)

// output is what a demo writes. It may be read while the demo goes on.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	// seen is closed when the text contains what.
	what string
	seen chan struct{}
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.text.Write(b)
	if o.what != "" && strings.Contains(o.text.String(), o.what) {
		o.what = ""
		close(o.seen)
	}
	return n, err
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func TestStory(t *testing.T) {
	const clients = 10
	var out output
	at := []string{reserved.Reserve(t), reserved.Reserve(t)}
	stopped := false
	d, err := run(t.Context(), Options{
		For: 5 * time.Second, Clients: clients, Rate: 4, Out: &out, Listen: at[0], ControlPlane: at[1],
		Admin: func(*relay.Relay) (string, func(), error) {
			return "http://admin.example/", func() { stopped = true }, nil
		},
	})
	text := out.String()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, beat := range []string{
		`admin +http://admin\.example/`,
		`ends +after 5 s, or with Ctrl-C`,
		`relay +` + regexp.QuoteMeta(at[0]),
		`control plane +` + regexp.QuoteMeta(at[1]),
		`10 of 10 clients connected, 10 have all they use after`,
		`endpoints of cart changed: sent once, \d+ clients had it after`,
		`delta-\d drops off`,
		`delta-\d back after .*: 32 versions, \d+ changed, sent \d+`,
		`control plane gone: `,
		`control plane gone for .*: 10 of 10 clients stay connected`,
		`control plane back after .*; meanwhile (cluster|endpoints) of \w+ changed`,
		`clients had that .* later; client streams lost meanwhile: 0`,
		`\d+ changes, each to every client that uses it: last .* ms, worst .* m?s\.`,
		`Control plane: \d+ responses, .*B\. Clients: [\d,]+ responses, .*B\.`,
		`10 of 10 clients hold what the control plane has now; client streams lost: 0\.`,
	} {
		if !regexp.MustCompile(beat).MatchString(text) {
			t.Errorf("nothing in the output matches %q", beat)
		}
	}
	if m := regexp.MustCompile(`32 versions, (\d+) changed, sent (\d+)`).FindStringSubmatch(text); m != nil && (m[1] != m[2] || m[1] == "0") {
		t.Errorf("%s had changed, and %s were sent", m[1], m[2])
	}
	for _, c := range d.clients {
		if n := c.Missing(d.cp); n != 0 {
			t.Errorf("%s ends without %d resources as the control plane has them", c.name, n)
		}
		if want := len(c.services) * len(types); len(c.held) != want {
			t.Errorf("%s holds %d resources, not %d", c.name, len(c.held), want)
		}
	}
	if !stopped {
		t.Error("the admin listener was not stopped")
	}
	if strings.Contains(text, "\x1b") {
		t.Error("there are control characters in what is no terminal's")
	}
	if t.Failed() {
		t.Log(text)
	}
}

// Ctrl-C ends the demo at any moment, and leaves the terminal as it was.
func TestCancelLeavesTheTerminalAsItWas(t *testing.T) {
	for _, moment := range []string{enterScreen, "drops off", "control plane gone"} {
		t.Run(strings.Trim(moment, "\x1b"), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := output{what: moment, seen: make(chan struct{})}
			go func() {
				defer cancel()
				select {
				case <-out.seen:
				case <-t.Context().Done():
				}
			}()
			if err := Run(ctx, Options{Clients: 2, Rate: 1, Out: &out, TTY: true}); err != nil {
				t.Fatal(err)
			}
			text := out.String()
			_, after, left := strings.Cut(text, leaveScreen)
			if !strings.HasPrefix(text, enterScreen) || !left || strings.Contains(after, "\x1b") {
				t.Errorf("the terminal is left in another state: %q", text)
			}
			if !strings.Contains(after, "\n\n") || strings.Count(after[strings.LastIndex(after, "\n\n"):], "\n") != 5 {
				t.Errorf("no summary of three lines at the end: %q", after)
			}
		})
	}
}

func TestBadOptions(t *testing.T) {
	for what, o := range map[string]Options{
		"no clients":        {Clients: 0, Rate: 1},
		"too many clients":  {Clients: maxClients + 1, Rate: 1},
		"a negative rate":   {Clients: 1, Rate: -1},
		"no number":         {Clients: 1, Rate: math.NaN()},
		"a rate too high":   {Clients: 1, Rate: maxRate + 1},
		"a negative length": {Clients: 1, For: -1},
	} {
		o.Out = io.Discard
		if err := Run(t.Context(), o); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}
