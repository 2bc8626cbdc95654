package config_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"unicode/utf8"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/relay"
)

// FuzzConfig: no file and no --set makes the relay panic. A mistake is reported with
// a place in the file, or with the argument; what is accepted says the same when it is
// read again, and all that is made of it can be made.
func FuzzConfig(f *testing.F) {
	examples, err := filepath.Glob("../../deploy/examples/*/relay.yaml")
	if err != nil || len(examples) == 0 {
		f.Fatalf("no examples: %v", err)
	}
	for _, file := range examples {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bare(data), "")
	}
	f.Add([]byte("groups:\n  key: [id, metadata.a.b, constant.x]\n  types:\n    - {type_url: EDS, key: [node]}\n"), "upstream.node_mode=template")
	f.Add([]byte("upstream: {node: {metadata: {a: [1, {b: null}], c: 1e999}}}"), "upstream.backoff.factor=.inf")
	f.Add([]byte("cache: {mass_removal_guard: {fraction: 0.5}, snapshot: {interval: 1s}}\n# ünïcode\n"), `groups.types=[{"type_url":"CDS"}]`)
	f.Add([]byte("downstream:\n\tlisten: [\"${env:HOME}\"]\n"), "downstream.listen=[unix:///x]")
	f.Add([]byte("upstream:\n  headers: {authorization: {file: t, prefix: \"Bearer \"}, x-a: \"${env:HOME}\"}\ngroups: {forward_headers: [x-b]}\n"), `upstream.headers.x-c={"value":"v"}`)
	f.Add([]byte("types:\n  - &a {type_url: CDS}\n  - *a\n"), "log.level")
	f.Add([]byte("upstream:\n  keepalive: 1h1h\n  max_receive_bytes: 9e9GiB\n"), "timers.settle=-1s")
	f.Fuzz(func(t *testing.T, data []byte, set string) {
		var sets []string
		if set != "" {
			sets = []string{set}
		}
		c, err := config.Parse("relay.yaml", data, sets)
		if err != nil {
			checkMistakes(t, data, err)
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("accepted, and not valid: %v", err)
		}
		again, err := config.Parse("relay.yaml", data, sets)
		if err != nil || !reflect.DeepEqual(c, again) {
			t.Fatalf("read again it is another: %v", err)
		}
		use(t, c)
	})
}

// bare is a file without its comments, which are most of it.
func bare(data []byte) (lines []byte) {
	for line := range bytes.Lines(data) {
		if text := bytes.TrimSpace(line); len(text) > 0 && text[0] != '#' {
			lines = append(lines, line...)
		}
	}
	return lines
}

// checkMistakes: every mistake says what is wrong, and where.
func checkMistakes(t *testing.T, data []byte, err error) {
	all := config.All(err)
	if len(all) == 0 {
		t.Fatalf("not a mistake with a place: %v", err)
	}
	lines := bytes.Count(data, []byte("\n")) + 1
	for _, e := range all {
		if e.Msg == "" || !utf8.ValidString(e.Error()) {
			t.Errorf("a mistake that nobody can read: %q", e.Error())
		}
		if e.Line < 0 || e.Line > lines || (e.Line == 0) != (e.Column == 0) {
			t.Errorf("line %d, column %d of %d lines: %v", e.Line, e.Column, lines, e)
		}
	}
}

// use makes all that is made of a configuration, except what opens files and sockets.
func use(t *testing.T, c *config.Config) {
	relay.HubConfig(c)
	relay.DownstreamConfig(c)
	relay.UpstreamConfig(c, cache.Fingerprint{})
	g := relay.NewGrouping(c)
	for _, node := range []*core.Node{nil, {Id: "a", Cluster: "b"}} {
		if _, end := g.Key(node); end != nil && node != nil {
			t.Errorf("a client with a node has no key: %v", end)
		}
		for _, client := range []session.Peer{{Identity: "spiffe://a/b"}, {Local: true}} {
			for _, typeURL := range []cache.TypeURL{cache.Cluster, cache.Secret} {
				if p, end := g.Place(client, node, typeURL, nil); end == nil {
					g.Node(p, node)
				}
			}
		}
	}
}
