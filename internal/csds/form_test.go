package csds

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admin "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	service "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/config"
)

// TestFormsAreEqual: JSON says what the wire form says, in both views, with bodies and whatever names there are.
func TestFormsAreEqual(t *testing.T) {
	f := newFake()
	odd := stream(`b"\` + "\n\u00e9")
	whole := downstream.View{Types: []downstream.TypeView{{ClientType: session.ClientType{Type: cache.Cluster, Group: defaultGroup, Nonce: "1"}, Whole: new(fanout.News)}}}
	body := packed(t, &cluster.Cluster{Name: "n", TransportSocket: leakySocket(t)})
	for _, name := range []string{"z", "a\xff<", "m"} {
		r := cache.NewResource(cache.Cluster, &service.Resource{Name: name, Resource: body}, cache.Fingerprint{})
		odd.Types[0].Names = append(odd.Types[0].Names, session.ClientName{Name: name, Step: session.StepSynced, Sent: r.Version, Now: r.Version, Resource: r})
		whole.Types[0].Whole.Resources = append(whole.Types[0].Whole.Resources, r)
	}
	f.streams = []downstream.View{stream("a"), odd, whole, {}, whole}
	s := New(f, shows(config.CSDSBodies))
	for _, text := range []string{`{}`, `{"nodeMatchers": [{}]}`} {
		req := new(discovery.ClientStatusRequest)
		if err := protojson.Unmarshal([]byte(text), req); err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, Path, strings.NewReader(text)))
		got, want := new(discovery.ClientStatusResponse), asks(t, s, req)
		if err := protojson.Unmarshal(w.Body.Bytes(), got); err != nil || !proto.Equal(got, want) {
			t.Errorf("%s: %v: JSON says\n%v, and the wire form\n%v", text, err, got, want)
		}
		if strings.Contains(w.Body.String(), secret) || !strings.Contains(w.Body.String(), "shown.example") == (text != "{}") {
			t.Errorf("%s: %s", text, w.Body)
		}
	}
}

// TestWhole: a client that has accepted a whole set has the same answer as one whose resources are listed one by one.
func TestWhole(t *testing.T) {
	f := newFake()
	names, whole := stream("a"), stream("a")
	names.Types[0].Names, whole.Types[0].Names, whole.Types[0].Whole = nil, nil, new(fanout.News)
	for _, name := range []string{"b", "a"} {
		r := cache.NewResource(cache.Cluster, &service.Resource{Name: name, Resource: packed(t, &cluster.Cluster{Name: name})}, cache.Fingerprint{})
		n := session.ClientName{Name: name, Step: session.StepSynced, Sent: r.Version, Now: r.Version, Resource: r}
		names.Types[0].Names = append([]session.ClientName{n}, names.Types[0].Names...)
		whole.Types[0].Whole.Resources = append(whole.Types[0].Whole.Resources, r)
	}
	f.streams = []downstream.View{names, whole, whole}
	all := asks(t, New(f, shows(config.CSDSBodies)), requested(t, `{}`)).GetConfig()
	if len(all) != 3 || !proto.Equal(all[0], all[1]) || !proto.Equal(all[0], all[2]) || len(all[0].GetGenericXdsConfigs()) != 5 {
		t.Errorf("they are\n%v", all)
	}
}

// TestStatuses: the enums are those of the protocol.
func TestStatuses(t *testing.T) {
	for n, name := range clientStatuses {
		if want := admin.ClientResourceStatus(n).String(); name != want {
			t.Errorf("%d is %s, want %s", n, name, want)
		}
	}
	for n, name := range configStatuses {
		if want := discovery.ConfigStatus(n).String(); name != want {
			t.Errorf("%d is %s, want %s", n, name, want)
		}
	}
	if len(clientStatuses) != len(admin.ClientResourceStatus_name) || len(configStatuses) != len(discovery.ConfigStatus_name) {
		t.Error("some are not known")
	}
	if of := discovery.ClientStatusDiscoveryService_ServiceDesc; of.ServiceName != Name {
		t.Errorf("the service is %s", of.ServiceName)
	}
}

// TestRequests: a request is read as the protocol has it, in both forms, and what is none is refused.
func TestRequests(t *testing.T) {
	for _, text := range []string{
		`{}`, `{"nodeMatchers": [{}, {"nodeId": {"exact": "a"}}], "node": {"id": "me"}, "excludeResourceContents": true}`, `{"node_matchers": [{}], "exclude_resource_contents": true}`, `{"nodeMatchers": null}`,
	} {
		want := new(discovery.ClientStatusRequest)
		if err := protojson.Unmarshal([]byte(text), want); err != nil {
			t.Fatal(err)
		}
		want.ProtoReflect().SetUnknown([]byte{0xfa, 0x3f, 1, 'x', 0xf8, 0x3f, 1})
		got := new(request)
		if err := got.fromJSON([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		for form, r := range map[string]*request{"JSON": got, "wire": taken(t, want)} {
			same := r.excludes == want.GetExcludeResourceContents() && len(r.matchers) == len(want.GetNodeMatchers())
			for i := range r.matchers {
				same = same && proto.Equal(r.matchers[i], want.GetNodeMatchers()[i])
			}
			if !same {
				t.Errorf("%s, %s: %+v", text, form, r)
			}
		}
	}
	for _, data := range []string{"\x0a", "\x0a\x05a", "\x0a\x02\x0a\x05", "\x07"} {
		if err := new(request).fromWire([]byte(data)); err == nil {
			t.Errorf("%q is taken", data)
		}
	}
	for _, text := range []string{`{}{}`, `[]`, `{"nodeMatchers": [{"nodeId": 1}]}`, `{"nodeMatchers": {}}`} {
		if err := new(request).fromJSON([]byte(text)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

// BenchmarkAnswer composes the answer for 1,000 clients that have accepted 1,000 resources each: the whole set, or the same by name.
func BenchmarkAnswer(b *testing.B) {
	for _, kind := range []string{"whole", "names"} {
		f := many(1000, 1000, 1)
		if kind == "whole" {
			set := new(fanout.News)
			for _, n := range f.streams[0].Types[0].Names {
				set.Resources = append(set.Resources, &cache.Resource{Name: n.Name, Version: n.Sent})
			}
			for i := range f.streams {
				f.streams[i].Types = []downstream.TypeView{{ClientType: f.streams[i].Types[0].ClientType, Whole: set}}
			}
		}
		for name, form := range map[string]form{"wire": new(wire), "json": asJSON{}} {
			b.Run(kind+"/"+name, func(b *testing.B) {
				s := New(f, shows(config.CSDSStatus))
				r := &request{}
				if err := r.fromJSON([]byte(`{"nodeMatchers": [{}]}`)); err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					a, err := s.answer(b.Context(), r, form)
					if err != nil {
						b.Fatal(err)
					}
					a.buffers()
				}
			})
		}
	}
}
