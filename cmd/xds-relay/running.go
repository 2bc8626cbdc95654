package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/xds-relay/xds-relay/internal/adminclient"
	"github.com/xds-relay/xds-relay/internal/console"
	"github.com/xds-relay/xds-relay/internal/preflight"
)

// When what a running relay says is worth a note, or is a failure.
const (
	certificateSoon = 7 * 24 * time.Hour
	certificateNow  = 24 * time.Hour
	snapshotOld     = 5 * time.Minute // while the control plane is there it is written each minute
	nearlyFull      = 0.9
)

// checkRunning checks a relay that runs, and reports how many checks have failed.
func checkRunning(ctx context.Context, relay *adminclient.Client, w io.Writer) (failed int, err error) {
	c := &runningChecks{ctx: ctx, relay: relay, now: time.Now(), tell: func(r preflight.Result) {
		if r.State == preflight.Fail {
			failed++
		}
		r.Name, r.Text, r.Hint = console.Clean(r.Name), console.Clean(r.Text), console.Clean(r.Hint)
		fmt.Fprintln(w, r)
	}}
	var info relayInfo
	if err := relay.Get(ctx, "/server_info", nil, &info); err != nil {
		return 0, answered(err)
	}
	text, err := relay.Text(ctx, "/metrics", nil)
	if err != nil {
		return 0, answered(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	if c.metrics, err = parser.TextToMetricFamilies(strings.NewReader(text + "\n")); err != nil {
		return 0, fmt.Errorf("the metrics of %s cannot be read: %w; is this a relay of another version?", relay.Address(), err)
	}
	c.ok("relay", fmt.Sprintf("version %s, up %s", info.Version, console.For(time.Duration(info.Uptime)*time.Second)))
	if err := c.probes(); err != nil {
		return failed, err
	}
	if err := c.planes(); err != nil {
		return failed, err
	}
	c.clients()
	c.removals()
	c.certificates()
	c.descriptors()
	c.memory()
	c.snapshot()
	c.files()
	return failed, nil
}

// runningChecks are the checks of a relay that runs.
type runningChecks struct {
	ctx     context.Context //nolint:containedctx // it lasts as long as the checks
	relay   *adminclient.Client
	now     time.Time
	metrics map[string]*dto.MetricFamily
	tell    func(preflight.Result)
}

func (c *runningChecks) ok(name, text string) {
	c.tell(preflight.Result{State: preflight.OK, Name: name, Text: text})
}

func (c *runningChecks) note(name, text, hint string) {
	c.tell(preflight.Result{State: preflight.Note, Name: name, Text: text, Hint: hint})
}

func (c *runningChecks) fail(name, text, hint string) {
	c.tell(preflight.Result{State: preflight.Fail, Name: name, Text: text, Hint: hint})
}

// each calls do for each series of a metric, with its value.
func (c *runningChecks) each(name string, do func(labels map[string]string, value float64)) {
	for _, m := range c.metrics[name].GetMetric() {
		labels := make(map[string]string)
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		do(labels, m.GetGauge().GetValue()+m.GetCounter().GetValue()+m.GetUntyped().GetValue())
	}
}

// sum is that of all series of a metric.
func (c *runningChecks) sum(name string) (sum float64) {
	c.each(name, func(_ map[string]string, value float64) { sum += value })
	return sum
}

// probes are readiness and liveness, by their parts.
func (c *runningChecks) probes() error {
	for _, probe := range []struct{ path, name, text, hint string }{
		{"/livez", "alive", "all parts make progress", "a part of the relay makes no progress: take a dump (xds-relay dump), and restart it"},
		{"/readyz", "ready", "it takes clients", "clients are sent elsewhere until this is over"},
	} {
		_, err := c.relay.Text(c.ctx, probe.path, url.Values{"verbose": {""}})
		said := (*adminclient.StatusError)(nil)
		switch {
		case err == nil:
			c.ok(probe.name, probe.text)
		case errors.As(err, &said):
			lines := strings.Split(said.Text, "\n")
			c.fail(probe.name, lines[len(lines)-1], probe.hint)
		default:
			return err
		}
	}
	return nil
}

// planeHints say what to do about a control plane in a state.
var planeHints = map[string]string{
	"waiting": "give it timers.dne_timeout; then see the log",
	"silent":  "it may not know the node that the relay shows: see upstream.node, groups.key and the log",
	"refused": "see upstream.headers, upstream.tls and the control plane's log",
	"down":    "clients keep what they have; see upstream.address, the network, and the control plane",
}

func (c *runningChecks) planes() error {
	planes, err := planesOf(c.ctx, c.relay)
	if err != nil {
		return err
	}
	const name = "control plane"
	if len(planes) == 0 {
		c.note(name, "it was not asked for anything yet, since no client has asked", "")
	}
	for _, p := range planes {
		switch worst := p.worst(); worst {
		case "idle", "current":
			c.ok(name, p.say(c.now))
		case "waiting":
			c.note(name, strings.TrimSuffix(p.say(c.now)+"; "+p.trouble(c.now), "; "), planeHints[worst])
		default:
			c.fail(name, strings.TrimSuffix(p.say(c.now)+"; "+p.trouble(c.now), "; "), planeHints[worst])
		}
	}
	return nil
}

func (c *runningChecks) clients() {
	out, nacked := 0.0, 0.0
	c.each("xds_relay_client_sync_state", func(labels map[string]string, value float64) {
		switch labels["state"] {
		case "synced":
		case "nacked":
			nacked += value
		default:
			out += value
		}
	})
	text := console.Things(int(c.sum("xds_relay_clients")), "client")
	switch {
	case nacked > 0:
		c.note("clients", fmt.Sprintf("%s: %d not in step, %d of them REJECTED", text, int(nacked+out), int(nacked)), "xds-relay ps --stale says which, and ps CLIENT why")
	case out > 0:
		c.ok("clients", fmt.Sprintf("%s: %d not in step at the moment; see xds-relay ps --stale", text, int(out)))
	default:
		c.ok("clients", text)
	}
}

func (c *runningChecks) removals() {
	if held := c.sum("xds_relay_cache_removals_held"); held > 0 {
		c.fail("removals", fmt.Sprintf("the mass-removal guard holds back %d", int(held)), "if the control plane means them, POST /guard/release; else repair it: see xds-relay resources")
		return
	}
	c.ok("removals", "none are held back")
}

func (c *runningChecks) certificates() {
	const name, metric = "certificates", "xds_relay_certificate_expiry_timestamp_seconds"
	if len(c.metrics[metric].GetMetric()) == 0 {
		c.ok(name, "none are in use")
	}
	c.each(metric, func(labels map[string]string, value float64) {
		of := strings.Join(strings.Fields(labels["hop"]+" "+labels["address"]+" "+labels["file"]), " ")
		left := time.Unix(int64(value), 0).Sub(c.now)
		text := fmt.Sprintf("%s: expires in %s", of, console.For(left))
		switch {
		case left <= 0:
			c.fail(name, fmt.Sprintf("%s: has expired %s ago", of, console.For(-left)), "write a new one to its file; the relay reads it by itself")
		case left < certificateNow:
			c.fail(name, text, "write a new one to its file; the relay reads it by itself")
		case left < certificateSoon:
			c.note(name, text, "write a new one to its file; the relay reads it by itself")
		default:
			c.ok(name, text)
		}
	})
	c.each("xds_relay_certificate_last_reload_successful", func(labels map[string]string, value float64) {
		if value == 0 {
			c.fail(name, fmt.Sprintf("%s %s %s: the file has changed and cannot be used", labels["hop"], labels["address"], labels["file"]), "the log says why; the last good one stays in use")
		}
	})
}

// share is how much of a bound is used, with a failure when it is nearly all.
func (c *runningChecks) share(name string, used, most float64, hint string) {
	text := fmt.Sprintf("%s of %s", console.Count(int64(used)), console.Count(int64(most)))
	switch {
	case most == 0:
		c.ok(name, console.Count(int64(used))+", without a limit")
	case used > nearlyFull*most:
		c.fail(name, text, hint)
	default:
		c.ok(name, text)
	}
}

func (c *runningChecks) descriptors() {
	if most := c.sum("process_max_fds"); most > 0 {
		c.share("descriptors", c.sum("process_open_fds"), most, "raise LimitNOFILE (ulimit -n), or run more replicas")
	}
	c.share("clients' connections", c.sum("xds_relay_client_connections"), c.sum("xds_relay_client_connections_limit"), "raise LimitNOFILE (ulimit -n) or downstream.max_connections, or run more replicas")
	c.share("clients' streams", c.sum("xds_relay_clients"), c.sum("xds_relay_clients_limit"), "raise downstream.max_streams, or run more replicas")
}

func (c *runningChecks) memory() {
	text := console.Bytes(int64(c.sum("process_resident_memory_bytes"))) + " resident"
	if c.sum("xds_relay_memory_pressure") > 0 {
		c.fail("memory", text+"; more than 90 % of the limit is live, so that no new clients are taken", "raise the limit and GOMEMLIMIT, or run more replicas")
		return
	}
	c.ok("memory", text)
}

func (c *runningChecks) snapshot() {
	const name = "snapshot"
	errs := 0.0
	c.each("xds_relay_snapshot_errors_total", func(_ map[string]string, value float64) { errs += value })
	at := c.sum("xds_relay_snapshot_timestamp_seconds")
	age := c.now.Sub(time.Unix(int64(at), 0))
	switch {
	case at == 0 && errs > 0:
		c.fail(name, fmt.Sprintf("none is on disk, after %d errors", int(errs)), "the log says why; see cache.snapshot.dir")
	case at == 0:
		c.ok(name, "none was written: cache.snapshot.dir is not set, or nothing is there to keep")
	case age > snapshotOld && c.sum("xds_relay_upstream_connected") > 0:
		c.fail(name, fmt.Sprintf("%s old, although the control plane is there", console.For(age)), "the log says why it is not written; see cache.snapshot.dir")
	default:
		c.ok(name, fmt.Sprintf("%s old, %s", console.For(age), console.Bytes(int64(c.sum("xds_relay_snapshot_bytes")))))
	}
}

// files are those that are read again while the relay runs.
func (c *runningChecks) files() {
	for _, f := range []struct{ name, metric string }{
		{"configuration", "xds_relay_config_last_reload_successful"},
		{"rules", "xds_relay_authz_rules_last_reload_successful"},
	} {
		if c.metrics[f.metric] != nil && c.sum(f.metric) == 0 {
			c.fail(f.name, "it was read again and has a mistake, so that the one before stays in force", "the log says which; xds-relay validate -c finds it, too")
			continue
		}
		c.ok(f.name, "without a mistake when last read")
	}
}
