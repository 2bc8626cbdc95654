package csds

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admin "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	service "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/config"
	upsession "github.com/xds-relay/xds-relay/upstream/session"
)

// fake is a relay with a hub of its own for each group, and streams that a test makes up.
type fake struct {
	hubs    map[string]*fanout.Hub
	states  map[string]upsession.State
	streams []downstream.View
}

func (f *fake) Groups() map[string]*fanout.Hub       { return f.hubs }
func (f *fake) Upstream() map[string]upsession.State { return f.states }
func (f *fake) Streams() (ids []uint64) {
	for i := range f.streams {
		ids = append(ids, uint64(i))
	}
	return ids
}
func (f *fake) View(id uint64, wanted func(*core.Node) bool, into *downstream.View) bool {
	*into = f.streams[id]
	return wanted(into.Node)
}

// came is when the resources of the tests came.
var came = time.Unix(1000, 0)

// newFake is a relay with a resource in each state.
func newFake() *fake {
	h := fanout.NewHub(fanout.Config{Name: defaultGroup, Types: cache.Types{}})
	for _, t := range []cache.TypeURL{cache.Cluster, cache.Secret} {
		names := []string{"acked", "requested", "removed", "erred", "gone", "rejected", "timeout", "silent"}
		s := h.Subscribe(t, fanout.NewSubscriber(func() {}))
		s.Delta(names, nil, came)
		lane := h.On(fanout.Lane{Type: t})
		lane.Asked(names)
		u := &cache.Update{At: came, Removed: []string{"removed"}, Errors: []cache.Error{
			{Name: "erred", Status: &statuspb.Status{Code: int32(codes.Internal), Message: "no disk"}},
			{Name: "gone", Status: &statuspb.Status{Code: cache.NotFound, Message: "no such thing"}},
		}}
		for _, name := range []string{"acked", "rejected"} {
			u.Set = append(u.Set, cache.Received{Upstream: "7", Resource: cache.NewResource(t, &service.Resource{
				Name: name, Resource: &anypb.Any{TypeUrl: string(t)},
			}, cache.Fingerprint{})})
		}
		h.Apply(fanout.Lane{Type: t}, u)
		h.Apply(fanout.Lane{Type: t}, &cache.Update{At: came, Missing: []string{"silent"}, Unanswered: []string{"timeout"}})
	}
	return &fake{hubs: map[string]*fanout.Hub{defaultGroup: h}, states: map[string]upsession.State{defaultGroup: {
		Shown: &core.Node{Id: "edge-1", Cluster: "shop"},
		Nacks: []upsession.Nack{{Type: cache.Cluster, Name: "rejected", At: came, Details: "it has no body"}, {Type: cache.Cluster, Name: "never", At: came, Details: "it has two"}},
	}}}
}

// asks has a Service answer a request over its codec, as gRPC does.
func asks(t *testing.T, s *Service, req *discovery.ClientStatusRequest) *discovery.ClientStatusResponse {
	t.Helper()
	a, err := s.answer(t.Context(), taken(t, req), new(wire))
	if err != nil {
		t.Fatal(err)
	}
	return decoded(t, a)
}

// taken is a request as it is taken in from the wire.
func taken(t *testing.T, req *discovery.ClientStatusRequest) *request {
	t.Helper()
	data, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	in := &request{excludes: true} // it may be used again
	if err := Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, in); err != nil {
		t.Fatal(err)
	}
	return in
}

func decoded(t *testing.T, a *answer) *discovery.ClientStatusResponse {
	t.Helper()
	bufs, err := Codec().Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	resp := new(discovery.ClientStatusResponse)
	if err := proto.Unmarshal(bufs.Materialize(), resp); err != nil {
		t.Fatal(err)
	}
	return resp
}

func shows(c config.CSDS) func() config.CSDS { return func() config.CSDS { return c } }

// TestOwnView: without matchers there is the relay's own view of its control plane (CSDS-3).
func TestOwnView(t *testing.T) {
	resp := asks(t, New(newFake(), shows(config.CSDSBodies)), &discovery.ClientStatusRequest{})
	if len(resp.GetConfig()) != 1 {
		t.Fatalf("there are %d configs", len(resp.GetConfig()))
	}
	c := resp.GetConfig()[0]
	if c.GetNode().GetId() != "edge-1" || c.GetNode().GetCluster() != "shop" || c.GetClientScope() != "default" || len(c.GetXdsConfig()) > 0 { //nolint:staticcheck // the deprecated field must be empty (CSDS-2)
		t.Errorf("it is %v", c)
	}
	want := map[string]admin.ClientResourceStatus{
		"acked": admin.ClientResourceStatus_ACKED, "requested": admin.ClientResourceStatus_REQUESTED, "removed": admin.ClientResourceStatus_DOES_NOT_EXIST,
		"gone": admin.ClientResourceStatus_DOES_NOT_EXIST, "erred": admin.ClientResourceStatus_RECEIVED_ERROR, "rejected": admin.ClientResourceStatus_NACKED,
		"never": admin.ClientResourceStatus_NACKED, "timeout": admin.ClientResourceStatus_TIMEOUT,
		"silent": admin.ClientResourceStatus_DOES_NOT_EXIST,
	}
	for _, g := range c.GetGenericXdsConfigs() {
		key := g.GetName()
		if g.GetTypeUrl() == string(cache.Secret) {
			if g.GetXdsConfig() != nil || g.GetVersionInfo() != "" && g.GetVersionInfo() != "[redacted]" {
				t.Errorf("of a Secret there is %v", g)
			}
			continue
		}
		if g.GetClientStatus() != want[key] || g.GetConfigStatus() != 0 {
			t.Errorf("%s: %v, want %v", key, g, want[key])
		}
		delete(want, key)
		failed := g.GetErrorState().GetDetails()
		switch key {
		case "acked":
			if g.GetVersionInfo() != "7" || !g.GetLastUpdated().AsTime().Equal(came) || g.GetXdsConfig().GetTypeUrl() != string(cache.Cluster) || g.GetErrorState() != nil {
				t.Errorf("acked: %v", g)
			}
		case "rejected":
			if g.GetVersionInfo() != "7" || failed != "it has no body" || !g.GetErrorState().GetLastUpdateAttempt().AsTime().Equal(came) {
				t.Errorf("rejected: %v", g)
			}
		case "erred":
			if failed != "no disk" {
				t.Errorf("erred: %v", g)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("these are not there: %v", want)
	}
}

// TestWhichGroup: the default group's view, else the only one's, else none (CSDS-3).
func TestWhichGroup(t *testing.T) {
	of := func(names ...string) *fake {
		f := newFake()
		hub := f.hubs[defaultGroup]
		f.hubs = make(map[string]*fanout.Hub)
		for _, name := range names {
			f.hubs[name] = hub
		}
		return f
	}
	for _, tt := range []struct {
		relay *fake
		scope string
		some  bool
	}{
		{of("default", "a"), "default", true},
		{of("a"), "a", true},
		{of("a", "b"), "2 groups; use node_matchers", false},
		{of(), "0 groups; use node_matchers", false},
	} {
		c := asks(t, New(tt.relay, shows(config.CSDSStatus)), &discovery.ClientStatusRequest{}).GetConfig()
		if len(c) != 1 || c[0].GetClientScope() != tt.scope || len(c[0].GetGenericXdsConfigs()) > 0 != tt.some {
			t.Errorf("%s: %v", tt.scope, c)
		}
	}
}

// stream is a client with one cluster in each step, and one Secret.
func stream(id string) downstream.View {
	nacked := session.ClientType{Type: cache.Cluster, Group: defaultGroup, Nonce: "1", Nack: "no such socket", NackedAt: came}
	v := downstream.View{Node: &core.Node{Id: id}, Types: []downstream.TypeView{
		{ClientType: nacked}, {ClientType: session.ClientType{Type: cache.Endpoint, Group: defaultGroup}, Names: []session.ClientName{{Name: "a", Step: session.StepUnsent, Now: "2"}}},
		{ClientType: session.ClientType{Type: cache.Secret, Group: defaultGroup, Nonce: "1"}, Names: []session.ClientName{{Name: "key", Step: session.StepSynced, Sent: "hash-of-a-key", Now: "hash-of-a-key"}}},
		{ClientType: session.ClientType{Type: cache.Route, Group: "none", Refused: "no identity"}, Names: []session.ClientName{{Name: "r", Step: session.StepSynced}}},
	}}
	for _, step := range []session.Step{session.StepSynced, session.StepUnacked, session.StepRejected, session.StepUnsent, session.StepStays, session.StepUnknown, session.StepAwaited} {
		v.Types[0].Names = append(v.Types[0].Names, session.ClientName{Name: string(step), Step: step, Sent: "1", Now: "2"})
	}
	return v
}

// TestClientViews: with matchers there is one ClientConfig for each stream that matches (CSDS-4).
func TestClientViews(t *testing.T) {
	f := newFake()
	f.streams = []downstream.View{stream("a-1"), stream("b-1"), stream("a-2")}
	resp := asks(t, New(f, shows(config.CSDSStatus)), requested(t, `{"nodeId": {"prefix": "a-"}}`))
	if len(resp.GetConfig()) != 2 || resp.GetConfig()[0].GetNode().GetId() != "a-1" || resp.GetConfig()[1].GetNode().GetId() != "a-2" {
		t.Fatalf("it is %v", resp)
	}
	want := map[string]discovery.ConfigStatus{
		"synced": discovery.ConfigStatus_SYNCED, "unacked": discovery.ConfigStatus_STALE, "rejected": discovery.ConfigStatus_ERROR, "unsent": discovery.ConfigStatus_STALE,
		"stays": discovery.ConfigStatus_STALE, "unknown": discovery.ConfigStatus_UNKNOWN, "awaited": discovery.ConfigStatus_NOT_SENT,
		"a": discovery.ConfigStatus_NOT_SENT, "key": discovery.ConfigStatus_SYNCED, "r": discovery.ConfigStatus_NOT_SENT,
	}
	got := resp.GetConfig()[0].GetGenericXdsConfigs()
	if len(got) != len(want) {
		t.Errorf("there are %d resources", len(got))
	}
	for _, g := range got {
		name := g.GetName()
		if g.GetConfigStatus() != want[name] || g.GetClientStatus() != 0 {
			t.Errorf("%s: %v, want %v", name, g, want[name])
		}
		switch details := g.GetErrorState().GetDetails(); {
		case name == "rejected" && (details != "no such socket" || g.GetErrorState().GetLastUpdateAttempt() == nil):
			t.Errorf("rejected: %v", g)
		case name == "r" && details != "no identity":
			t.Errorf("of a type that is refused: %v", g)
		case name == "key" && g.GetVersionInfo() != "[redacted]":
			t.Errorf("of a Secret: %v", g)
		case name == "unsent" && g.GetVersionInfo() != "1":
			t.Errorf("unsent: %v", g)
		}
	}
}

// TestBodiesOnRequest: bodies are shown where the configuration has them, unless who asks does not want them (CSDS-5).
func TestBodiesOnRequest(t *testing.T) {
	for _, tt := range []struct {
		mode    config.CSDS
		exclude bool
		want    bool
	}{{config.CSDSStatus, false, false}, {config.CSDSBodies, true, false}, {config.CSDSBodies, false, true}} {
		f := newFake()
		v := stream("a")
		v.Types[0].Names = []session.ClientName{
			{Name: "new", Step: session.StepSynced, Sent: "2", Now: "2", Resource: cache.NewResource(cache.Cluster, &service.Resource{Name: "new", Resource: &anypb.Any{TypeUrl: string(cache.Cluster)}}, cache.Fingerprint{})},
			{Name: "old", Step: session.StepUnsent, Sent: "1", Now: "2", Resource: cache.NewResource(cache.Cluster, &service.Resource{Name: "old", Resource: &anypb.Any{TypeUrl: string(cache.Cluster)}}, cache.Fingerprint{})},
		}
		f.streams = []downstream.View{v}
		s := New(f, shows(tt.mode))
		for _, req := range []*discovery.ClientStatusRequest{{}, requested(t, `{}`)} {
			req.ExcludeResourceContents = tt.exclude
			some := false
			for _, g := range asks(t, s, req).GetConfig()[0].GetGenericXdsConfigs() {
				if some = some || g.GetXdsConfig() != nil; g.GetName() == "old" && g.GetXdsConfig() != nil {
					t.Errorf("a body that the client does not have: %v", g)
				}
			}
			if some != tt.want {
				t.Errorf("%+v: there are bodies: %v", tt, some)
			}
		}
	}
}

// many is a relay with so many clients of so many names. Clients of the same kind have the same.
func many(clients, names, kinds int) *fake {
	f := newFake()
	views := make([][]session.ClientName, kinds)
	for k := range views {
		for n := range names {
			views[k] = append(views[k], session.ClientName{Name: fmt.Sprintf("cluster-%d-%06d", k, n), Step: session.StepSynced, Sent: "1:" + strings.Repeat("f", 32)})
		}
	}
	for i := range clients {
		f.streams = append(f.streams, downstream.View{Node: &core.Node{Id: fmt.Sprint("node-", i)}, Types: []downstream.TypeView{
			{ClientType: session.ClientType{Type: cache.Cluster, Group: defaultGroup, Nonce: "1"}, Names: views[i%kinds]},
		}})
	}
	return f
}

// TestLargeAnswers: what many clients have alike takes memory once; what takes too much is refused with what to do.
func TestLargeAnswers(t *testing.T) {
	a, err := New(many(1000, 1000, 1), shows(config.CSDSStatus)).answer(t.Context(), taken(t, requested(t, `{}`)), new(wire))
	if err != nil {
		t.Fatal(err)
	}
	if taken, long := maxMemory-a.memory, maxWire-a.wire; taken > 1<<20 || long < 100<<20 {
		t.Errorf("%d bytes are kept of %d", taken, long)
	}
	for _, f := range []*fake{many(2, 10_000, 2), many(300, 100, 1)} {
		small := func(mode config.CSDS) *Service {
			s := New(f, shows(mode))
			s.memory, s.wire = 2<<20, 3<<20
			return s
		}
		_, err = small(config.CSDSStatus).answer(t.Context(), taken(t, requested(t, `{}`)), new(wire))
		if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "more than 2 MiB of memory or is longer than 3 MiB; narrow node_matchers") || strings.Contains(err.Error(), "exclude_resource_contents") {
			t.Errorf("the error is %v", err)
		}
		_, err = small(config.CSDSBodies).answer(t.Context(), taken(t, requested(t, `{}`)), new(wire))
		if err == nil || !strings.Contains(err.Error(), "exclude_resource_contents") {
			t.Errorf("with bodies the error is %v", err)
		}
	}
}

// TestAnswersEnd: nobody composes for one who has gone.
func TestAnswersEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := New(many(10, 10, 1), shows(config.CSDSStatus))
	if _, err := s.answer(ctx, taken(t, requested(t, `{}`)), new(wire)); status.Code(err) != codes.Canceled {
		t.Errorf("the error is %v", err)
	}
	s.composing <- struct{}{}
	if _, err := s.answer(ctx, taken(t, requested(t, `{}`)), new(wire)); status.Code(err) != codes.Canceled {
		t.Errorf("while another one is composed the error is %v", err)
	}
}

// TestCallsAreBounded: the ninth is refused, and there is room again when one has ended.
func TestCallsAreBounded(t *testing.T) {
	s := New(newFake(), shows(config.CSDSStatus))
	var leave []func()
	for range calls {
		l, err := s.Enter()
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, l)
	}
	if _, err := s.Enter(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "8 CSDS calls are open") {
		t.Errorf("the error is %v", err)
	}
	leave[0]()
	if _, err := s.Enter(); err != nil {
		t.Error(err)
	}
	if _, err := New(newFake(), shows(config.CSDSOff)).Enter(); status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "set admin.csds") {
		t.Errorf("where it is off the error is %v", err)
	}
}

// TestJSON: the answer is a ClientStatusResponse in JSON, whatever clients say of themselves (CSDS-1).
func TestJSON(t *testing.T) {
	f := newFake()
	odd := stream("odd")
	odd.Node.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewNumberValue(math.NaN()), "b": {}}}
	long := packed(t, &cluster.Cluster{Name: "long", ConnectTimeout: &durationpb.Duration{Seconds: math.MaxInt64}})
	odd.Types[0].Names[0].Resource = cache.NewResource(cache.Cluster, &service.Resource{Name: "long", Resource: long}, cache.Fingerprint{})
	odd.Types[0].Names[0].Now = odd.Types[0].Names[0].Sent
	f.streams = []downstream.View{stream("a"), odd}
	s := New(f, shows(config.CSDSBodies))
	post := func(body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, Path, strings.NewReader(body)))
		return w
	}
	for body, want := range map[string][]string{
		"": {"edge-1"}, "{}": {"edge-1"}, `{"node_matchers": [{}]}`: {"a", "odd"}, `{"nodeMatchers": [{"nodeId": {"exact": "x"}}]}`: nil,
	} {
		w := post(body)
		resp := new(discovery.ClientStatusResponse)
		if err := protojson.Unmarshal(w.Body.Bytes(), resp); err != nil || w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
			t.Fatalf("%s: %v, %v", body, err, w)
		}
		var ids []string
		for _, c := range resp.GetConfig() {
			ids = append(ids, c.GetNode().GetId())
			if len(c.GetGenericXdsConfigs()) < 10 {
				t.Errorf("%s: %v", body, c)
			}
		}
		if !slices.Equal(ids, want) {
			t.Errorf("%s: %v, want %v", body, ids, want)
		}
	}
	for body, want := range map[string]string{
		"x": "no ClientStatusRequest in JSON", `{"matchers": []}`: `unknown field "matchers"`, `{"nodeMatchers": [{"nodeId": {}}]}`: "node_matchers[0].node_id",
		`{"node": {"id": "` + strings.Repeat("x", MaxRequest) + `"}}`: "it may have 65536 bytes",
	} {
		if w := post(body); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%.40s: %d %s", body, w.Code, w.Body)
		}
	}
	s.shows = shows(config.CSDSOff)
	if w := post(""); w.Code != http.StatusNotImplemented {
		t.Errorf("where it is off: %d %s", w.Code, w.Body)
	}
}

// TestNamesThatAreNoText: a name that is no UTF-8, which a SotW control plane can send, spoils no answer.
func TestNamesThatAreNoText(t *testing.T) {
	f := newFake()
	v := stream("a")
	v.Types[0].Names = []session.ClientName{{Name: "a\xffb", Step: session.StepSynced}}
	f.streams = []downstream.View{v}
	resp := asks(t, New(f, shows(config.CSDSStatus)), requested(t, `{}`))
	if name := resp.GetConfig()[0].GetGenericXdsConfigs()[0].GetName(); name != "a\uFFFDb" {
		t.Errorf("the name is %q", name)
	}
}

// quiet is a stream whose client sends so many requests, and then nothing until its time is over.
type quiet struct {
	grpc.ServerStream
	ctx      context.Context
	requests int
	over     chan struct{}
	answers  []any
}

func (q *quiet) Context() context.Context { return q.ctx }
func (q *quiet) SendMsg(m any) error {
	q.answers = append(q.answers, m)
	return nil
}
func (q *quiet) RecvMsg(any) error {
	if q.requests--; q.requests >= 0 {
		return nil
	}
	<-q.over
	return status.Error(codes.Internal, "i/o timeout")
}

// TestQuietStreams: the time of a stream restarts with each request, and when it is over the client is told why.
func TestQuietStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &quiet{requests: 3, over: make(chan struct{})}
		renewed := 0
		q.ctx = Renewing(t.Context(), func(d time.Duration) {
			if renewed++; renewed == 7 {
				time.AfterFunc(d, func() { close(q.over) })
			}
		})
		begin := time.Now()
		err := New(newFake(), shows(config.CSDSStatus)).stream(nil, q)
		if status.Code(err) != codes.DeadlineExceeded || len(q.answers) != 3 || time.Since(begin) != time.Minute {
			t.Errorf("after %d answers and %v: %v", len(q.answers), time.Since(begin), err)
		}
	})
}

// TestOneOfTwoLanes: a name that came by itself and in the wildcard's set is there once, as it came by itself.
func TestOneOfTwoLanes(t *testing.T) {
	of := func(name, version string, wildcard bool) fanout.Description {
		return fanout.Description{Place: fanout.Place{Name: name, Wildcard: wildcard}, Upstream: version}
	}
	list := once([]fanout.Description{of("a", "1", false), of("a", "2", true), of("b", "", false), of("b", "3", true), of("c", "4", true)})
	var got []string
	for _, d := range list {
		got = append(got, d.Name+d.Upstream)
	}
	if want := []string{"a1", "b3", "c4"}; !slices.Equal(got, want) {
		t.Errorf("they are %q, want %q", got, want)
	}
}
