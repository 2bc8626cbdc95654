package cache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// inGlob is a resource that xdstp://cp/t/* covers.
func inGlob(i, version int) *Resource {
	return NewResource(Endpoint, &discovery.Resource{
		Name: fmt.Sprintf("xdstp://cp/t/%d", i), Resource: &anypb.Any{TypeUrl: string(Endpoint), Value: fmt.Append(nil, version)},
	}, Fingerprint{})
}

// TestMembers: of a glob a reader is told what has changed and what has left since any position, in order, or that it may
// miss some of the latter. What the wire form and the version have does not change (NAME-11).
func TestMembers(t *testing.T) {
	const glob, names, steps = "xdstp://cp/t/*", 20, 3000
	random := rand.New(rand.NewPCG(1, 2))
	var table Table
	id := table.Intern(glob)
	type event struct {
		name string
		seq  Seq
	}
	changed, left := make(map[string]Seq), []event(nil)
	check := func(after Seq) {
		t.Helper()
		var members []event
		for c := range table.Members(id, after) {
			if c.Resource == nil || c.Resource.Name != c.Name {
				t.Fatalf("%q is said to be %v", c.Name, c.Resource)
			}
			members = append(members, event{c.Name, c.Seq})
		}
		var want []event
		for name, seq := range changed {
			if seq > after {
				want = append(want, event{name, seq})
			}
		}
		slices.SortFunc(want, func(a, b event) int { return int(b.seq) - int(a.seq) })
		if !slices.Equal(members, want) {
			t.Fatalf("since %d these have changed: %v, want %v", after, members, want)
		}
		gone, all := table.Left(id, after)
		told := slices.Collect(gone)
		var since []string
		for _, e := range slices.Backward(left) {
			if e.seq > after {
				since = append(since, e.name)
			}
		}
		if all && !slices.Equal(told, since) || !all && len(told) >= len(since) {
			t.Fatalf("since %d these have left: %v (all: %v), want %v", after, told, all, since)
		}
	}
	for seq := Seq(1); seq <= steps; seq++ {
		i := random.IntN(names)
		name := inGlob(i, 0).Name
		if random.IntN(3) > 0 {
			if touched, _ := table.Set(inGlob(i, int(seq)), "", seq); !slices.Contains(touched, id) {
				t.Fatal("a change of a member is none of the glob")
			}
			changed[name] = seq
		} else if _, was := changed[name]; was {
			if touched, _ := table.Remove(name, Removed, seq); !slices.Contains(touched, id) {
				t.Fatal("the removal of a member is none of the glob's answer")
			}
			left = append(left, event{name, seq})
			delete(changed, name)
		}
		check(Seq(random.Uint64N(uint64(seq) + 1)))
		if got := table.Led(id) == Present; got != (len(changed) > 0) {
			t.Fatalf("it leads to something: %v, and there are %d members", got, len(changed))
		}
	}
	if _, all := table.Left(id, steps-1); !all {
		t.Error("a reader that is up to date may miss something")
	}
	if _, all := table.Left(id, 1); all {
		t.Error("everything that has ever left is remembered")
	}
	if n := len(table.members(id).left); n > names+mostLeft {
		t.Errorf("%d that have left are remembered", n)
	}
}

// TestGlobIsInNoWireForm: a resource that a glob covers leaves as it came, and with the version of its content (NAME-11).
func TestGlobIsInNoWireForm(t *testing.T) {
	r := inGlob(1, 1)
	if r.Glob != "xdstp://cp/t/*" || len(r.Aliases) > 0 {
		t.Errorf("it is covered by %q, and lists %q", r.Glob, r.Aliases)
	}
	if want := (Fingerprint{}).Of(string(Endpoint), []byte("1"), nil); r.Version != want {
		t.Errorf("version %q, want %q", r.Version, want)
	}
	listed := NewResource(Endpoint, &discovery.Resource{
		Name: r.Name, Aliases: []string{r.Glob}, Resource: &anypb.Any{TypeUrl: string(Endpoint), Value: []byte("1")},
	}, Fingerprint{})
	if names := slices.Collect(listed.Names()); !slices.Equal(names, []string{r.Name, r.Glob}) {
		t.Errorf("one that lists the glob goes by %q", names)
	}
}
