package cache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// leaseModel is what a Table should know of one resource's TTL.
type leaseModel struct {
	version         string
	ends            time.Time
	renewed, turned Seq
	repeated        Seq
	changed         Seq
}

// TestLeasesAgainstModel: however receipts, removals and time come, a Table knows
// what expires next, and what was renewed since any position.
func TestLeasesAgainstModel(t *testing.T) {
	for seed := range uint64(300) {
		leasesAgainstModel(t, rand.New(rand.NewPCG(seed, 7)))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func leasesAgainstModel(t *testing.T, random *rand.Rand) {
	var table Table
	var seq Seq
	now := time.Unix(1, 0)
	world := map[string]*leaseModel{}
	for range 80 {
		name := string(rune('a' + random.IntN(5)))
		m := world[name]
		ttl := time.Duration(random.IntN(4)) * time.Second
		switch op := random.IntN(10); {
		case op < 4: // a receipt with a body
			r := resource(name, fmt.Sprint(random.IntN(2)))
			r.GoesStale = name > "c"
			seq++
			table.Set(r, "u", seq)
			if m == nil || m.version != r.Version {
				m = &leaseModel{version: r.Version, changed: seq}
				world[name] = m
			}
			m.receive(t, table.Lease(name, ttl, now, seq), ttl, now, seq)
			repeats := r.GoesStale && m.changed != seq
			if got := table.Repeat(name, seq); got != repeats {
				t.Errorf("%s repeats: %v, want %v", name, got, repeats)
			}
			if repeats {
				m.renewed, m.repeated = seq, seq
			}
		case op < 7: // a heartbeat
			seq++
			renewed := table.Lease(name, ttl, now, seq)
			if m != nil {
				m.receive(t, renewed, ttl, now, seq)
			} else if renewed {
				t.Errorf("%s was renewed, and is not there", name)
			}
		case op == 7:
			seq++
			table.Remove(name, Removed, seq)
			delete(world, name)
		case op == 8:
			if id, ok := table.Find(name); ok {
				table.Forget(id, func(*Resource) bool { return false })
			}
			delete(world, name)
		default:
			now = now.Add(time.Duration(random.IntN(3000)) * time.Millisecond)
			var want []string
			for name, m := range world {
				if !m.ends.IsZero() && !m.ends.After(now) {
					want = append(want, name)
				}
			}
			slices.Sort(want)
			got := table.Expired(now)
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("expired: %v, want %v", got, want)
			}
			for _, name := range got {
				seq++
				table.Remove(name, TTLExpired, seq)
				delete(world, name)
			}
		}
		compareLeases(t, &table, world, Seq(random.IntN(int(seq)+1)))
		if t.Failed() {
			return
		}
	}
}

// receive notes a receipt of what is there.
func (m *leaseModel) receive(t *testing.T, renewed bool, ttl time.Duration, now time.Time, seq Seq) {
	had, has := !m.ends.IsZero(), ttl > 0
	if m.changed == seq {
		had = false
	}
	if want := m.changed != seq && (had || has); renewed != want {
		t.Errorf("renewed: %v, want %v", renewed, want)
	}
	if had || has {
		m.renewed = seq
	}
	if had != has {
		m.turned = seq
	}
	m.ends = time.Time{}
	if has {
		m.ends = now.Add(ttl)
	}
}

func compareLeases(t *testing.T, table *Table, world map[string]*leaseModel, after Seq) {
	var next time.Time
	var want, got []string
	for name, m := range world {
		id, _ := table.Find(name)
		if ends, turned, _ := table.Ends(id); !ends.Equal(m.ends) || !ends.IsZero() && turned != m.turned {
			t.Errorf("%s ends at %v, turned at %d; want %v, %d", name, ends, turned, m.ends, m.turned)
		}
		if got := table.Repeated(id); got != m.repeated {
			t.Errorf("%s was repeated at %d, want %d", name, got, m.repeated)
		}
		if !m.ends.IsZero() && (next.IsZero() || m.ends.Before(next)) {
			next = m.ends
		}
		if m.renewed > after && m.renewed != m.changed {
			want = append(want, name)
		}
	}
	if at := table.Expiry(); !at.Equal(next) {
		t.Errorf("next to expire at %v, want %v", at, next)
	}
	for c := range table.Renewed(after) {
		got = append(got, c.Name)
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("renewed since %d: %v, want %v", after, got, want)
	}
	held := 0
	for r := range table.All() {
		if held++; !r.Ends.Equal(world[r.Name].ends) {
			t.Errorf("All: %s ends at %v, want %v", r.Name, r.Ends, world[r.Name].ends)
		}
	}
	if held != len(world) || len(table.leases.due) > len(table.leases.of) || len(table.leases.of) > len(world) {
		t.Errorf("%d resources of %d, with %d leases of which %d end", held, len(world), len(table.leases.of), len(table.leases.due))
	}
}

// TestUncached: a Table counts the resources that are not for keeping, by the last word on each (VALID-5).
func TestUncached(t *testing.T) {
	in := received()
	r := NewResource("type.googleapis.com/test.T", in, Fingerprint{})
	in.CacheControl = nil
	cacheable := NewResource("type.googleapis.com/test.T", in, Fingerprint{})
	var table Table
	for i, step := range []struct {
		do   func(Seq)
		want int
	}{
		{func(at Seq) { table.Set(r, "u", at) }, 1},
		{func(at Seq) { table.Set(cacheable, "u", at) }, 0},
		{func(at Seq) { table.Set(r, "u", at) }, 1},
		{func(at Seq) { table.Remove("a", Removed, at) }, 0},
	} {
		if step.do(Seq(i + 1)); table.Uncached() != step.want {
			t.Errorf("after step %d there are %d, want %d", i, table.Uncached(), step.want)
		}
	}
}

// TestHeading: the message without its body says which resource is meant, and in
// which version; the whole message may be followed by more of it.
func TestHeading(t *testing.T) {
	for _, in := range []*discovery.Resource{
		{Name: "a", Aliases: []string{"x"}, Resource: &anypb.Any{TypeUrl: "T", Value: []byte("b")}},
		{ResourceName: &discovery.ResourceName{Name: "a"}, Resource: &anypb.Any{TypeUrl: "T"}},
	} {
		r := NewResource("T", in, Fingerprint{})
		var heading, content discovery.Resource
		if err := proto.Unmarshal(r.Heading(), &heading); err != nil {
			t.Fatal(err)
		}
		if want := (&discovery.Resource{Name: in.GetName(), ResourceName: in.GetResourceName(), Version: r.Version}); !proto.Equal(&heading, want) {
			t.Errorf("heading: %v, want %v", &heading, want)
		}
		want := proto.CloneOf(in)
		want.Version = r.Version
		if err := proto.Unmarshal(r.Content(), &content); err != nil || !proto.Equal(&content, want) {
			t.Errorf("content: %v (%v), want %v", &content, err, want)
		}
	}
}
