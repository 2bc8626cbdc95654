package logging

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
)

// TestALineIsBounded: however many names a peer sends, and however long ones, a line has a
// few of them, each cut between characters; no version of a secret is in it.
func TestALineIsBounded(t *testing.T) {
	long := strings.Repeat("x", maxName-1) + "é"
	first := First(append([]string{long}, strings.Split(strings.Repeat("a", 100), "")...))
	if len(first) != MaxNames || len(first[0]) != maxName-1 || !utf8.ValidString(first[0]) {
		t.Errorf("%q", first)
	}
	if v := Version(nil, cache.Secret, "weak"); strings.Contains(v, "weak") {
		t.Errorf("the version of a secret is shown: %s", v)
	}
	if v := Version(nil, cache.Cluster, "1"); v != "1" {
		t.Errorf("the version of a cluster is shown as %s", v)
	}
}

// TestTypesMadeSecret: also where the configuration says that a type is secret.
func TestTypesMadeSecret(t *testing.T) {
	types := cache.Types{cache.Cluster: {Secret: true}, cache.Secret: {}}
	if v := Version(types, cache.Cluster, "weak"); v != "[redacted]" {
		t.Errorf("the version of a type made secret is shown: %s", v)
	}
	if v := Version(types, cache.Secret, "1"); v != "1" {
		t.Errorf("the version of a type that is no secret any more is shown as %s", v)
	}
	req := &discovery.DiscoveryRequest{TypeUrl: string(cache.Cluster), VersionInfo: "weak"}
	if text := fmt.Sprint(Request(types, req, "")); strings.Contains(text, "weak") {
		t.Errorf("a request shows it: %s", text)
	}
}
