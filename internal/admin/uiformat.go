package admin

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/console"
	"github.com/xds-relay/xds-relay/internal/events"
	upsession "github.com/xds-relay/xds-relay/upstream/session"
)

// mark is a signal: a shape with a colour, and always a word. Kind is ok, wait, warn, stop, bad, info or none.
type mark struct{ Kind, Text string }

// uiFuncs are what templates say things with.
var uiFuncs = template.FuncMap{
	"ago": func(t time.Time) template.HTML { return when(t, "ago", console.Ago(t, time.Now())) },
	"for": func(t time.Time) template.HTML { return when(t, "for", console.For(time.Since(t))) },
	"in":  func(t time.Time) template.HTML { return when(t, "in", console.For(time.Until(t))) },
	"clock": func(t time.Time) template.HTML {
		if time.Since(t) > 20*time.Hour {
			return when(t, "", t.UTC().Format("Jan 2 15:04:05"))
		}
		return when(t, "", t.UTC().Format("15:04:05"))
	},
	"count": func(n any) string { return countOf(n) },
	"bytes": func(n any) string {
		switch n := n.(type) {
		case int:
			return console.Bytes(int64(n))
		case int64:
			return console.Bytes(n)
		}
		return ""
	},
	"took":  took,
	"short": shortType,
	"state": stateMark, "condition": conditionMark, "happened": eventMark, "step": stepMark,
	"kind":    func(k events.Kind) string { return kindWords[k] },
	"version": shortVersion,
	"clean":   console.Clean,
	"lines":   console.Lines,
	"factor":  factor,
	"line":    line,
	"things":  console.Things,
	"word":    wordOf,
	"meaning": func(c upsession.Condition) string { return meanings[c] },

	"ok": marked("ok"), "warn": marked("warn"), "bad": marked("bad"), "stop": marked("stop"), "wait": marked("wait"), "none": marked("none"),
}

func marked(kind string) func(text string) mark {
	return func(text string) mark { return mark{kind, text} }
}

// meanings say what the state of a control plane means.
var meanings = map[upsession.Condition]string{
	upsession.Standby:  "Another one is in use, and this one did not fail last.",
	upsession.Idle:     "No client subscribes to anything, so nothing is asked for.",
	upsession.UpToDate: "It has answered all that clients subscribe to.",
	upsession.Waiting:  "An answer is due, or the relay connects.",
	upsession.Mute:     "It is alive, and does not answer for a type that clients wait for. It may not know the node that the relay shows.",
	upsession.Refused:  "It ends the streams of the relay. See upstream.headers, upstream.tls and the control plane's log.",
	upsession.Down:     "It cannot be reached, or has stopped answering. Clients keep what they have.",
}

// when is a time as people say it, and exactly for those who point at it and for the script, which keeps it true.
func when(t time.Time, how, text string) template.HTML {
	if t.IsZero() {
		return template.HTML(`<span class="muted">` + template.HTMLEscapeString(text) + `</span>`)
	}
	exact := t.UTC().Format(time.RFC3339)
	rel := ""
	if how != "" {
		rel = ` data-rel="` + how + `"`
	}
	return template.HTML(`<time datetime="` + exact + `" title="` + t.UTC().Format("2006-01-02 15:04:05 UTC") + `"` + rel + `>` + template.HTMLEscapeString(text) + `</time>`)
}

func countOf(n any) string {
	switch n := n.(type) {
	case int:
		return console.Count(n)
	case int64:
		return console.Count(n)
	}
	return ""
}

// factor is how many times as much something is.
func factor(f float64) string {
	if f >= 100 {
		return console.Count(int64(f + 0.5))
	}
	return fmt.Sprintf("%.1f", f)
}

// took is a duration with two or three digits that count.
func took(d time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{time.Minute, "min"}, {time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "µs"}} {
		if n := float64(d) / float64(unit.of); n >= 10 {
			return fmt.Sprintf("%.0f %s", n, unit.name)
		} else if n >= 1 {
			return fmt.Sprintf("%.1f %s", n, unit.name)
		}
	}
	return "–"
}

// shortType is a type as people call it: CDS, or the name of its message.
func shortType(t cache.TypeURL) string {
	name := t.Name()
	return name[strings.LastIndexAny(name, "/.")+1:]
}

// shortVersion is the beginning of a long version, by which people tell versions apart.
func shortVersion(v string) string {
	const most = 18
	if len(v) <= most {
		return v
	}
	return console.Short(v, most)
}

func stateMark(s ClientState) mark {
	return map[ClientState]mark{
		InStep: {"ok", "In step"}, NotSent: {"wait", "Not sent"}, Stale: {"warn", "Stale"}, Refused: {"stop", "Refused"}, Rejected: {"bad", "Rejected"},
	}[s]
}

func conditionMark(c upsession.Condition) mark {
	kind := map[upsession.Condition]string{
		upsession.Standby: "none", upsession.Idle: "none", upsession.UpToDate: "ok", upsession.Waiting: "wait",
		upsession.Mute: "warn", upsession.Refused: "stop", upsession.Down: "bad",
	}[c]
	return mark{kind, conditionWords[c]}
}

var conditionWords = map[upsession.Condition]string{
	upsession.Standby: "Standby", upsession.Idle: "Idle", upsession.UpToDate: "Current", upsession.Waiting: "Waiting",
	upsession.Mute: "Silent", upsession.Refused: "Refuses", upsession.Down: "Down",
}

// severity orders conditions from good to bad; standby, where another one is in use, is better than all.
func severity(c upsession.Condition) int { return slices.Index(upsession.Conditions(), c) }

// eventMark is what kind of event it is, with the shape that its subject has elsewhere: what is over is as good as what
// never was.
func eventMark(e events.Event) mark {
	kind := map[events.Level]string{events.Info: "info", events.Warn: "warn", events.Error: "bad"}[e.Level]
	switch e.Kind {
	case events.NackOver, events.StaleOver, events.ControlPlaneBack, events.TypeAcquitted:
		kind = "ok"
	case events.Nack, events.ControlPlaneLost, events.ResponseRejected, events.ConfigRefused, events.CertificatesRefused, events.RulesRefused:
		kind = "bad"
	case events.TypeRefused, events.GroupRefused, events.TypeQuarantined:
		kind = "stop"
	}
	return mark{kind, kindWords[e.Kind]}
}

// line is a text of a peer's in one line.
func line(text string) string { return console.Clean(strings.Join(strings.Fields(text), " ")) }

func stepMark(s session.Step) mark {
	return map[session.Step]mark{
		session.StepSynced: {"ok", "In step"}, session.StepUnacked: {"warn", "Stale: not acknowledged"}, session.StepRejected: {"bad", "Rejected"},
		session.StepUnsent: {"warn", "Stale: waits to be sent"}, session.StepStays: {"warn", "Stale: removed, and the client has it"},
		session.StepUnknown: {"none", "The client has some version"}, session.StepAwaited: {"wait", "The control plane has not answered"},
	}[s]
}

// kindWords say what kind of event it is.
var kindWords = map[events.Kind]string{
	events.Nack: "Rejected", events.NackOver: "Rejection over", events.Stale: "Stale", events.StaleOver: "In step again",
	events.TypeRefused: "Type refused", events.GroupRefused: "Group refused",
	events.RemovalsHeld: "Removals held", events.RemovalsReleased: "Removals released", events.RemovalsForgotten: "Removals dropped",
	events.TypeQuarantined: "Type quarantined", events.TypeAcquitted: "Type taken back",
	events.ControlPlaneLost: "Control plane lost", events.ControlPlaneBack: "Control plane answers", events.ControlPlaneSwitched: "Control plane switched",
	events.ResponseRejected: "Response rejected",
	events.ConfigReloaded:   "Configuration reloaded", events.ConfigRefused: "Configuration refused",
	events.CertificatesReloaded: "Certificates reloaded", events.CertificatesRefused: "Certificates refused",
	events.RulesReloaded: "Rules reloaded", events.RulesRefused: "Rules refused",
}
