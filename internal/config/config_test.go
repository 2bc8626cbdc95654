package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDefaultIsValid(t *testing.T) {
	c := Default()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := c.CheckFiles(); err != nil {
		t.Fatal(err)
	}
}

// sections calls f for every struct of the schema, with its fields' paths.
func sections(t reflect.Type, key string, f func(t reflect.Type, key string)) {
	f(t, key)
	for i := range t.NumField() {
		field := t.Field(i)
		if !field.IsExported() {
			continue
		}
		path, typ := child(key, yamlName(field)), field.Type
		if typ.Kind() == reflect.Slice {
			path, typ = path+"[]", typ.Elem()
		}
		if typ.Kind() == reflect.Map && typ.Elem().Kind() == reflect.Struct {
			path, typ = path+".*", typ.Elem()
		}
		if typ.Kind() == reflect.Struct {
			sections(typ, path, f)
		}
	}
}

func TestEveryFieldHasAYAMLTag(t *testing.T) {
	form := regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	sections(reflect.TypeFor[Config](), "", func(typ reflect.Type, key string) {
		seen := map[string]bool{}
		for i := range typ.NumField() {
			f := typ.Field(i)
			if !f.IsExported() {
				continue
			}
			name := yamlName(f)
			if !form.MatchString(name) && name != "apiVersion" {
				t.Errorf("%s.%s: yaml name %q, want snake_case", typ.Name(), f.Name, name)
			}
			if seen[name] {
				t.Errorf("%s: yaml name %q twice", typ.Name(), name)
			}
			seen[name] = true
		}
	})
}

// schemaFiles are the files that hold the structs of the schema.
var schemaFiles = []string{"config.go", "upstream.go", "downstream.go", "groups.go", "passthrough.go", "authz.go", "cache.go", "headers.go", "spiffe.go", "tracing.go", "webhook.go", "fromfiles.go", "fromrest.go"}

// fieldDocs returns the comment of every struct of the schema, by its name, and of
// its fields, by "Struct.Field", and fails for exported fields and types without one.
func fieldDocs(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	var decls []ast.Decl
	for _, name := range schemaFiles {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		decls = append(decls, file.Decls...)
	}
	for _, decl := range decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.TYPE {
			continue
		}
		for _, spec := range gen.Specs {
			typ := spec.(*ast.TypeSpec)
			st, ok := typ.Type.(*ast.StructType)
			if !ok {
				continue
			}
			if !strings.HasPrefix(gen.Doc.Text(), typ.Name.Name+" ") {
				t.Errorf("type %s: its comment must begin with its name", typ.Name)
			}
			docs[typ.Name.Name] = gen.Doc.Text()
			for _, f := range st.Fields.List {
				for _, name := range f.Names {
					if name.IsExported() && !strings.HasPrefix(f.Doc.Text(), name.Name+" ") {
						t.Errorf("%s.%s: its comment must begin with its name", typ.Name, name)
					}
					docs[typ.Name.Name+"."+name.Name] = f.Doc.Text()
				}
			}
		}
	}
	return docs
}

// The comment of every setting says its default, and says it right.
func TestEveryDefaultIsDocumented(t *testing.T) {
	docs := fieldDocs(t)
	form := regexp.MustCompile(`(?m)^Default: (.*)\.$`)
	check := func(key, fieldName string, v reflect.Value) {
		m := form.FindStringSubmatch(docs[fieldName])
		if m == nil {
			t.Errorf("%s: the comment of %s has no \"Default: ….\" line", key, fieldName)
			return
		}
		got := reflect.New(v.Type()).Elem()
		d := &decoder{prov: &provenance{src: newSource("doc", []byte(m[1])), at: map[string]place{}}}
		if m[1] != "null" {
			if n, ok := d.parseValue(m[1], v.Kind() == reflect.String, key); ok {
				d.value(got, n, key, nil)
			}
		}
		if len(d.errs) > 0 {
			t.Errorf("%s: %v", key, join(d.errs))
		}
		empty := (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0 && got.Len() == 0
		if !empty && !reflect.DeepEqual(got.Interface(), v.Interface()) {
			t.Errorf("%s: documented default %s, real default %v", key, m[1], v.Interface())
		}
	}
	var walk func(v reflect.Value, key string)
	walk = func(v reflect.Value, key string) {
		for i := range v.NumField() {
			f := v.Type().Field(i)
			name := child(key, yamlName(f))
			switch {
			case !f.IsExported() || name == "types[].type_url":
			case f.Type.Kind() == reflect.Struct:
				walk(v.Field(i), name)
			default:
				check(name, v.Type().Name()+"."+f.Name, v.Field(i))
			}
		}
	}
	c := Default()
	walk(reflect.ValueOf(c), "")
	walk(reflect.ValueOf(TypeOverride{}), "types[]")
	walk(reflect.ValueOf(Header{}), "upstream.headers.*")
}

// What is printed can be read back, which print-config relies on.
func TestPrintedConfigReadsBack(t *testing.T) {
	c := Default()
	c.Upstream.ExplicitMissing = SwitchOn
	c.Upstream.Node.Metadata = map[string]any{"team": "edge", "n": int64(3)}
	c.Types = []TypeOverride{{TypeURL: "CDS"}}
	out, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if want := "explicit_missing: true\n"; !strings.Contains(string(out), want) {
		t.Errorf("output lacks %q:\n%s", want, out)
	}
	got, err := Parse("printed.yaml", out, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	again, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if string(again) != string(out) {
		t.Errorf("printed again:\n%s\nfirst:\n%s", again, out)
	}
}

func TestBytes(t *testing.T) {
	for _, s := range []string{"0B", "1B", "1023B", "4KiB", "64MiB", "2GiB", "3TiB", "-5KiB"} {
		b, err := ParseBytes(s)
		if err != nil || b.String() != s {
			t.Errorf("ParseBytes(%q) = %v, %v", s, b, err)
		}
	}
	for _, s := range []string{"", "MiB", "64MB", "64M", "1.5MiB", "9999999TiB", "0x10", "64mib"} {
		if b, err := ParseBytes(s); err == nil {
			t.Errorf("ParseBytes(%q) = %v, want an error", s, b)
		}
	}
	if b, err := ParseBytes("4096"); err != nil || b != 4*KiB {
		t.Errorf("ParseBytes(4096) = %v, %v", b, err)
	}
	var v struct {
		A, B Bytes
	}
	if err := yaml.Unmarshal([]byte("a: 2MiB\nb: 17\n"), &v); err != nil || v.A != 2*MiB || v.B != 17 {
		t.Errorf("unmarshal: %+v, %v", v, err)
	}
	if err := yaml.Unmarshal([]byte("a: 2 apples\n"), &v); err == nil {
		t.Error("unmarshal of nonsense succeeded")
	}
}

func TestTypeURL(t *testing.T) {
	for name, want := range map[string]string{
		"CDS":                             "type.googleapis.com/envoy.config.cluster.v3.Cluster",
		"leds":                            "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint",
		"type.googleapis.com/my.own.Type": "type.googleapis.com/my.own.Type",
		"XDS":                             "",
		"":                                "",
		"type.googleapis.com/":            "",
		"/x":                              "",
		"https://type.googleapis.com/x":   "",
	} {
		if got, ok := TypeURL(name); got != want || ok != (want != "") {
			t.Errorf("TypeURL(%q) = %q, %v", name, got, ok)
		}
	}
}

func TestEffectiveValues(t *testing.T) {
	for _, tt := range []struct {
		groups  Groups
		written NodeMode
		want    NodeMode
	}{
		{Groups{}, "", NodeModeStatic},
		{Groups{Key: []string{"cluster"}}, "", NodeModeTemplate},
		{Groups{Key: []string{"cluster"}}, NodeModeStatic, NodeModeStatic},
		{Groups{Types: []TypeKey{{Key: []string{"node"}}}}, "", NodeModeTemplate},
		{Groups{Profile: ProfileSidecar}, "", NodeModePassthrough},
		{Groups{Profile: ProfileSidecar}, NodeModeStatic, NodeModeStatic},
		{Groups{Profile: ProfileSidecar, Types: []TypeKey{{Key: []string{"cluster"}}}}, "", NodeModeTemplate},
		{Groups{Key: []string{"node", "identity"}}, "", NodeModePassthrough},
	} {
		c := Default()
		c.Groups, c.Upstream.NodeMode = tt.groups, tt.written
		if got := c.EffectiveNodeMode(); got != tt.want {
			t.Errorf("%+v: node mode %q, want %q", tt.groups, got, tt.want)
		}
	}
	c := Default()
	if c.InstanceName() == "" {
		t.Error("no instance name")
	}
	c.Instance = "a"
	if c.InstanceName() != "a" {
		t.Error("instance is not used")
	}
}

const fullFile = `apiVersion: xds-relay/v1alpha1
instance: relay-0
upstream:
  address: dns:///istiod.istio-system:15012
  insecure: false
  tls: {ca: /certs/ca.crt, cert: /certs/tls.crt, key: /certs/tls.key, server_name: istiod, alpn: lenient}
  headers:
    authorization: {file: /certs/token, prefix: "Bearer "}
    x-tier: {value: one}
  mode: delta
  fallbacks:
    - {address: "other:15010", insecure: true, mode: sotw, headers: {x-tier: two}, forward_headers: false}
    - {address: "third:15012", tls: {server_name: third, alpn: require}}
    - {address: "fourth:15012", tls: {spiffe: {workload_api: unix:///run/agent.sock, trust_domains: [example.org], server_id: "spiffe://example.org/istiod"}}, last_resort: true}
  files: {poll: 11s, optional: true, reload_on_close_write: true, max_bytes: 2MiB, descriptors: [/etc/own.pb]}
  rest: {poll: 7s, timeout: 3s, wait: 20s, absent: remove, descriptors: [/etc/rest.pb]}
  node:
    id: tier-1
    cluster: relays
    locality: {region: eu, zone: eu-a, sub_zone: r1}
    metadata:
      team: edge
      ports: [80, 443]
      nested: {on: true, ratio: 0.5, none: null}
  node_mode: template
  send_node_always: false
  backoff: {initial: 500ms, factor: 2, jitter: 0.1, max: 1m}
  keepalive: 5m
  max_receive_bytes: 128MiB
  max_set_bytes: 1GiB
  initial_versions: never
  wildcard_form: legacy
  chunk_marker: diderot
  explicit_missing: false
  health_check: off
  failover_after: 2m
  failback_after: 3s
  max_request_bytes: 1MiB
  max_streams_per_connection: 12
  max_connections: 3
  types: [CDS, type.googleapis.com/my.Type]
  coalesce_window: 0
  prefetch: "off"
  prefetch_except: [RDS]
  by_type:
    - {name: endpoints, types: [EDS], services: per_type, address: "eds:15010", insecure: true, mode: delta, node: {id: eds}, headers: {x-tier: three}, forward_headers: false, fallbacks: [{address: "eds-2:15010", insecure: true}]}
downstream:
  listen: [":18000", "unix:///run/xds-relay/xds.sock"]
  tls: {cert: /certs/tls.crt, key: /certs/tls.key, client_ca: /certs/ca.crt}
  max_connections: 500
  relays: ["spiffe://example.org/relay"]
  max_request_bytes: 4096
  max_inflight_bytes: 1MiB
  accept_gzip: true
  v2_transport: true
  gzip: true
  max_name_bytes: 1KiB
  max_names_per_stream: 5
  max_names: 55
  max_streams: 66
  max_streams_per_connection: 6
  first_message_timeout: 7s
  request_rate: 10
  request_burst: 11
  max_response_bytes: 4MiB
  stall_timeout: 12s
  keepalive_min: 6s
  max_connection_age: 30m
  resend_on_reconnect_types: [cds]
  never_synthesize_removal: [ECDS]
  ready_types: [CDS]
  drain_delay: 13s
  drain: 8s
  rest: {listen: "127.0.0.1:18003", hold: 14s, interest_ttl: 15m, max_pollers: 16, proto_names: true}
groups:
  profile: sidecar
  types: [{type_url: EDS, key: [user_agent_version, client_features, dynamic_parameters, node, identity, constant.blue]}]
  unmultiplexable_types: [type.googleapis.com/istio.v1.HealthInformation]
  key: [id, cluster, locality.region, locality.zone, locality.sub_zone, user_agent_name, metadata.labels.app]
  forward_headers: [] # not with ready_types; see TestHeaders
  default_group: true
  secrets: shared
  share_secrets: true
  send_identity: true
  max: 9
passthrough: [{service: envoy.service.load_stats.v3.LoadReportingService, max_calls: 7, forward_headers: [x-tenant], aggregate: false}]
types:
  - {type_url: CDS, full_state: false, empty_means: nothing, secret: false}
  - type_url: type.googleapis.com/my.Type
timers:
  dne_timeout: 1s
  dne_timeout_explicit: 2s
  settle: 3ms
  settle_cap: 4s
  name_linger: 5s
  group_linger: 6s
  ack_timeout: 7s
  warming_hold: 9s
  unavailable_after: 8s
cache:
  max_lingering_names: 0
  max_unasked_bytes: 1KiB
  mass_removal_guard: {fraction: 0.25, min: 3, within: 4s, hold: 5s}
  snapshot: {dir: /var/lib/xds-relay, interval: 9s, max_age: 1h, keep_unwanted: 2h, max_bytes: 1MiB, key_file: /certs/snapshot, exclude_types: [LDS]}
authz: {rules_file: /etc/xds-relay/rules.yaml}
version_key_file: /certs/hmac
reload_on_change: true
admin: {listen: unix:///run/xds-relay/admin.sock, pprof: true, history: 1KiB, csds: bodies, stale_after: 1m, webhook: {url: "https://hooks.example.com/a", headers: {x-token: {file: /run/hook}}, events: [nack, nack_over]}}
metrics: {listen: "0.0.0.0:18002", native_histograms: false}
log: {level: debug, format: json}
tracing:
  otlp_endpoint: https://collector:4317
  tls: {ca: /certs/ca.crt, cert: /certs/tls.crt, key: /certs/tls.key, server_name: collector}
  insecure: false
  sample_ratio: 0.5
  always_sample: [slow]
  slow_after: 2s
  window: 3s
`

func fullConfig() Config {
	no, yes, calls := false, true, 7
	return Config{
		APIVersion: "xds-relay/v1alpha1",
		Instance:   "relay-0",
		Upstream: Upstream{
			Address: "dns:///istiod.istio-system:15012",
			TLS:     ClientTLS{CA: "/certs/ca.crt", Cert: "/certs/tls.crt", Key: "/certs/tls.key", ServerName: "istiod", ALPN: ALPNLenient},
			Headers: map[string]Header{"authorization": {File: "/certs/token", Prefix: "Bearer "}, "x-tier": {Value: "one"}},
			Mode:    UpstreamModeDelta,
			Fallbacks: []Fallback{
				{Address: "other:15010", Insecure: true, Mode: "sotw", Headers: map[string]Header{"x-tier": {Value: "two"}}},
				{Address: "third:15012", TLS: ClientTLS{ServerName: "third", ALPN: ALPNRequire}},
				{Address: "fourth:15012", TLS: ClientTLS{SPIFFE: ClientSPIFFE{
					WorkloadAPI: "unix:///run/agent.sock", TrustDomains: []string{"example.org"}, ServerID: "spiffe://example.org/istiod",
				}}, LastResort: &yes},
			},
			Files: Files{Poll: 11 * time.Second, Optional: true, ReloadOnCloseWrite: true, MaxBytes: 2 * MiB, Descriptors: []string{"/etc/own.pb"}},
			REST:  RESTUpstream{Poll: 7 * time.Second, Timeout: 3 * time.Second, Wait: 20 * time.Second, Absent: AbsentRemove, Descriptors: []string{"/etc/rest.pb"}},
			Node: Node{
				ID: "tier-1", Cluster: "relays", Locality: Locality{Region: "eu", Zone: "eu-a", SubZone: "r1"},
				Metadata: map[string]any{
					"team":   "edge",
					"ports":  []any{int64(80), int64(443)},
					"nested": map[string]any{"on": true, "ratio": 0.5, "none": nil},
				},
			},
			NodeMode:        NodeModeTemplate,
			SendNodeAlways:  false,
			Backoff:         Backoff{Initial: 500 * time.Millisecond, Factor: 2, Jitter: 0.1, Max: time.Minute},
			Keepalive:       5 * time.Minute,
			MaxReceiveBytes: 128 * MiB,
			MaxSetBytes:     GiB,
			InitialVersions: InitialVersionsNever,
			WildcardForm:    WildcardFormLegacy,
			ChunkMarker:     ChunkMarkerDiderot,
			Prefetch:        PrefetchOff,
			PrefetchExcept:  []string{"RDS"},
			ExplicitMissing: SwitchOff,
			HealthCheck:     HealthCheckOff, FailoverAfter: 2 * time.Minute, FailbackAfter: 3 * time.Second,
			MaxRequestBytes: MiB, MaxStreamsPerConnection: 12, MaxConnections: 3,
			Types: []string{"CDS", "type.googleapis.com/my.Type"},
			ByType: []TypeUpstream{{
				Name: "endpoints", Types: []string{"EDS"}, Services: ServicesPerType, Address: "eds:15010", Insecure: true, Mode: "delta",
				Node: Node{ID: "eds"}, Headers: map[string]Header{"x-tier": {Value: "three"}}, Fallbacks: []Fallback{{Address: "eds-2:15010", Insecure: true}},
			}},
		},
		Downstream: Downstream{
			Listen:                  []string{":18000", "unix:///run/xds-relay/xds.sock"},
			TLS:                     ServerTLS{Cert: "/certs/tls.crt", Key: "/certs/tls.key", ClientCA: "/certs/ca.crt"},
			Relays:                  []string{"spiffe://example.org/relay"},
			MaxConnections:          500,
			MaxRequestBytes:         4 * KiB,
			MaxInflightBytes:        MiB,
			AcceptGzip:              true,
			V2Transport:             true,
			Gzip:                    true,
			MaxNameBytes:            KiB,
			MaxNamesPerStream:       5,
			MaxNames:                55,
			MaxStreams:              66,
			MaxStreamsPerConnection: 6,
			FirstMessageTimeout:     7 * time.Second,
			RequestRate:             10,
			RequestBurst:            11,
			MaxResponseBytes:        4 * MiB,
			StallTimeout:            12 * time.Second,
			KeepaliveMin:            6 * time.Second,
			MaxConnectionAge:        30 * time.Minute,
			DrainDelay:              13 * time.Second,
			ResendOnReconnectTypes:  []string{"cds"},
			NeverSynthesizeRemoval:  []string{"ECDS"}, ReadyTypes: []string{"CDS"},
			Drain: 8 * time.Second,
			REST:  REST{Listen: "127.0.0.1:18003", Hold: 14 * time.Second, InterestTTL: 15 * time.Minute, MaxPollers: 16, ProtoNames: true},
		},
		Groups: Groups{
			Profile: ProfileSidecar,
			Key:     []string{"id", "cluster", "locality.region", "locality.zone", "locality.sub_zone", "user_agent_name", "metadata.labels.app"},
			Types: []TypeKey{{TypeURL: "EDS", Key: []string{
				"user_agent_version", "client_features", "dynamic_parameters", "node", "identity", "constant.blue"}}},
			UnmultiplexableTypes: []string{"type.googleapis.com/istio.v1.HealthInformation"},
			ForwardHeaders:       []string{},
			DefaultGroup:         true, Secrets: SecretsShared, ShareSecrets: true, SendIdentity: true, Max: 9,
		},
		Passthrough: []Passthrough{{Service: LoadReporting, MaxCalls: &calls, ForwardHeaders: []string{"x-tenant"}}},
		Authz:       Authz{RulesFile: "/etc/xds-relay/rules.yaml"},
		Types: []TypeOverride{
			{TypeURL: "CDS", FullState: &no, EmptyMeans: EmptyMeansNothing, Secret: &no},
			{TypeURL: "type.googleapis.com/my.Type"},
		},
		Timers: Timers{
			DNETimeout: time.Second, DNETimeoutExplicit: 2 * time.Second, Settle: 3 * time.Millisecond, SettleCap: 4 * time.Second,
			NameLinger: 5 * time.Second, GroupLinger: 6 * time.Second, AckTimeout: 7 * time.Second, WarmingHold: 9 * time.Second, UnavailableAfter: 8 * time.Second,
		},
		Cache: Cache{
			MaxUnaskedBytes:  KiB,
			MassRemovalGuard: MassRemovalGuard{Fraction: 0.25, Min: 3, Within: 4 * time.Second, Hold: 5 * time.Second},
			Snapshot: Snapshot{
				Dir: "/var/lib/xds-relay", Interval: 9 * time.Second, MaxAge: time.Hour, KeepUnwanted: 2 * time.Hour, MaxBytes: MiB, KeyFile: "/certs/snapshot", ExcludeTypes: []string{"LDS"},
			},
		},
		VersionKeyFile: "/certs/hmac", ReloadOnChange: true,
		Admin: Admin{Listen: "unix:///run/xds-relay/admin.sock", Pprof: true, History: KiB, CSDS: CSDSBodies, StaleAfter: time.Minute, Webhook: Webhook{
			URL: "https://hooks.example.com/a", Headers: map[string]Header{"x-token": {File: "/run/hook"}}, Events: []EventKind{"nack", "nack_over"},
		}},
		Metrics: Metrics{Listen: "0.0.0.0:18002"},
		Log:     Log{Level: LogLevelDebug, Format: LogFormatJSON},
		Tracing: Tracing{
			OTLPEndpoint: "https://collector:4317",
			TLS:          CollectorTLS{CA: "/certs/ca.crt", Cert: "/certs/tls.crt", Key: "/certs/tls.key", ServerName: "collector"},
			SampleRatio:  0.5, AlwaysSample: []AlwaysSample{AlwaysSampleSlow}, SlowAfter: 2 * time.Second, Window: 3 * time.Second,
		},
	}
}

func TestEveryFieldIsRead(t *testing.T) {
	got, err := Parse("relay.yaml", []byte(fullFile), nil)
	if err != nil {
		t.Fatal(err)
	}
	sections(reflect.TypeFor[Config](), "", func(typ reflect.Type, _ string) {
		for i := range typ.NumField() {
			if name := yamlName(typ.Field(i)); name != "" && !regexp.MustCompile(`\b`+name+`:`).MatchString(fullFile) {
				t.Errorf("the file of this test lacks %s", name)
			}
		}
	})
	got.prov = nil
	if want := fullConfig(); !reflect.DeepEqual(*got, want) {
		t.Errorf("got  %+v\nwant %+v", *got, want)
	}
}
