package xdstest_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/relay"
	"github.com/xds-relay/xds-relay/internal/test/xdstest"
	"github.com/xds-relay/xds-relay/internal/test/xdstest/play"
)

// TestGuard_EmptyUpstream: a control plane of 1,000 clusters comes back with none.
// For as long as that is doubted no client is told a removal, and the log says so
// at once; then an operator, or time, lets it go (R21, H-22).
func TestGuard_EmptyUpstream(t *testing.T) {
	const hold = 5 * time.Minute
	for _, variant := range []struct{ name, set, empty string }{
		{"it removes what it is shown", "upstream.mode=delta", "resp CDS nonce=u2" + list(" -svc%d")},
		{"it is shown nothing, and announces nothing", "upstream.initial_versions=never", "resp CDS nonce=u2"},
		{"it is shown nothing, and silence says that this is all", "upstream.initial_versions=never timers.settle=100ms", "resp CDS nonce=u2"},
		{"it speaks SotW", "upstream.mode=sotw", "resp CDS nonce=u2 version=2"},
	} {
		t.Run(variant.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &alertLog{begin: time.Now()}
				var r *relay.Relay
				factory := func(set []string, dial func(context.Context, string) (net.Conn, error), listen net.Listener) (xdstest.Relay, error) {
					c, err := config.Load("", slices.Concat(play.Calm, set))
					if err != nil {
						return nil, err
					}
					if r, err = relay.New(c, relay.Options{Log: slog.New(log), Dial: dial, Random: play.Random}); err != nil {
						return nil, err
					}
					r.Serve(listen)
					return play.Whole{Relay: r}, nil
				}
				transcript, err := xdstest.Parse("test", "# A conversation.\n# spec: H-22\n")
				if err != nil {
					t.Fatal(err)
				}
				transcript.Config = append(strings.Fields(variant.set), "cache.mass_removal_guard.fraction=0.5")
				player, err := xdstest.Live(factory)(transcript)
				if err != nil {
					t.Fatal(err)
				}
				c := &conversation{t: t, player: player, relay: r}
				defer player.Close()

				c.say("c1", "sub CDS *")
				c.say("c2", "open sotw")
				c.say("c2", "req CDS")
				c.say("up", "resp CDS nonce=u1 version=1"+list(" svc%d@1"))
				c.player.Wait(time.Second)
				c.say("c1", "ack CDS")
				c.say("c2", "ack CDS")
				c.say("up", "end")
				c.player.Wait(time.Second)
				c.heard()

				log.begin = time.Now()
				c.say("up", variant.empty)
				c.player.Wait(15 * time.Second)
				if log.alerts != 1 || log.after > 15*time.Second {
					t.Errorf("%d alerts, the last after %v", log.alerts, log.after)
				}
				for until := log.begin.Add(hold); time.Now().Before(until.Add(-time.Second)); c.player.Wait(time.Second) {
					if told := clientsHeard(c); len(told) > 0 {
						t.Fatalf("%v into the hold clients heard %.100s", time.Since(log.begin), told)
					}
				}
				c.say("c3", "sub CDS *")
				if told := clientsHeard(c); len(told) != 1 || strings.Count(told[0], "+svc") != clusters {
					t.Errorf("a newcomer heard %.100s", told)
				}
				if held := r.Groups()["default"].Summarize()[0].Held; held != clusters {
					t.Errorf("the metric says that %d removals are held back", held)
				}
				c.say("c3", "ack CDS")
				c.player.Wait(2 * time.Second)
				told := clientsHeard(c)
				if len(told) != 3 || strings.Count(told[0], "-svc") != clusters || told[1] != "c2 < resp CDS" || strings.Count(told[2], "-svc") != clusters {
					t.Errorf("after the hold clients heard %.100s", told)
				}
				if log.letGo != clusters {
					t.Errorf("the log says that %d removals are carried out", log.letGo)
				}
				t.Logf("0 removals in %v; the alert came after %v", hold, log.after)
			})
		})
	}
}

const clusters = 1000

func list(format string) string {
	var words strings.Builder
	for i := range clusters {
		fmt.Fprintf(&words, format, i)
	}
	return words.String()
}

// clientsHeard is what clients, and only they, have heard since the last call.
func clientsHeard(c *conversation) []string {
	c.t.Helper()
	return slices.DeleteFunc(c.heard(), func(text string) bool { return !strings.HasPrefix(text, "c") })
}

// alertLog counts the guard's warnings, and notes how soon they come.
type alertLog struct {
	slog.Handler
	begin  time.Time
	alerts int
	after  time.Duration
	letGo  int // removals
}

func (*alertLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *alertLog) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l *alertLog) WithGroup(string) slog.Handler          { return l }
func (l *alertLog) Handle(_ context.Context, r slog.Record) error {
	switch {
	case r.Level != slog.LevelWarn:
	case strings.Contains(r.Message, "are held back"):
		l.alerts, l.after = l.alerts+1, time.Since(l.begin)
	case strings.Contains(r.Message, "are carried out"):
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "count" {
				l.letGo += int(a.Value.Int64())
			}
			return true
		})
	}
	return nil
}
