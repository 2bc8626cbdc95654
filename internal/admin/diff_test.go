package admin

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
)

// behind is a relay with one client, which is behind with what it was told of.
type behind struct {
	described
	names map[cache.TypeURL][]session.ClientName
}

func (b behind) Client(stream uint64) (downstream.Client, bool) {
	var types []session.ClientType
	for _, t := range []cache.TypeURL{cache.Cluster, cache.Secret} {
		types = append(types, session.ClientType{Type: t, Group: "default"})
	}
	return downstream.Client{Stream: stream, Node: "n", Types: types}, stream == 1
}

func (b behind) ClientNames(_ uint64, t cache.TypeURL, after string, most int) (names []session.ClientName, more bool) {
	for _, n := range b.names[t] {
		if n.Name > after {
			names = append(names, n)
		}
	}
	return names[:min(len(names), most)], len(names) > most
}

// newBehind has the versions 1 and 2 of some Clusters, and a Secret, in a Hub.
func newBehind(t *testing.T, names ...string) behind {
	h := fanout.NewHub(fanout.Config{Linger: time.Minute, MaxLinger: 10, History: fanout.NewHistory(1 << 20)})
	b := behind{described{hub: h}, make(map[cache.TypeURL][]session.ClientName)}
	for _, typ := range []cache.TypeURL{cache.Cluster, cache.Secret} {
		s := h.Subscribe(typ, fanout.NewSubscriber(func() {}))
		s.Delta(names, nil, time.Unix(1, 0))
		h.On(fanout.Lane{Type: typ}).Asked(names)
		for version := range 2 {
			u := &cache.Update{At: time.Unix(int64(10*version), 0)}
			for _, name := range names {
				u.Set = append(u.Set, cache.Received{Resource: versionOf(t, typ, name, version)})
			}
			h.Apply(fanout.Lane{Type: typ}, u)
		}
	}
	return b
}

// versionOf is a Cluster that has a canary inline, or bytes of a Secret.
func versionOf(t *testing.T, typ cache.TypeURL, name string, version int) *cache.Resource {
	body := fmt.Appendf(nil, "%s %d", canary, version)
	if typ == cache.Cluster {
		inline, err := anypb.New(&core.DataSource{Specifier: &core.DataSource_InlineString{InlineString: canary}})
		if err != nil {
			t.Fatal(err)
		}
		if body, err = proto.Marshal(&cluster.Cluster{
			Name: name, ConnectTimeout: durationpb.New(time.Duration(version+1) * time.Second),
			TypedExtensionProtocolOptions: map[string]*anypb.Any{"x": inline},
		}); err != nil {
			t.Fatal(err)
		}
	}
	return cache.NewResource(typ, &discovery.Resource{Name: name, Resource: &anypb.Any{TypeUrl: string(typ), Value: body}}, cache.Fingerprint{})
}

// is says that the client holds a version of a Cluster and a Secret, and how far it is.
func (b behind) is(t *testing.T, name string, step session.Step, held, now int) {
	for _, typ := range []cache.TypeURL{cache.Cluster, cache.Secret} {
		n := session.ClientName{Name: name, Asked: true, Step: step, Changed: 1}
		if held >= 0 {
			n.Sent = versionOf(t, typ, name, held).Version
		}
		if now >= 0 {
			n.Now = versionOf(t, typ, name, now).Version
		}
		b.names[typ] = append(b.names[typ], n)
	}
}

func (b behind) asks(t *testing.T, path string) (code int, text string) {
	t.Helper()
	h := NewHandler(b, NewMetrics(ReadBuild("test")), HandlerOptions{Host: "127.0.0.1", Log: slog.New(slog.DiscardHandler)})
	req := httptest.NewRequest("GET", path, nil)
	req.Host = "localhost"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w.Code, w.Body.String()
}

// TestDiff: of what a client does not have as the relay has it, both sides are shown as far as they are known, and
// nothing that may be secret.
func TestDiff(t *testing.T) {
	b := newBehind(t, "a", "b", "c", "d", "e", "f", "g")
	b.is(t, "a", session.StepUnsent, 0, 1)
	b.is(t, "b", session.StepRejected, 1, 1)
	b.is(t, "c", session.StepUnsent, -1, 1)
	b.is(t, "d", session.StepSynced, 1, 1)
	b.is(t, "e", session.StepAwaited, -1, -1)
	b.is(t, "f", session.StepUnknown, -1, 1)
	b.is(t, "g", session.StepUnsent, 7, 1) // a version that is not remembered
	code, text := b.asks(t, "/clients/1/diff")
	var answer struct {
		Differences []struct {
			Type, Name, Step, Sent, Now string
			Probably                    bool
			Client, Relay               *struct {
				Version, Omitted string
				Body             map[string]any
			}
		}
		More bool
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || code != 200 {
		t.Fatalf("%d %v: %s", code, err, text)
	}
	if strings.Contains(text, canary) {
		t.Errorf("a secret is shown: %s", text)
	}
	got := make(map[string]string)
	for _, d := range answer.Differences {
		side := func(version, omitted string, body map[string]any) string {
			if body == nil {
				return "(" + omitted + ")"
			}
			return fmt.Sprint(body["connect_timeout"])
		}
		says := d.Step
		if d.Client != nil {
			says += " client " + side(d.Client.Version, d.Client.Omitted, d.Client.Body)
		}
		if d.Relay != nil {
			says += " relay " + side(d.Relay.Version, d.Relay.Omitted, d.Relay.Body)
		}
		if d.Probably {
			says += " probably"
		}
		if d.Type == string(cache.Secret) && d.Sent+d.Now != "" {
			says += " with a version"
		}
		got[cache.TypeURL(d.Type).Short()+" "+d.Name] = says
	}
	for name, want := range map[string]string{
		"CDS a": "unsent client 1s relay 2s", "CDS b": "rejected client 1s relay 2s probably", "CDS c": "unsent relay 2s", "CDS d": "", "CDS e": "awaited",
		"CDS f": "unknown client 1s relay 2s probably", "CDS g": "unsent client (the relay does not remember this version; see admin.history) relay 2s",
		"SDS a": "unsent", "SDS b": "rejected", "SDS d": "",
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	for path, want := range map[string]string{
		"/clients/1/diff?type=CDS&limit=2":    `"more": true`,
		"/clients/1/diff?type=EDS":            `"differences": []`,
		"/clients/1/diff?limit=0":             `limit is "0"; use a number from 1 to 1000`,
		"/clients/1/diff?type=x":              "use a short name such as CDS",
		"/clients/1/diff?typ=x":               `unknown parameter "typ"`,
		"/clients/2/diff":                     "there is no stream 2",
		"/clients/" + canary[:5] + "%00/diff": "is no stream",
	} {
		if _, text := b.asks(t, path); !strings.Contains(text, want) {
			t.Errorf("%s: %s, want %s", path, text, want)
		}
	}
}

// TestDiffIsBounded: bodies that are too many, or too large, are left out.
func TestDiffIsBounded(t *testing.T) {
	b := newBehind(t)
	d := differ{room: 10, limit: 1}
	r := versionOf(t, cache.Cluster, "a", 1)
	if got := d.body(r); got.Body != nil || got.Omitted == "" || got.Bytes != r.Size() {
		t.Errorf("%+v", got)
	}
	h := &handler{relay: b, diffs: make(chan struct{}, 1)}
	h.diffs <- struct{}{} // somebody else asks
	req := httptest.NewRequest("GET", "/clients/1/diff", nil)
	req.SetPathValue("stream", "1")
	w := httptest.NewRecorder()
	h.diff(w, req)
	if w.Code != 503 || !strings.Contains(w.Body.String(), "ask again in a moment") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
