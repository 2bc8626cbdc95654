package world_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/bench/internal/wire"
	"github.com/xds-relay/xds-relay/bench/internal/world"
)

var spec = world.Spec{Seed: 3, Clusters: 20, ClusterBytes: 650, Assignments: 30, Endpoints: 20, Changes: world.Endpoint}

// TestEverythingChangesOnceBeforeAnythingTwice: a change is not superseded soon.
func TestEverythingChangesOnceBeforeAnythingTwice(t *testing.T) {
	w := world.New(spec)
	for round := range 3 {
		seen := make(map[int]bool)
		for n := 1; n <= w.Assignments; n++ {
			seen[w.Changed(round*w.Assignments+n)] = true
		}
		if len(seen) != w.Assignments {
			t.Errorf("round %d changes %d of %d", round, len(seen), w.Assignments)
		}
	}
}

func TestTwoProcessesAgree(t *testing.T) {
	a, b := world.New(spec), world.New(spec)
	for n := 1; n < 50; n++ {
		if a.Changed(n) != b.Changed(n) {
			t.Fatalf("step %d changes %d here and %d there", n, a.Changed(n), b.Changed(n))
		}
		if x, y := a.Body(world.Endpoint, 3, n), b.Body(world.Endpoint, 3, n); string(x) != string(y) {
			t.Fatalf("step %d makes %q here and %q there", n, x, y)
		}
	}
	other := spec
	other.Seed++
	if w := world.New(other); w.Changed(1) == a.Changed(1) && w.Changed(2) == a.Changed(2) && w.Changed(3) == a.Changed(3) {
		t.Error("another seed gives the same order")
	}
}

// TestScannerFindsTheStep: what this package writes, and the scanner looks for.
func TestScannerFindsTheStep(t *testing.T) {
	w := world.New(spec)
	for _, k := range world.Kinds {
		for _, delta := range []bool{true, false} {
			element := wire.Element(delta, w.Name(k, 7), "v", k.TypeURL(), w.Body(k, 7, 41))
			var got []string
			step := 0
			s := wire.NewScanner(delta, func(r wire.Resource) {
				got = append(got, string(r.Name))
				step, _ = world.Step(r.Step)
			})
			s.Begin(len(element))
			if err := s.Feed(element); err != nil {
				t.Fatal(err)
			}
			if len(got) != 1 || got[0] != w.Name(k, 7) || step != 41 {
				t.Errorf("%v, delta=%v: found %q of step %d", k, delta, got, step)
			}
		}
	}
}

// TestStamp: a stamped body is the one that is marshalled again.
func TestStamp(t *testing.T) {
	w := world.New(spec)
	for _, k := range world.Kinds {
		for i := range w.Count(k) {
			body := w.Body(k, i, 0)
			for _, n := range []int{0, 1, 41, 1234567890} {
				if got, want := world.Stamp(body, n), w.Body(k, i, n); string(got) != string(want) {
					t.Fatalf("%s of step %d is %q, want %q", w.Name(k, i), n, got, want)
				}
			}
		}
	}
}

func TestSizes(t *testing.T) {
	w := world.New(spec)
	for i := range w.Clusters {
		if n := proto.Size(w.Message(world.Cluster, i, i)); n < 640 || n > 660 {
			t.Errorf("cluster %d has %d bytes, want about 650", i, n)
		}
	}
	if a, b := proto.Size(w.Message(world.Endpoint, 1, 1)), proto.Size(w.Message(world.Endpoint, 1, 123456)); a != b {
		t.Errorf("an assignment grows from %d to %d bytes", a, b)
	}
}
