package tracing

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/upstream"
)

// kept is an exporter that keeps what it was given when it ends.
type kept struct{ tracetest.InMemoryExporter }

func (*kept) Shutdown(context.Context) error { return nil }

func (k *kept) named(name string) (all tracetest.SpanStubs) {
	for _, s := range k.GetSpans() {
		if s.Name == name {
			all = append(all, s)
		}
	}
	return all
}

// scene is a Tracer that is told things, in a bubble where an hour takes no time.
type scene struct {
	*Tracer
	spans *kept
}

func play(t *testing.T, o Options, f func(t *testing.T, s *scene)) {
	synctest.Test(t, func(t *testing.T) {
		s := &scene{spans: new(kept)}
		o.Exporter = s.spans
		s.Tracer = New(o)
		defer s.Close()
		f(t, s)
	})
}

// kept is how many updates are open.
func (s *scene) kept() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open.Len()
}

// update is received and concerns so many clients.
func (s *scene) update(typ cache.TypeURL, clients int) *cache.Source {
	now := time.Now()
	tr := s.Received(upstream.Received{Type: typ, At: now})
	source := cache.NewSource(now, tr)
	s.Applied(tr, upstream.Application{Begins: now, Ends: now, Concerned: clients})
	s.Taken(tr, "")
	return source
}

func (s *scene) push(source *cache.Source, typ cache.TypeURL, names ...string) *downstream.Push {
	p := &downstream.Push{Source: source, Type: typ, Made: time.Now()}
	for _, name := range names {
		p.Resources = append(p.Resources, cache.NewResource(typ, &discovery.Resource{Name: name, Resource: &anypb.Any{TypeUrl: string(typ), Value: []byte("swordfish")}}, cache.Fingerprint{}))
	}
	s.Pushed(p)
	return p
}

func (s *scene) judge(p *downstream.Push, end downstream.PushEnd, message string) {
	s.Judged(p, downstream.Judgement{End: end, Sent: p.Made, At: time.Now(), Message: message})
}

// TestWindow: an update that a client never answers ends when its time is up, and is slow.
func TestWindow(t *testing.T) {
	play(t, Options{Slow: true, SlowAfter: time.Second, Limits: Limits{Window: 5 * time.Second}}, func(t *testing.T, s *scene) {
		s.push(s.update(cache.Cluster, 1), cache.Cluster)
		s.judge(s.push(s.update(cache.Cluster, 1), cache.Cluster), downstream.PushAcked, "")
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if n := s.kept(); n != 1 {
			t.Errorf("%d updates are kept, want the one that waits", n)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if n := s.kept(); n != 0 {
			t.Errorf("%d updates are kept after their time", n)
		}
		roots := s.spans.named("xds.update")
		if len(roots) != 1 {
			t.Fatalf("%d traces, want the slow one", len(roots))
		}
		if took := roots[0].EndTime.Sub(roots[0].StartTime); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("it ends after %v", took)
		}
	})
}

// TestLateNack: a client that rejects what it was sent when the update is over is seen, too.
func TestLateNack(t *testing.T) {
	play(t, Options{Nacks: true, Limits: Limits{Window: time.Second}}, func(t *testing.T, s *scene) {
		p := s.push(s.update(cache.Cluster, 1), cache.Cluster, "a")
		time.Sleep(10 * time.Second)
		s.judge(p, downstream.PushNacked, "too late")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		pushes := s.spans.named("xds.push")
		if len(s.spans.named("xds.update")) != 0 || len(pushes) != 1 || pushes[0].Status.Description != "too late" || len(pushes[0].Links) != 1 {
			t.Errorf("got %v", s.spans.GetSpans())
		}
	})
}

// TestBounds: however many updates are open and however many clients reject them, so much is
// kept and no more.
func TestBounds(t *testing.T) {
	play(t, Options{Nacks: true, Limits: Limits{Window: time.Hour, Updates: 10, Always: 3, Nacks: 5}}, func(t *testing.T, s *scene) {
		for range 100 {
			source := s.update(cache.Cluster, 1000)
			for range 20 {
				s.judge(s.push(source, cache.Cluster), downstream.PushNacked, "no")
			}
		}
		if n := s.kept(); n != 10 {
			t.Errorf("%d updates are kept, want 10", n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(s.spans.named("xds.update")); n != 3 {
			t.Errorf("%d traces at once, want 3", n)
		}
		if n := len(s.spans.named("xds.push")); n != 3*(5+10) {
			t.Errorf("%d responses are shown, want 5 rejected and the 10 slowest of each trace", n)
		}
	})
}

// TestSecrets: of types that are secret neither content, nor names, nor versions, nor what clients say about them.
func TestSecrets(t *testing.T) {
	play(t, Options{Ratio: 1, Types: cache.Types{cache.Extension: {Secret: true}}}, func(t *testing.T, s *scene) {
		for _, typ := range []cache.TypeURL{cache.Secret, cache.Extension} {
			tr := s.Received(upstream.Received{Type: typ, At: time.Now(), Version: "weak"})
			source := cache.NewSource(time.Now(), tr)
			s.Applied(tr, upstream.Application{Begins: time.Now(), Ends: time.Now(), Concerned: 1})
			s.Taken(tr, "")
			p := &downstream.Push{Source: source, Type: typ, Made: time.Now(), Version: "weaker", Resources: []*cache.Resource{
				cache.NewResource(typ, &discovery.Resource{Name: "payroll", Resource: &anypb.Any{TypeUrl: string(typ), Value: []byte("swordfish")}}, cache.Fingerprint{}),
			}}
			s.Pushed(p)
			s.judge(p, downstream.PushNacked, "payroll: key swordfish does not match")
		}
		s.judge(s.push(s.update(cache.Cluster, 1), cache.Cluster, "billing"), downstream.PushNacked, "billing: no")
		time.Sleep(time.Minute)
		synctest.Wait()
		text := fmt.Sprintf("%+v", s.spans.GetSpans())
		if len(s.spans.named("xds.push")) != 3 || !strings.Contains(text, "billing: no") {
			t.Fatalf("not exported: %s", text)
		}
		for _, secret := range []string{"payroll", "swordfish", "weak"} {
			if strings.Contains(text, secret) {
				t.Errorf("the trace shows %s: %s", secret, text)
			}
		}
	})
}

// TestExemplar: only the traces that are exported are named.
func TestExemplar(t *testing.T) {
	play(t, Options{Slow: true, SlowAfter: time.Second}, func(t *testing.T, s *scene) {
		fast, slow := s.update(cache.Cluster, 1), s.update(cache.Cluster, 1)
		if id := s.Exemplar(fast, time.Millisecond); id != "" {
			t.Errorf("%s is named, and is not exported", id)
		}
		id := s.Exemplar(slow, time.Minute)
		s.judge(s.push(fast, cache.Cluster), downstream.PushAcked, "")
		s.judge(s.push(slow, cache.Cluster), downstream.PushAcked, "")
		time.Sleep(time.Minute)
		synctest.Wait()
		roots := s.spans.named("xds.update")
		if len(roots) != 1 || roots[0].SpanContext.TraceID().String() != id {
			t.Errorf("%q is named; exported are %v", id, roots)
		}
		if id := s.Exemplar(cache.NewSource(time.Now(), nil), time.Hour); id != "" {
			t.Errorf("%s is named of what is not traced", id)
		}
	})
}

// TestUntold: a client that need not be told keeps nothing open, nor does an update that
// concerns nobody; what comes after the end is not followed.
func TestUntold(t *testing.T) {
	play(t, Options{Ratio: 1, Limits: Limits{Window: time.Hour}}, func(t *testing.T, s *scene) {
		s.update(cache.Cluster, 0)
		source := s.update(cache.Cluster, 2)
		s.judge(s.push(source, cache.Cluster), downstream.PushReplaced, "")
		s.Untold(source, false)
		if n := s.kept(); n != 0 {
			t.Errorf("%d updates are kept", n)
		}
		s.Close()
		if len(s.spans.named("xds.update")) != 2 {
			t.Errorf("got %v", s.spans.GetSpans())
		}
		if tr := s.Received(upstream.Received{}); tr != nil {
			t.Error("a response is followed after the end")
		}
		s.Answered(downstream.Subscribe{})
	})
}

// TestParts: of a response in parts, the last one settles, and the rejection of each is seen.
func TestParts(t *testing.T) {
	play(t, Options{Nacks: true, Limits: Limits{Window: time.Hour}}, func(t *testing.T, s *scene) {
		source := s.update(cache.Cluster, 1)
		first := &downstream.Push{Source: source, Type: cache.Cluster, Partial: true, Made: time.Now()}
		s.Pushed(first)
		s.judge(first, downstream.PushNacked, "too much")
		if s.kept() != 1 {
			t.Error("the first part has settled the update")
		}
		s.judge(s.push(source, cache.Cluster), downstream.PushAcked, "")
		if s.kept() != 0 {
			t.Error("the last part has not")
		}
		s.Close()
		if len(s.spans.named("xds.push")) != 2 {
			t.Errorf("got %v", s.spans.GetSpans())
		}
	})
}

// TestNobodyTraces: where nothing is traced, a nil Tracer may be closed.
func TestNobodyTraces(t *testing.T) {
	var none *Tracer
	none.Close()
}
