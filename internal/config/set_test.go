package config

import (
	"reflect"
	"testing"
	"time"
)

func TestSet(t *testing.T) {
	yes := true
	for _, tt := range []struct {
		set    []string
		change func(*Config)
	}{
		{[]string{"upstream.address=[::1]:18"}, func(c *Config) { c.Upstream.Address = "[::1]:18" }},
		{[]string{"instance=007"}, func(c *Config) { c.Instance = "007" }},
		{[]string{"instance='a=b'"}, func(c *Config) { c.Instance = "a=b" }},
		{[]string{"admin.listen="}, func(c *Config) { c.Admin.Listen = "" }},
		{[]string{"timers.settle=1s", "timers.settle=2s"}, func(c *Config) { c.Timers.Settle = 2 * time.Second }},
		{[]string{"upstream.explicit_missing=true"}, func(c *Config) { c.Upstream.ExplicitMissing = SwitchOn }},
		{[]string{"upstream.max_receive_bytes=1MiB"}, func(c *Config) { c.Upstream.MaxReceiveBytes = MiB }},
		{[]string{"upstream.send_node_always=false"}, func(c *Config) { c.Upstream.SendNodeAlways = false }},
		{[]string{"downstream.listen=['127.0.0.1:1', 'localhost:2']"}, func(c *Config) { c.Downstream.Listen = []string{"127.0.0.1:1", "localhost:2"} }},
		{[]string{"log={level: warn, format: text}"}, func(c *Config) { c.Log = Log{Level: LogLevelWarn, Format: LogFormatText} }},
		{[]string{"log={level: warn}"}, func(c *Config) { c.Log.Level = LogLevelWarn }},
		{[]string{"types=[{type_url: CDS, full_state: true}]"}, func(c *Config) { c.Types = []TypeOverride{{TypeURL: "CDS", FullState: &yes}} }},
		{[]string{"upstream.node.metadata={a: {b: 1}}", "upstream.node.metadata.a.c=x", `upstream.node.metadata.d\.e=[1]`}, func(c *Config) {
			c.Upstream.Node.Metadata = map[string]any{"a": map[string]any{"b": int64(1), "c": "x"}, "d.e": []any{int64(1)}}
		}},
	} {
		got, err := Parse("", nil, tt.set)
		if err != nil {
			t.Errorf("%q: %v", tt.set, err)
			continue
		}
		want := Default()
		tt.change(&want)
		got.prov = nil
		if !reflect.DeepEqual(*got, want) {
			t.Errorf("%q:\ngot  %+v\nwant %+v", tt.set, *got, want)
		}
	}
}

func TestMistakesInSet(t *testing.T) {
	for _, tt := range []struct {
		set  string
		want string
	}{
		{"log.level", "--set log.level: wants key.path=value\n  hint: for example --set upstream.address=127.0.0.1:15010"},
		{"=x", "--set =x: wants key.path=value\n  hint: for example --set upstream.address=127.0.0.1:15010"},
		{"log.levl=warn", "--set log.levl=warn: unknown field \"levl\"\n  hint: did you mean \"level\"?"},
		{"log..level=warn", "--set log..level=warn: unknown field \"\"\n  hint: known fields of log: level, format"},
		{"logs.level=warn", "--set logs.level=warn: unknown field \"logs\"\n  hint: did you mean \"log\"?"},
		{"log.level.x=warn", "--set log.level.x=warn: log.level: has no field \"x\", it is a single value"},
		{"log=warn", "--set log=warn: log: wants a mapping, found \"warn\"\n  hint: write name: value lines, indented"},
		{"log={levl: warn}", "--set log={levl: warn}: unknown field \"levl\"\n  hint: did you mean \"level\"?"},
		{"log={level: warn", "--set log={level: warn: log: could not find flow mapping end token '}'"},
		{"log.level=loud", "--set log.level=loud: log.level: unknown value \"loud\"\n  hint: use one of debug, info, warn, error"},
		{"groups.max=", "--set groups.max=: groups.max: has no value\n  hint: write the value after ="},
		{"groups.max=1.5", "--set groups.max=1.5: groups.max: wants a whole number, found 1.5"},
		{"timers.settle=5", "--set timers.settle=5: timers.settle: wants a duration such as 30s, found 5\n  hint: add a unit: ms, s, m or h"},
		{"downstream.listen=:1", "--set downstream.listen=:1: downstream.listen: wants a list, found \":1\"\n  hint: write it as [a, b], or one per line after a dash"},
		{"downstream.listen[0]=:1", "--set downstream.listen[0]=:1: downstream.listen: one item of a list cannot be set\n  hint: set the whole list: downstream.listen=[a, b]"},
		{"downstream.listen.0=:1", "--set downstream.listen.0=:1: downstream.listen: one item of a list cannot be set\n  hint: set the whole list: downstream.listen=[a, b]"},
		{"downstream.listen=['0.0.0.0:1']", "--set downstream.listen=['0.0.0.0:1']: downstream.listen[0]: \"0.0.0.0:1\" can be reached from other hosts and would be plaintext\n  hint: set downstream.tls, or downstream.insecure: true if the network is trusted"},
		{"upstream.node.metadata.a=&x 1", "--set upstream.node.metadata.a=&x 1: upstream.node.metadata.a: anchors, aliases and tags are not supported\n  hint: write the value out"},
		{"instance=${env:RELAY_UNSET}", "--set instance=${env:RELAY_UNSET}: instance: environment variable RELAY_UNSET is not set\n  hint: set it, or give a default: ${env:RELAY_UNSET:-default}"},
		{"apiVersion=v2", "--set apiVersion=v2: apiVersion: \"v2\" is not a format this version reads\n  hint: write apiVersion: xds-relay/v1alpha1"},
	} {
		_, err := Parse("relay.yaml", []byte("downstream:\n  listen: [\"127.0.0.1:5\"]\n"), []string{tt.set})
		checkErr(t, err, tt.want)
	}
	_, err := Parse("", nil, []string{"upstream.node.metadata.a=1", "upstream.node.metadata.a.b=1"})
	checkErr(t, err, "--set upstream.node.metadata.a.b=1: upstream.node.metadata.a: is not a mapping\n  hint: set upstream.node.metadata.a itself")
}

func TestOverrideNamesTheFlag(t *testing.T) {
	c, err := Parse("relay.yaml", []byte("log:\n  level: warn\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Override("--log-level", "log.level", "loud"); err != nil {
		t.Fatal(err)
	}
	checkErr(t, c.Validate(), "--log-level=loud: log.level: unknown value \"loud\"\n  hint: use one of debug, info, warn, error")
	checkErr(t, c.Override("--groups", "groups.max", "x"), "--groups=x: groups.max: wants a whole number, found \"x\"")

	d := Default()
	if err := d.Override("--listen", "downstream.listen", "['localhost:0', 'localhost:0']"); err != nil {
		t.Fatal(err)
	}
	if err := d.Validate(); err != nil {
		t.Error(err)
	}
}
