package config

import (
	"reflect"
	"testing"
	"time"
)

func TestExpandEnv(t *testing.T) {
	t.Setenv("RELAY_A", "a")
	t.Setenv("RELAY_EMPTY", "")
	t.Setenv("RELAY_DOLLAR", "${env:RELAY_A}$$")
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"plain", "plain"},
		{"${env:RELAY_A}", "a"},
		{"<${env:RELAY_A}${env:RELAY_A}>", "<aa>"},
		{"${env:RELAY_A:-b}", "a"},
		{"${env:RELAY_UNSET:-b}", "b"},
		{"${env:RELAY_UNSET:-}", ""},
		{"${env:RELAY_UNSET:-a:-b $x}", "a:-b $x"},
		{"${env:RELAY_EMPTY}", ""},
		{"${env:RELAY_EMPTY:-b}", "b"},
		{"${env:RELAY_DOLLAR}", "${env:RELAY_A}$$"}, // not expanded again
		{"$${env:RELAY_A}", "${env:RELAY_A}"},
		{"$$$${env:RELAY_A}", "$${env:RELAY_A}"},
		{"$$${env:RELAY_A}", "$a"},
		{"$", "$"},
		{"a$b$", "a$b$"},
		{"$x}", "$x}"},
	} {
		got, _, err := expandEnv(tt.in)
		if err != nil || got != tt.want {
			t.Errorf("%q = %q, %v; want %q", tt.in, got, err, tt.want)
		}
	}
	for _, in := range []string{"${", "${}", "${env:}", "${env:1A}", "${env:A B}", "${env:-x}", "${ENV:A}", "${env:RELAY_UNSET}", "a${env:RELAY_A", "${env:é}"} {
		if got, _, err := expandEnv(in); err == nil {
			t.Errorf("%q = %q, want an error", in, got)
		}
	}
}

// A variable fills a field of any scalar type, and only ever one scalar.
func TestEnvInTheFile(t *testing.T) {
	t.Setenv("RELAY_DUR", "7s")
	t.Setenv("RELAY_INT", "12")
	t.Setenv("RELAY_FLOAT", "2.5")
	t.Setenv("RELAY_BOOL", "true")
	t.Setenv("RELAY_SIZE", "1MiB")
	t.Setenv("RELAY_LEVEL", "warn")
	t.Setenv("RELAY_PORT", "15010")
	t.Setenv("RELAY_YAML", "x\"\nlog: {level: debug}\n# {a: [b]}")
	c, err := Parse("relay.yaml", []byte(`
upstream:
  address: 127.0.0.1:${env:RELAY_PORT}
  insecure: ${env:RELAY_BOOL}
  explicit_missing: ${env:RELAY_BOOL}
  max_receive_bytes: ${env:RELAY_SIZE}
  keepalive: ${env:RELAY_UNSET:-0}
  backoff: {factor: "${env:RELAY_FLOAT}"}
  node:
    cluster: ${env:RELAY_YAML}
    metadata: {n: "${env:RELAY_INT}", "${env:RELAY_INT}": [$$5]}
downstream: {listen: ["127.0.0.1:${env:RELAY_UNSET:-1}"]}
groups: {max: "${env:RELAY_INT}"}
timers: {settle_cap: "${env:RELAY_DUR}"}
log: {level: "${env:RELAY_LEVEL}"}
types: [{type_url: CDS, full_state: "${env:RELAY_BOOL}"}]
`), []string{"instance=r-${env:RELAY_INT}", "cache.max_lingering_names='${env:RELAY_INT}'"})
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	want := Default()
	want.Instance = "r-12"
	want.Upstream.Address = "127.0.0.1:15010"
	want.Upstream.Insecure = true
	want.Upstream.ExplicitMissing = SwitchOn
	want.Upstream.MaxReceiveBytes = MiB
	want.Upstream.Backoff.Factor = 2.5
	want.Upstream.Node.Cluster = "x\"\nlog: {level: debug}\n# {a: [b]}"
	want.Upstream.Node.Metadata = map[string]any{"n": "12", "${env:RELAY_INT}": []any{"$5"}} // text stays text, keys stay
	want.Downstream.Listen = []string{"127.0.0.1:1"}
	want.Groups.Max = 12
	want.Timers.SettleCap = 7 * time.Second
	want.Log.Level = LogLevelWarn
	want.Cache.MaxLingeringNames = 12
	want.Types = []TypeOverride{{TypeURL: "CDS", FullState: &yes}}
	c.prov = nil
	if !reflect.DeepEqual(*c, want) {
		t.Errorf("got  %+v\nwant %+v", *c, want)
	}
}
