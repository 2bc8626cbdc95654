package snapshot

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// given is what a group has given up: names, or the wildcard's set.
func given(group string, ago time.Duration, wildcard bool, names ...string) Group {
	lane := fanout.Saved{Lane: fanout.Lane{Type: cache.Endpoint, Wildcard: wildcard}}
	for _, name := range names {
		lane.Resources = append(lane.Resources, cache.Held{Resource: cache.NewResource(cache.Endpoint, &discovery.Resource{
			Name: name, Resource: &anypb.Any{TypeUrl: string(cache.Endpoint), Value: make([]byte, 1000)},
		}, cache.Fingerprint{})})
	}
	if !wildcard {
		lane.Names = names
	}
	return Group{Name: []byte(group), Saved: written.Add(-ago), Lanes: []fanout.Saved{lane}}
}

// readAll is the content of the file of what is unwanted, as group and names, and whether it is a set.
func readAll(t *testing.T, dir string, key *Key, sieve *Sieve) (all []string) {
	t.Helper()
	err := ReadUnwanted(dir, key, cache.Fingerprint{}, sieve, func(g Group, l fanout.Saved) {
		text := string(g.Name)
		if l.Lane.Wildcard {
			text += "*"
		}
		for _, r := range l.Resources {
			text += " " + r.Name
		}
		all = append(all, text)
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestUnwantedIsMerged: the file has the latest word on each name, the latest first, as long as there is room and it is
// not too old.
func TestUnwantedIsMerged(t *testing.T) {
	for name, key := range map[string]*Key{"in clear": nil, "sealed": testKey(t, 1)} {
		dir := filepath.Join(t.TempDir(), "state")
		write := func(sieve *Sieve, groups ...Group) {
			t.Helper()
			if _, err := WriteUnwanted(dir, Header{}, groups, key, cache.Fingerprint{}, sieve); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(sieve *Sieve, want ...string) {
			t.Helper()
			if got := readAll(t, dir, key, sieve); !slices.Equal(got, want) {
				t.Errorf("%s: the file has %q, want %q", name, got, want)
			}
		}
		lots := func() *Sieve { return &Sieve{Room: math.MaxInt64} }
		write(lots(), given("g", 3*time.Hour, false, "a", "b"), given("h", time.Hour, true, "a"), given("g", 5*time.Hour, true, "s"))
		gone := given("g", 0, false)
		gone.Lanes[0].Gone = []string{"b"}
		write(lots(), given("g", 2*time.Hour, false, "c"), given("g", 4*time.Hour, false, "a", "d"), gone)
		expect(lots(), "h* a", "g c", "g a", "g d", "g* s")
		expect(&Sieve{Room: 3900}, "h* a", "g c", "g a")
		expect(&Sieve{Room: math.MaxInt64, TooOld: func(at time.Time) bool { return at.Before(written.Add(-150 * time.Minute)) }}, "h* a", "g c")
		skips := &Sieve{Room: math.MaxInt64, Skip: func(cache.TypeURL) bool { return true }}
		expect(skips)
		wanted := lots()
		wanted.Say(given("g", 0, false, "c", "d"))
		wanted.Say(given("g", 0, true))
		write(wanted)
		expect(lots(), "h* a", "g a")
		if !wanted.Oldest.Equal(written.Add(-3 * time.Hour)) {
			t.Errorf("%s: the oldest is of %v", name, wanted.Oldest)
		}
		write(&Sieve{})
		if err := ReadUnwanted(dir, key, cache.Fingerprint{}, lots(), nil); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: a file with nothing in it: %v", name, err)
		}
	}
}

// TestOldestGoFirst: when something has to be left out, nothing older stays, unless there never was room for it.
func TestOldestGoFirst(t *testing.T) {
	s := &Sieve{Room: 2500}
	for _, step := range []struct {
		group Group
		want  []string
	}{
		{given("g", 0, true, "huge", "huge2", "huge3"), nil},
		{given("g", time.Hour, false, "a"), []string{"a"}},
		{given("g", 2*time.Hour, false, "b", "c"), []string{"b"}},
		{given("g", 3*time.Hour, true), nil},
		{given("h", 4*time.Hour, false, "d"), nil},
	} {
		kept, _ := s.Pass(step.group, step.group.Lanes[0])
		var names []string
		for _, r := range kept.Resources {
			names = append(names, r.Name)
		}
		if step.group.Lanes[0].Lane.Wildcard {
			continue
		}
		if !reflect.DeepEqual(names, step.want) {
			t.Errorf("%q stays of %q", names, step.group.Lanes[0].Names)
		}
	}
}

// TestADamagedFileIsReplaced: what cannot be read any more keeps nothing new from the disk.
func TestADamagedFileIsReplaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	lots := func() *Sieve { return &Sieve{Room: math.MaxInt64} }
	if _, err := WriteUnwanted(dir, Header{}, []Group{given("g", 0, false, "a", "b", "c")}, nil, cache.Fingerprint{}, lots()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, unwantedName)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	read := 0
	if err := ReadUnwanted(dir, nil, cache.Fingerprint{}, lots(), func(Group, fanout.Saved) { read++ }); err == nil || read > 0 {
		t.Errorf("%d lanes of a damaged file are used (%v)", read, err)
	}
	if _, err := WriteUnwanted(dir, Header{}, []Group{given("h", 0, false, "d")}, nil, cache.Fingerprint{}, lots()); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, dir, nil, lots()); !slices.Equal(got, []string{"h d"}) {
		t.Errorf("then it has %q", got)
	}
}
