package relay

import (
	"fmt"
	"reflect"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/service"
)

// byType is a grouping with endpoints and secrets from elsewhere.
func byType(t *testing.T, sets ...string) Grouping {
	t.Helper()
	return grouping(t, append(sets, `upstream.by_type=[
		{"name": "eds", "types": ["EDS"], "address": "127.0.0.1:2", "node": {"id": "other"}},
		{"name": "own", "types": ["RTDS", "ECDS"], "address": "127.0.0.1:3", "services": "per_type"}]`)...)
}

// TestPlaceByType: where a type comes from is a part of the group's name, and of no other group's (UP-27).
func TestPlaceByType(t *testing.T) {
	node := &core.Node{Id: "a"}
	for url, want := range map[cache.TypeURL]string{
		cache.Cluster: "", cache.Endpoint: "by_type=eds;", cache.Runtime: "by_type=own;service=" + string(cache.Runtime) + ";", cache.Extension: "by_type=own;service=" + string(cache.Extension) + ";",
	} {
		for key, of := range map[string]string{"[]": "", "[id]": `id="a";`} {
			p, end := byType(t, "groups.key="+key).Place(session.Peer{}, node, url, nil)
			if end != nil {
				t.Fatal(end)
			}
			if got := p.groupName(); got != want+of {
				t.Errorf("%s with the key %s: the group is %q, want %q", url.Short(), key, got, want+of)
			}
			if p.Own != (want != "") {
				t.Errorf("%s with the key %s: it has a group apart from the other types: %v", url.Short(), key, p.Own)
			}
		}
	}
	if _, ok := byType(t).defaultOf("by_type=gone;"); ok {
		t.Error("a control plane that is not listed has a default group")
	}
}

// TestNodeByType: the relay introduces itself as the item says, or else as upstream does.
func TestNodeByType(t *testing.T) {
	g := byType(t)
	for url, want := range map[cache.TypeURL]string{cache.Cluster: "xds-relay", cache.Endpoint: "other", cache.Runtime: "xds-relay"} {
		p, _ := g.Place(session.Peer{}, &core.Node{Id: "a"}, url, nil)
		if got := g.Node(p, nil).GetId(); got != want {
			t.Errorf("for %s it is %q, want %q", url.Short(), got, want)
		}
	}
}

// TestLimitByType: the groups of one control plane take no place of another's.
func TestLimitByType(t *testing.T) {
	inWorld(t, []string{"groups.key=[id]", "groups.max=2", `upstream.by_type=[{"name": "eds", "types": ["EDS"], "address": "127.0.0.1:2"}]`}, func(w *world) {
		g := w.relay.groups
		for _, url := range []cache.TypeURL{cache.Cluster, cache.Endpoint} {
			for i := range 3 {
				_, end := g.Join(session.Peer{Holder: "h"}, &core.Node{Id: fmt.Sprint("n", i)}, url)
				if full := end != nil && end.Reason == session.Overcrowded; full != (i == 2) {
					t.Errorf("group %d of %s: %v", i, url.Short(), end)
				}
			}
		}
		if got := len(w.relay.Groups()); got != 4 {
			t.Errorf("there are %d groups, want two for each control plane", got)
		}
	})
}

// TestServicesByType: each type that a configuration may ask for by its own service has one.
func TestServicesByType(t *testing.T) {
	names := []string{"LDS", "CDS", "SRDS", "RDS", "EDS", "SDS", "RTDS", "ECDS", "VHDS", "LEDS"}
	for _, url := range TypeURLs(names) {
		if _, ok := service.Of(url); !ok {
			t.Errorf("%s has no service", url)
		}
	}
	if all := len(service.All()); all != len(names)+1 {
		t.Errorf("there are %d services, want the aggregated one and %d", all, len(names))
	}
}

// TestCallsByType: calls that go through go to upstream itself, and to files only if there is nothing else.
func TestCallsByType(t *testing.T) {
	const other = `upstream.by_type=[{"name": "eds", "types": ["EDS"], "address": "127.0.0.1:2"}]`
	files := &filesFeed{}
	for name, c := range map[string]struct {
		set        []string
		ways, want []way
	}{
		"a last resort": {[]string{`upstream.fallbacks=[{"address": "files:///a"}]`}, []way{{}, {feed: files}, {}}, []way{{}}},
		"nothing else":  {[]string{"upstream.address=files:///a"}, []way{{feed: files}, {}}, []way{{feed: files}}},
		"no files":      {nil, []way{{}, {}}, []way{{}}},
	} {
		config, err := config.Load("", append(c.set, other))
		if err != nil {
			t.Fatal(err)
		}
		if got := forCalls(config, c.ways); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: calls have %d ways, want %d", name, len(got), len(c.want))
		}
	}
}
