package cache

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

func resource(name, label string, aliases ...string) *Resource {
	return NewResource("T", &discovery.Resource{
		Name: name, Aliases: aliases, Resource: &anypb.Any{TypeUrl: "T", Value: []byte(name + label)},
	}, Fingerprint{})
}

// TestTableAgainstModel drives a Table and a plain map with the same random
// changes and compares everything that can be asked.
func TestTableAgainstModel(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { tableAgainstModel(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func tableAgainstModel(t *testing.T, random *rand.Rand) {
	var table Table
	var seq Seq
	world := map[string]*Resource{}
	changed := map[string]Seq{} // last change, removals included
	versions := map[string]string{}
	ids := map[string]ID{}
	names := []string{"a", "b", "c", "d", "e", "f"}
	for _, name := range names[:4] {
		ids[name] = table.Intern(name)
	}
	pick := func() string { return names[random.IntN(len(names))] }
	covered := func(r *Resource) bool {
		_, pinned := ids[r.Name]
		return pinned || slices.ContainsFunc(r.Aliases, func(alias string) bool { _, pinned := ids[alias]; return pinned })
	}
	for step := range 60 {
		name := pick()
		switch op := random.IntN(13); {
		case op < 6:
			var aliases []string
			for range random.IntN(3) {
				if a := pick(); !slices.Contains(aliases, a) {
					aliases = append(aliases, a)
				}
			}
			r := resource(name, fmt.Sprint(random.IntN(3)), aliases...)
			seq++
			versions[name] = fmt.Sprint(step)
			_, news := table.Set(r, versions[name], seq)
			if was := world[name]; news != (was == nil || was.Version != r.Version) {
				t.Fatalf("step %d: Set(%s) says changed=%v", step, name, news)
			}
			if news {
				world[name], changed[name] = r, seq
			}
		case op < 9:
			seq++
			_, did := table.Remove(name, Removed, seq)
			if world[name] != nil && !did {
				t.Fatalf("step %d: Remove(%s) did nothing", step, name)
			}
			if did {
				changed[name] = seq
			}
			delete(world, name)
		case op == 9:
			table.Prune(seq)
		case op == 10:
			table.Begin(Origin{Entry: "origin"})
			clear(versions)
		case op == 11:
			ids[name] = table.Intern(name)
		default:
			id, known := table.Find(name)
			if !known {
				continue
			}
			_, pinned := ids[name]
			delete(ids, name)
			table.Forget(id, covered)
			if pinned {
				table.Unpin(id)
			}
			for _, r := range slices.Collect(maps.Values(world)) {
				if (r.Name == name || slices.Contains(r.Aliases, name)) && !covered(r) {
					delete(world, r.Name)
				}
			}
		}
		maps.DeleteFunc(versions, func(name, _ string) bool { return world[name] == nil })
		got := map[string]string{}
		for _, r := range table.Known() {
			got[r.Name] = r.Upstream
		}
		if !maps.Equal(got, versions) {
			t.Fatalf("step %d: this generation is %v, want %v", step, got, versions)
		}
		if n := len(table.Unannounced()); n+len(versions) != len(world) {
			t.Fatalf("step %d: %d unconfirmed and %d confirmed resources, there are %d", step, n, len(versions), len(world))
		}
		compare(t, step, &table, world, changed, ids, seq, random)
	}
}

func compare(t *testing.T, step int, table *Table, world map[string]*Resource, changed map[string]Seq, ids map[string]ID, seq Seq, random *rand.Rand) {
	var want Digest
	bytes := 0
	for _, r := range world {
		want.Add(r)
		bytes += r.Size()
	}
	if table.Len() != len(world) || table.Bytes() != bytes || table.Digest() != want {
		t.Fatalf("step %d: table has %d resources, %d bytes, %s; want %d, %d, %s", step, table.Len(), table.Bytes(), table.Digest(), len(world), bytes, want)
	}
	for name, id := range table.ids {
		if table.at(id).name != name || slices.Contains(table.free, id) {
			t.Fatalf("step %d: ID %d of %s stands for %q, or for nothing", step, id, name, table.at(id).name)
		}
	}
	for name, id := range ids {
		answers := map[string]bool{}
		if r := world[name]; r != nil {
			answers[r.Name] = true
		}
		for _, r := range world {
			if slices.Contains(r.Aliases, name) {
				answers[r.Name] = true
			}
		}
		a := table.Answer(id)
		got := map[string]bool{}
		if a.Resource != nil {
			got[a.Resource.Name] = true
		}
		for _, r := range a.More {
			got[r.Name] = true
		}
		if !maps.Equal(got, answers) || (a.State == Present) != (len(answers) > 0) {
			t.Fatalf("step %d: %s leads to %v (%v), want %v", step, name, got, a.State, answers)
		}
	}
	// What changed since a position: every present resource that did, once, in order.
	after := Seq(random.IntN(int(seq) + 1))
	got := map[string]bool{}
	last := seq + 1
	for c := range table.Since(after) {
		if c.Seq >= last || c.Seq <= after || got[c.Name] || c.Resource != world[c.Name] {
			t.Fatalf("step %d: since %d: unexpected %+v after %d", step, after, c, last)
		}
		last, got[c.Name] = c.Seq, true
	}
	for name, at := range changed {
		if at > after && world[name] != nil && !got[name] {
			t.Fatalf("step %d: since %d misses %s, changed at %d", step, after, name, at)
		}
	}
}

// TestForgetLeavesNothing: a table that forgets all it was asked for holds nothing
// (UP-8, H-18).
func TestForgetLeavesNothing(t *testing.T) {
	var table Table
	id, alias := table.Intern("a"), table.Intern("x")
	table.Set(resource("a", "1", "x", "y"), "u", 1)
	table.Set(resource("b", "1", "x"), "u", 2)
	table.Forget(id, func(r *Resource) bool { return slices.Contains(r.Aliases, "x") })
	table.Unpin(id)
	if a := table.Answer(alias); a.State != Present || table.Len() != 2 {
		t.Fatalf("a resource that answers to another name went: %+v", a)
	}
	table.Forget(alias, func(*Resource) bool { return false })
	table.Unpin(alias)
	if table.Len() != 0 || len(table.ids) != 0 || table.length != 0 || table.Digest() != (Digest{}) {
		t.Errorf("left behind: %+v", table)
	}
}
