// Package config owns the configuration file of the relay: its schema, its
// defaults, and loading it strictly, so that every mistake is reported with
// the line and column where it was made.
//
// It never dials, listens, watches files, reads a clock or logs, and it never
// changes a value behind the reader's back: what [Config] holds is what the
// file, an environment variable or a --set said, or else the default.
// [Config.CheckFiles], [Config.CheckHeaderFiles] and [Header.Read] are the only
// functions besides [Load] that open a file.
//
// Limitations: one file, no includes. YAML anchors, aliases, merge keys and
// tags are refused, because they make a value come from somewhere else than
// the line that an error points at. A list is replaced as a whole, both by the
// file and by --set. Comments are not kept, so a file cannot be rewritten.
//
// In the comments below, an id such as UP-13 is a rule of the protocol
// contract, and "Default:" is checked against [Default] by a test.
package config

import (
	"os"
	"time"
)

// APIVersion is the only value of the file's first key that this version reads.
const APIVersion = "xds-relay/v1alpha1"

// Config is the whole configuration. Obtain one from [Default], [Parse] or
// [Load]; a zero Config is not valid.
type Config struct {
	// APIVersion names the format of the file, so that a later one can be
	// refused clearly. It may be left out.
	// Default: xds-relay/v1alpha1.
	APIVersion string `yaml:"apiVersion"`

	// Instance is the name of this relay among its replicas and tiers, for people.
	// It appears in control_plane.identifier (DOWN-DELTA-19). With a suffix that
	// is unique to the process it also identifies the relay on the way of a stream
	// through relays, so that loops are found (NODE-11). Empty means the host
	// name; see [Config.InstanceName].
	// Default: "".
	Instance string `yaml:"instance"`

	// Upstream is the control plane the relay is a client of.
	Upstream Upstream `yaml:"upstream"`

	// Downstream is the server side, where clients connect.
	Downstream Downstream `yaml:"downstream"`

	// Groups says which clients share one upstream view.
	Groups Groups `yaml:"groups"`

	// Passthrough lists services that the control plane serves on the same address and that the relay does not
	// understand, such as load reports (LRS). Each call of a client becomes a call to the control plane in use, over
	// connections that discovery does not use, and ends with UNAVAILABLE when another control plane is put to use.
	// Messages go through as they are, unless aggregate adds load reports up. In profile sidecar load reports go through also if they are not listed;
	// max_calls: 0 switches that off.
	// Default: [].
	Passthrough []Passthrough `yaml:"passthrough"`

	// Authz says what clients may read.
	Authz Authz `yaml:"authz"`

	// Types overrides rows of the built-in table of type properties (section 0
	// of the contract). Types that are not listed keep their row.
	// Default: [].
	Types []TypeOverride `yaml:"types"`

	// Timers are the protocol's waiting times.
	Timers Timers `yaml:"timers"`

	// Cache bounds what is kept although nobody wants it.
	Cache Cache `yaml:"cache"`

	// VersionKeyFile is a file with at least 16 bytes, the HMAC key of the
	// versions of Secrets, and of other types that are secret. With it nobody can
	// guess a weak secret from its version. All replicas and tiers must have the same key (RECON-1,
	// H-35). Empty means plain hashes.
	// Default: "".
	VersionKeyFile string `yaml:"version_key_file"`

	// ReloadOnChange makes the relay read the file again when it changes: written in
	// place, replaced, or swapped by symlink as Kubernetes does with a ConfigMap. Without
	// it the relay waits for SIGHUP, or POST /-/reload on the admin endpoint.
	// Default: false.
	ReloadOnChange bool `yaml:"reload_on_change"`

	// Admin is the HTTP endpoint for people and probes.
	Admin Admin `yaml:"admin"`

	// Metrics is the HTTP listener for probes and metrics that others may reach.
	Metrics Metrics `yaml:"metrics"`

	// Log is the relay's own log, on standard error.
	Log Log `yaml:"log"`

	// Tracing exports traces to an OpenTelemetry collector.
	Tracing Tracing `yaml:"tracing"`

	// prov remembers where each value was written. It is nil in Default().
	prov *provenance
}

// TypeOverride changes properties of one type.
type TypeOverride struct {
	// TypeURL is the type, as a type URL or a short name. Required.
	TypeURL string `yaml:"type_url"`

	// FullState says that a SotW response of this type is the whole set, so
	// that a resource that it omits is gone (MISS-1). Null keeps the
	// table's value.
	// Default: null.
	FullState *bool `yaml:"full_state"`

	// EmptyMeans is the meaning of a first request without names: wildcard
	// or nothing (WILD-2). Empty keeps the table's value.
	// Default: "".
	EmptyMeans EmptyMeans `yaml:"empty_means"`

	// Secret says that only clients to which the type is served may learn what is in
	// it: groups.secrets holds for it, its versions are neither shown nor, with
	// version_key_file, to be guessed from, and without cache.snapshot.key_file it is
	// not in the snapshot (NODE-6). All replicas and tiers with a version_key_file
	// must agree on it. In the table SDS is secret, and so is
	// envoy.api.v2.auth.Secret. Null keeps the table's value.
	// Default: null.
	Secret *bool `yaml:"secret"`
}

// Timers are the waiting times of the protocol.
type Timers struct {
	// DNETimeout is how long a name may stay unanswered before it is reported
	// as missing (MISS-3).
	// Default: 15s.
	DNETimeout time.Duration `yaml:"dne_timeout"`

	// DNETimeoutExplicit replaces DNETimeout where the upstream answers every
	// name (MISS-5), and delays the sweep of explicit names (RECON-12).
	// Default: 30s.
	DNETimeoutExplicit time.Duration `yaml:"dne_timeout_explicit"`

	// Settle is the silence that ends an initial set whose end the upstream
	// does not mark (RECON-16).
	// Default: 100ms.
	Settle time.Duration `yaml:"settle"`

	// SettleCap bounds the wait for Settle (RECON-16).
	// Default: 5s.
	SettleCap time.Duration `yaml:"settle_cap"`

	// NameLinger is how long a name that nobody wants any more stays
	// subscribed upstream (UP-7, WILD-15).
	// Default: 30s.
	NameLinger time.Duration `yaml:"name_linger"`

	// GroupLinger is how long a group's stream outlives its last client. Then, if
	// the control plane is alive, the stream closes and the group's resources go.
	// In an outage the group stays, so that a client that restarts is served. On
	// disk its resources stay for cache.snapshot.keep_unwanted. The default group
	// of profile aggregate stays, and only its stream closes, once nothing is
	// wanted (NODE-10).
	// Default: 60s.
	GroupLinger time.Duration `yaml:"group_linger"`

	// AckTimeout is how long an unacknowledged response holds back the next
	// one of its type (DOWN-DELTA-15).
	// Default: 10s.
	AckTimeout time.Duration `yaml:"ack_timeout"`

	// WarmingHold is how long changes of listeners and routes wait at most until the
	// client has acknowledged new and changed clusters, which an Envoy does when the
	// clusters have warmed; 0: changes do not wait (ORDER-3).
	// Default: 5s.
	WarmingHold time.Duration `yaml:"warming_hold"`

	// UnavailableAfter is how long the control plane must have been failing
	// before clients that wait for an answer get an error, or lose their
	// stream if it has carried no resource. The stream of a client that comes
	// later stays open for the same time (ERR-7).
	// Default: 5s.
	UnavailableAfter time.Duration `yaml:"unavailable_after"`
}

// Admin configures the HTTP admin endpoint.
type Admin struct {
	// Listen is host:port on loopback, or unix:///path; empty: there is no
	// admin endpoint. Other addresses are refused in this version, because the
	// endpoint has no authentication.
	// Default: "".
	Listen string `yaml:"listen"`

	// Pprof adds /debug/pprof, for CPU and memory profiles. They show no
	// resources, but taking one costs CPU time.
	// Default: false.
	Pprof bool `yaml:"pprof"`

	// History bounds how much is kept of resources that were replaced or
	// removed, so that people can see what has changed. The oldest go first.
	// Secrets are not kept, nor anything if listen is empty. 0 keeps nothing.
	// Default: 16MiB.
	History Bytes `yaml:"history"`

	// CSDS is what the Client Status Discovery Service on listen shows: off,
	// nothing; status, names, versions and states; bodies, resources too, without
	// inline data and fields marked sensitive. Secrets are never shown. With bodies
	// any process of this host that reaches listen can read the others.
	// Default: status.
	CSDS CSDS `yaml:"csds"`

	// StaleAfter is how long a client may lack something, or not acknowledge it, until
	// an event says so. 0 says it never.
	// Default: 30s.
	StaleAfter time.Duration `yaml:"stale_after"`

	// Webhook is where events go.
	Webhook Webhook `yaml:"webhook"`
}

// Metrics configures a listener that answers probes (/livez, /readyz, /startupz) and
// /metrics, and nothing else, so that Kubernetes and Prometheus may reach it.
type Metrics struct {
	// Listen is host:port, on any address, or unix:///path; empty: probes and
	// metrics are on admin.listen only. It is plaintext and has no
	// authentication; it shows no client and no resource.
	// Default: "".
	Listen string `yaml:"listen"`

	// NativeHistograms offers histograms in Prometheus' native form, too, which is
	// finer and has no fixed buckets. A Prometheus that asks for protobuf gets both
	// forms (scrape_native_histograms, scrape_protocols); a scrape in text has
	// only the classic buckets, in any case.
	// Default: true.
	NativeHistograms bool `yaml:"native_histograms"`
}

// Log configures the relay's own log.
type Log struct {
	// Level is the least severity that the log has: debug, info, warn or error.
	// POST /logging?level= changes it while the relay runs.
	// Default: info.
	Level LogLevel `yaml:"level"`

	// Format is json, text, or auto: text on a terminal, else json. Text is for people: the
	// keys of json are stable, and those of text are not.
	// Default: auto.
	Format LogFormat `yaml:"format"`
}

// Default returns the configuration of an empty file. It is valid.
func Default() Config {
	return Config{
		APIVersion: APIVersion,
		Upstream: Upstream{
			Address:                 "127.0.0.1:15010",
			TLS:                     ClientTLS{ALPN: ALPNRequire},
			Mode:                    UpstreamModeAuto,
			Files:                   Files{Poll: 30 * time.Second, MaxBytes: 64 * MiB},
			REST:                    RESTUpstream{Poll: 5 * time.Second, Timeout: 5 * time.Second, Absent: AbsentKeep},
			Node:                    Node{ID: "xds-relay"},
			SendNodeAlways:          true,
			Backoff:                 Backoff{Initial: time.Second, Factor: 1.6, Jitter: 0.2, Max: 10 * time.Second},
			MaxReceiveBytes:         64 * MiB,
			MaxSetBytes:             2 * GiB,
			HealthCheck:             HealthCheckAuto,
			FailoverAfter:           time.Minute,
			FailbackAfter:           30 * time.Second,
			MaxRequestBytes:         3 * MiB,
			MaxStreamsPerConnection: 100,
			MaxConnections:          64,
			InitialVersions:         InitialVersionsSameEntry,
			WildcardForm:            WildcardFormAuto,
			ChunkMarker:             ChunkMarkerAuto,
			ExplicitMissing:         SwitchAuto,
			CoalesceWindow:          10 * time.Millisecond,
			Prefetch:                PrefetchAuto,
		},
		Downstream: Downstream{
			Listen:                  []string{"127.0.0.1:18000"},
			MaxRequestBytes:         16 * MiB,
			MaxInflightBytes:        64 * MiB,
			MaxNameBytes:            4 * KiB,
			MaxNamesPerStream:       defaultNames,
			MaxNames:                10_000_000,
			MaxStreams:              200_000,
			MaxStreamsPerConnection: 1000,
			RequestRate:             50,
			RequestBurst:            200,
			StallTimeout:            30 * time.Second,
			KeepaliveMin:            5 * time.Second,
			NeverSynthesizeRemoval:  []string{"RDS", "ECDS"},
			DrainDelay:              5 * time.Second,
			REST:                    REST{InterestTTL: 5 * time.Minute, MaxPollers: 10_000},
			Drain:                   10 * time.Second,
		},
		Groups: Groups{Profile: ProfileAggregate, Max: 1000},
		Timers: Timers{
			DNETimeout:         15 * time.Second,
			DNETimeoutExplicit: 30 * time.Second,
			Settle:             100 * time.Millisecond,
			SettleCap:          5 * time.Second,
			NameLinger:         30 * time.Second,
			GroupLinger:        60 * time.Second,
			AckTimeout:         10 * time.Second,
			WarmingHold:        5 * time.Second,
			UnavailableAfter:   5 * time.Second,
		},
		Cache: Cache{
			MaxLingeringNames: 10_000,
			MaxUnaskedBytes:   64 * MiB,
			Snapshot:          Snapshot{Interval: 5 * time.Second, KeepUnwanted: 24 * time.Hour, MaxBytes: GiB},
			MassRemovalGuard:  MassRemovalGuard{Min: 20, Within: time.Minute, Hold: 5 * time.Minute},
		},
		Admin:   Admin{History: 16 * MiB, CSDS: CSDSStatus, StaleAfter: 30 * time.Second},
		Metrics: Metrics{NativeHistograms: true},
		Log:     Log{Level: LogLevelInfo, Format: LogFormatAuto},
		Tracing: Tracing{
			SampleRatio: 0.01, AlwaysSample: []AlwaysSample{AlwaysSampleNack, AlwaysSampleSlow},
			SlowAfter: time.Second, Window: 10 * time.Second,
		},
	}
}

// InstanceName resolves the empty instance to the host name, or to "unknown"
// on a host that has none.
func (c *Config) InstanceName() string {
	if c.Instance != "" {
		return c.Instance
	}
	if h, err := os.Hostname(); err == nil && h != "" {
		return h
	}
	return "unknown"
}
