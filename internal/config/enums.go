package config

import "strconv"

// enum is a field type with a closed set of values. Validate checks it, and a
// schema generator can list it.
type enum interface{ Values() []string }

// NodeMode is the type of upstream.node_mode.
type NodeMode string

// The values of NodeMode. The empty one is resolved by [Config.EffectiveNodeMode].
const (
	NodeModeStatic      NodeMode = "static"
	NodeModeTemplate    NodeMode = "template"
	NodeModePassthrough NodeMode = "passthrough"
)

// Values lists the values that may be written.
func (NodeMode) Values() []string { return []string{"", "static", "template", "passthrough"} }

// Profile is the type of groups.profile.
type Profile string

// The values of Profile.
const (
	ProfileAggregate Profile = "aggregate"
	ProfileSidecar   Profile = "sidecar"
)

// Values lists the values that may be written.
func (Profile) Values() []string { return []string{"aggregate", "sidecar"} }

// Secrets is the type of groups.secrets.
type Secrets string

// The values of Secrets. The empty one is resolved by [Groups.EffectiveSecrets].
const (
	SecretsPolicy   Secrets = "policy"
	SecretsIdentity Secrets = "identity"
	SecretsShared   Secrets = "shared"
)

// Values lists the values that may be written.
func (Secrets) Values() []string { return []string{"", "policy", "identity", "shared"} }

// UpstreamMode is the type of upstream.mode.
type UpstreamMode string

// The values of UpstreamMode.
const (
	UpstreamModeAuto  UpstreamMode = "auto"
	UpstreamModeDelta UpstreamMode = "delta"
	UpstreamModeSotW  UpstreamMode = "sotw"
)

// Values lists the values that may be written.
func (UpstreamMode) Values() []string { return []string{"auto", "delta", "sotw"} }

// FallbackMode is the type of upstream.fallbacks[].mode. The empty one is
// resolved by [Upstream.Entries].
type FallbackMode UpstreamMode

// Values lists the values that may be written.
func (FallbackMode) Values() []string { return []string{"", "auto", "delta", "sotw"} }

// Services is the type of upstream.by_type[].services. The empty one is ads.
type Services string

// The values of Services.
const (
	ServicesADS     Services = "ads"
	ServicesPerType Services = "per_type"
)

// Values lists the values that may be written.
func (Services) Values() []string { return []string{"", "ads", "per_type"} }

// ALPN is the type of upstream.tls.alpn. The empty one, of a fallback, is require.
type ALPN string

// The values of ALPN.
const (
	ALPNRequire ALPN = "require"
	ALPNLenient ALPN = "lenient"
)

// Values lists the values that may be written.
func (ALPN) Values() []string { return []string{"", "require", "lenient"} }

// HealthCheck is the type of upstream.health_check.
type HealthCheck string

// The values of HealthCheck.
const (
	HealthCheckAuto HealthCheck = "auto"
	HealthCheckOff  HealthCheck = "off"
)

// Values lists the values that may be written.
func (HealthCheck) Values() []string { return []string{"auto", "off"} }

// InitialVersions is the type of upstream.initial_versions.
type InitialVersions string

// The values of InitialVersions.
const (
	InitialVersionsAlways    InitialVersions = "always"
	InitialVersionsSameEntry InitialVersions = "same_entry"
	InitialVersionsNever     InitialVersions = "never"
)

// Values lists the values that may be written.
func (InitialVersions) Values() []string { return []string{"always", "same_entry", "never"} }

// WildcardForm is the type of upstream.wildcard_form.
type WildcardForm string

// The values of WildcardForm.
const (
	WildcardFormAuto     WildcardForm = "auto"
	WildcardFormExplicit WildcardForm = "explicit"
	WildcardFormLegacy   WildcardForm = "legacy"
)

// Values lists the values that may be written.
func (WildcardForm) Values() []string { return []string{"auto", "explicit", "legacy"} }

// ChunkMarker is the type of upstream.chunk_marker.
type ChunkMarker string

// The values of ChunkMarker.
const (
	ChunkMarkerAuto    ChunkMarker = "auto"
	ChunkMarkerNone    ChunkMarker = "none"
	ChunkMarkerRelay   ChunkMarker = "relay"
	ChunkMarkerDiderot ChunkMarker = "diderot"
)

// Values lists the values that may be written.
func (ChunkMarker) Values() []string { return []string{"auto", "none", "relay", "diderot"} }

// Prefetch is the type of upstream.prefetch.
type Prefetch string

// The values of Prefetch.
const (
	PrefetchAuto Prefetch = "auto"
	PrefetchOff  Prefetch = "off"
)

// Values lists the values that may be written.
func (Prefetch) Values() []string { return []string{"auto", "off"} }

// EmptyMeans is the type of types[].empty_means.
type EmptyMeans string

// The values of EmptyMeans. The empty one keeps the built-in value.
const (
	EmptyMeansWildcard EmptyMeans = "wildcard"
	EmptyMeansNothing  EmptyMeans = "nothing"
)

// Values lists the values that may be written.
func (EmptyMeans) Values() []string { return []string{"", "wildcard", "nothing"} }

// CSDS is the type of admin.csds.
type CSDS string

// The values of CSDS.
const (
	CSDSOff    CSDS = "off"
	CSDSStatus CSDS = "status"
	CSDSBodies CSDS = "bodies"
)

// Values lists the values that may be written.
func (CSDS) Values() []string { return []string{"off", "status", "bodies"} }

// LogLevel is the type of log.level.
type LogLevel string

// The values of LogLevel.
const (
	LogLevelDebug LogLevel = "debug"
	LogLevelInfo  LogLevel = "info"
	LogLevelWarn  LogLevel = "warn"
	LogLevelError LogLevel = "error"
)

// Values lists the values that may be written.
func (LogLevel) Values() []string { return []string{"debug", "info", "warn", "error"} }

// LogFormat is the type of log.format.
type LogFormat string

// The values of LogFormat.
const (
	LogFormatAuto LogFormat = "auto"
	LogFormatJSON LogFormat = "json"
	LogFormatText LogFormat = "text"
)

// Values lists the values that may be written.
func (LogFormat) Values() []string { return []string{"auto", "json", "text"} }

// Switch is a setting that is on, off, or found out by the relay itself. It is
// written as a YAML boolean or as auto.
type Switch string

// The values of Switch.
const (
	SwitchAuto Switch = "auto"
	SwitchOn   Switch = "true"
	SwitchOff  Switch = "false"
)

// Values lists the values that may be written.
func (Switch) Values() []string { return []string{"auto", "true", "false"} }

// MarshalYAML writes true and false without quotes, as a person would.
func (s Switch) MarshalYAML() (any, error) {
	if b, err := strconv.ParseBool(string(s)); err == nil {
		return b, nil
	}
	return string(s), nil
}
