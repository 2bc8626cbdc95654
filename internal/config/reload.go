package config

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// What becomes of a key that is changed while the relay runs.

// Reload is when a changed key takes effect.
type Reload string

// The values of Reload.
const (
	// ReloadNow is at once, for clients and streams that are there, too.
	ReloadNow Reload = "reload"
	// ReloadRestart is when the relay is started again. Until then the old value is in
	// force, and the log says so.
	ReloadRestart Reload = "restart"
)

// reloads says it of every key; a list or mapping stands for all that is in it, except for keys of its items
// that are here by themselves. A test fails on a key that is missing here.
var reloads = map[string]Reload{
	"apiVersion":       ReloadNow, // there is only one
	"instance":         ReloadRestart,
	"types":            ReloadRestart,
	"version_key_file": ReloadRestart,
	"reload_on_change": ReloadRestart,

	"upstream.address":                     ReloadNow,
	"upstream.insecure":                    ReloadNow,
	"upstream.tls.ca":                      ReloadNow,
	"upstream.tls.cert":                    ReloadNow,
	"upstream.tls.key":                     ReloadNow,
	"upstream.tls.server_name":             ReloadNow,
	"upstream.tls.alpn":                    ReloadNow,
	"upstream.tls.spiffe.workload_api":     ReloadNow,
	"upstream.tls.spiffe.trust_domains":    ReloadNow,
	"upstream.tls.spiffe.server_id":        ReloadNow,
	"upstream.headers":                     ReloadNow,
	"upstream.mode":                        ReloadNow,
	"upstream.fallbacks":                   ReloadNow,
	"upstream.files.poll":                  ReloadNow,
	"upstream.files.optional":              ReloadNow,
	"upstream.files.reload_on_close_write": ReloadNow,
	"upstream.files.max_bytes":             ReloadNow,
	"upstream.files.descriptors":           ReloadNow,
	"upstream.rest.poll":                   ReloadNow,
	"upstream.rest.timeout":                ReloadNow,
	"upstream.rest.wait":                   ReloadNow,
	"upstream.rest.absent":                 ReloadNow,
	"upstream.rest.descriptors":            ReloadNow,
	"upstream.node.id":                     ReloadRestart,
	"upstream.node.cluster":                ReloadRestart,
	"upstream.node.locality.region":        ReloadRestart,
	"upstream.node.locality.zone":          ReloadRestart,
	"upstream.node.locality.sub_zone":      ReloadRestart,
	"upstream.node.metadata":               ReloadRestart,
	"upstream.node_mode":                   ReloadRestart,
	"upstream.send_node_always":            ReloadNow,
	"upstream.backoff.initial":             ReloadNow,
	"upstream.backoff.factor":              ReloadNow,
	"upstream.backoff.jitter":              ReloadNow,
	"upstream.backoff.max":                 ReloadNow,
	"upstream.keepalive":                   ReloadNow,
	"upstream.max_receive_bytes":           ReloadNow,
	"upstream.max_set_bytes":               ReloadNow,
	"upstream.initial_versions":            ReloadNow,
	"upstream.wildcard_form":               ReloadNow,
	"upstream.chunk_marker":                ReloadNow,
	"upstream.explicit_missing":            ReloadNow,
	"upstream.health_check":                ReloadNow,
	"upstream.failover_after":              ReloadNow,
	"upstream.failback_after":              ReloadNow,
	"upstream.max_request_bytes":           ReloadNow,
	"upstream.max_streams_per_connection":  ReloadNow,
	"upstream.max_connections":             ReloadNow,
	"upstream.types":                       ReloadNow,
	"upstream.coalesce_window":             ReloadNow,
	"upstream.prefetch":                    ReloadNow,
	"upstream.prefetch_except":             ReloadNow,
	"upstream.by_type":                     ReloadRestart,
	"upstream.by_type.address":             ReloadNow,
	"upstream.by_type.insecure":            ReloadNow,
	"upstream.by_type.tls":                 ReloadNow,
	"upstream.by_type.headers":             ReloadNow,
	"upstream.by_type.forward_headers":     ReloadNow,
	"upstream.by_type.mode":                ReloadNow,
	"upstream.by_type.fallbacks":           ReloadNow,

	"downstream.listen":                     ReloadRestart,
	"downstream.insecure":                   ReloadNow,
	"downstream.tls.cert":                   ReloadNow,
	"downstream.tls.key":                    ReloadNow,
	"downstream.tls.client_ca":              ReloadNow,
	"downstream.tls.spiffe.workload_api":    ReloadNow,
	"downstream.tls.spiffe.trust_domains":   ReloadNow,
	"downstream.relays":                     ReloadNow,
	"downstream.max_connections":            ReloadNow,
	"downstream.max_request_bytes":          ReloadRestart, // it is an option of gRPC's server, like max_streams_per_connection
	"downstream.max_inflight_bytes":         ReloadRestart,
	"downstream.accept_gzip":                ReloadRestart,
	"downstream.v2_transport":               ReloadRestart,
	"downstream.gzip":                       ReloadRestart,
	"downstream.max_name_bytes":             ReloadNow,
	"downstream.max_names_per_stream":       ReloadNow,
	"downstream.max_names":                  ReloadNow,
	"downstream.max_streams":                ReloadNow,
	"downstream.max_streams_per_connection": ReloadRestart,
	"downstream.first_message_timeout":      ReloadNow,
	"downstream.request_rate":               ReloadNow,
	"downstream.request_burst":              ReloadNow,
	"downstream.max_response_bytes":         ReloadNow,
	"downstream.stall_timeout":              ReloadNow,
	"downstream.keepalive_min":              ReloadRestart,
	"downstream.max_connection_age":         ReloadRestart, // gRPC draws it when a connection begins
	"downstream.resend_on_reconnect_types":  ReloadNow,
	"downstream.never_synthesize_removal":   ReloadNow,
	"downstream.ready_types":                ReloadRestart,
	"downstream.drain_delay":                ReloadNow,
	"downstream.drain":                      ReloadNow,
	"downstream.rest.listen":                ReloadRestart,
	"downstream.rest.hold":                  ReloadNow,
	"downstream.rest.interest_ttl":          ReloadNow,
	"downstream.rest.max_pollers":           ReloadNow,
	"downstream.rest.proto_names":           ReloadNow,

	"passthrough": ReloadNow,

	"authz.rules_file": ReloadNow,

	"groups.profile":               ReloadRestart,
	"groups.key":                   ReloadRestart,
	"groups.types":                 ReloadRestart,
	"groups.unmultiplexable_types": ReloadRestart,
	"groups.forward_headers":       ReloadRestart,
	"groups.default_group":         ReloadRestart,
	"groups.secrets":               ReloadRestart,
	"groups.share_secrets":         ReloadRestart,
	"groups.send_identity":         ReloadRestart,
	"groups.max":                   ReloadRestart,

	"timers.dne_timeout":          ReloadNow,
	"timers.dne_timeout_explicit": ReloadNow,
	"timers.settle":               ReloadNow,
	"timers.settle_cap":           ReloadNow,
	"timers.name_linger":          ReloadNow,
	"timers.group_linger":         ReloadNow,
	"timers.ack_timeout":          ReloadNow,
	"timers.warming_hold":         ReloadNow,
	"timers.unavailable_after":    ReloadNow,

	"cache.max_lingering_names":         ReloadNow,
	"cache.max_unasked_bytes":           ReloadNow,
	"cache.snapshot.dir":                ReloadRestart,
	"cache.snapshot.interval":           ReloadRestart,
	"cache.snapshot.max_age":            ReloadRestart,
	"cache.snapshot.keep_unwanted":      ReloadRestart,
	"cache.snapshot.max_bytes":          ReloadRestart,
	"cache.snapshot.key_file":           ReloadRestart,
	"cache.snapshot.exclude_types":      ReloadRestart,
	"cache.mass_removal_guard.fraction": ReloadNow,
	"cache.mass_removal_guard.min":      ReloadNow,
	"cache.mass_removal_guard.within":   ReloadNow,
	"cache.mass_removal_guard.hold":     ReloadNow,

	"admin.listen":              ReloadRestart,
	"admin.pprof":               ReloadRestart,
	"admin.history":             ReloadNow,
	"admin.csds":                ReloadNow,
	"admin.stale_after":         ReloadNow,
	"admin.webhook.url":         ReloadRestart,
	"admin.webhook.headers":     ReloadRestart, // what their files hold is read again for each POST
	"admin.webhook.events":      ReloadRestart,
	"metrics.listen":            ReloadRestart,
	"tracing.otlp_endpoint":     ReloadRestart,
	"tracing.insecure":          ReloadRestart,
	"tracing.tls.ca":            ReloadRestart,
	"tracing.tls.cert":          ReloadRestart,
	"tracing.tls.key":           ReloadRestart,
	"tracing.tls.server_name":   ReloadRestart,
	"tracing.sample_ratio":      ReloadRestart,
	"tracing.always_sample":     ReloadRestart,
	"tracing.slow_after":        ReloadRestart,
	"tracing.window":            ReloadRestart,
	"metrics.native_histograms": ReloadRestart,

	"log.level":  ReloadNow,
	"log.format": ReloadNow,
}

// index is where an item is in its list.
var index = regexp.MustCompile(`\[\d+\]`)

// ReloadOf says when a change of a key takes effect; false: there is no such key.
func ReloadOf(key string) (Reload, bool) {
	key = index.ReplaceAllString(key, "")
	for {
		if r, ok := reloads[key]; ok {
			return r, true
		}
		i := strings.LastIndexByte(key, '.')
		if i < 0 {
			return "", false
		}
		key = key[:i]
	}
}

// Change is a key whose value differs between two configurations.
type Change struct {
	// Key is its path, such as "upstream.fallbacks[0].address".
	Key string
	// Old and New are its values as people write them; none: the item is not there. No
	// header's value is shown.
	Old, New string
	Reload   Reload
}

// String is the change in one line.
func (c Change) String() string { return fmt.Sprintf("%s: %s -> %s", c.Key, c.Old, c.New) }

// none stands for an item that is not there.
const none = "none"

// Diff lists what another configuration has otherwise, in the order of the reference.
func (c *Config) Diff(other *Config) []Change {
	d := &differ{}
	d.value("", reflect.ValueOf(c).Elem(), reflect.ValueOf(other).Elem())
	return d.changes
}

type differ struct{ changes []Change }

func (d *differ) add(key, was, is string) {
	if was == is {
		is += " (another one)" // what is not shown
	}
	r, _ := ReloadOf(key)
	d.changes = append(d.changes, Change{key, was, is, r})
}

func (d *differ) value(key string, a, b reflect.Value) {
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			if name := yamlName(a.Type().Field(i)); name != "" {
				d.value(child(key, name), a.Field(i), b.Field(i))
			}
		}
	case reflect.Slice:
		if a.Type().Elem().Kind() == reflect.Struct {
			d.list(key, a, b)
		} else if a.Len()+b.Len() > 0 && !reflect.DeepEqual(a.Interface(), b.Interface()) {
			d.add(key, show(a), show(b))
		}
	case reflect.Map:
		d.mapping(key, a, b)
	default:
		if !reflect.DeepEqual(a.Interface(), b.Interface()) {
			d.add(key, show(a), show(b))
		}
	}
}

func (d *differ) list(key string, a, b reflect.Value) {
	for i := range max(a.Len(), b.Len()) {
		item := fmt.Sprintf("%s[%d]", key, i)
		switch {
		case i >= a.Len():
			d.add(item, none, show(b.Index(i)))
		case i >= b.Len():
			d.add(item, show(a.Index(i)), none)
		default:
			d.value(item, a.Index(i), b.Index(i))
		}
	}
}

func (d *differ) mapping(key string, a, b reflect.Value) {
	names := slices.Concat(a.MapKeys(), b.MapKeys())
	slices.SortFunc(names, func(x, y reflect.Value) int { return cmp.Compare(x.String(), y.String()) })
	names = slices.CompactFunc(names, func(x, y reflect.Value) bool { return x.String() == y.String() })
	for _, name := range names {
		item, was, is := child(key, name.String()), a.MapIndex(name), b.MapIndex(name)
		switch {
		case !was.IsValid():
			d.add(item, none, show(is))
		case !is.IsValid():
			d.add(item, show(was), none)
		case was.Kind() == reflect.Struct:
			d.value(item, was, is)
		case !reflect.DeepEqual(was.Interface(), is.Interface()):
			d.add(item, show(was), show(is))
		}
	}
}

// Keeping is the configuration that is in force when this one is loaded into a relay that
// runs with another: what needs a restart stays as it is there. It may be invalid although
// both are valid, where a key that can change needs one that cannot.
func (c *Config) Keeping(running *Config) *Config {
	kept := *c
	keep("", reflect.ValueOf(&kept).Elem(), reflect.ValueOf(running).Elem())
	return &kept
}

func keep(key string, to, from reflect.Value) {
	if to.Kind() == reflect.Struct {
		for i := range to.NumField() {
			if name := yamlName(to.Type().Field(i)); name != "" {
				keep(child(key, name), to.Field(i), from.Field(i))
			}
		}
		return
	}
	if r, _ := ReloadOf(key); r != ReloadNow && !reloadsItems(key, to, from) {
		to.Set(from)
	}
}

// reloadsItems reports whether two lists differ only in keys of their items that can be reloaded. If not, none of it
// is: an item that has moved is another one.
func reloadsItems(key string, to, from reflect.Value) bool {
	if to.Kind() != reflect.Slice || to.Type().Elem().Kind() != reflect.Struct || to.Len() != from.Len() {
		return false
	}
	d := &differ{}
	d.list(key, from, to)
	return !slices.ContainsFunc(d.changes, func(c Change) bool { return c.Reload == ReloadRestart })
}
