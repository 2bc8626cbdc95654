package relay

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/snapshot"
)

// onDisk is all that is in a directory, each resource as its group, its name and, if it is
// unwanted, "-".
func onDisk(t *testing.T, dir string) (all []string, groups []snapshot.Group) {
	t.Helper()
	s, err := snapshot.Read(dir, nil, cache.Fingerprint{})
	if err != nil {
		t.Fatal(err)
	}
	note := func(g snapshot.Group, lane fanout.Saved) {
		for _, r := range lane.Resources {
			text := string(g.Name) + r.Name
			if g.Unwanted {
				text += " -"
			}
			all = append(all, text)
		}
	}
	for _, g := range s.Groups {
		for _, lane := range g.Lanes {
			note(g, lane)
		}
	}
	err = snapshot.ReadUnwanted(dir, nil, cache.Fingerprint{}, &snapshot.Sieve{Room: math.MaxInt64}, note)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return all, s.Groups
}

// TestAQuietTimeAgesNoSnapshot: what is on disk is as old as the last sign of life of the control plane,
// and not as its last change (RECON-19).
func TestAQuietTimeAgesNoSnapshot(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	inWorld(t, []string{"cache.snapshot.dir=" + dir}, func(w *world) {
		w.open(w.dial(), "c", false)
		synctest.Wait()
		w.publish()
		age := func() time.Duration {
			_, groups := onDisk(t, dir)
			if len(groups) != 1 {
				t.Fatalf("%d groups are on disk", len(groups))
			}
			return time.Since(groups[0].Saved)
		}
		for range 3 {
			time.Sleep(20 * time.Minute)
			if age := age(); age > time.Minute+10*time.Second {
				t.Errorf("the snapshot of a control plane that is alive is %v old", age)
			}
		}
		w.plane.HangUp()
		w.up.Down()
		if time.Sleep(time.Hour); age() < time.Hour {
			t.Errorf("an hour after the control plane has gone, the snapshot is %v old", age())
		}
	})
}

// TestUnwantedStaysOnDisk: what nobody wants any more is on disk for keep_unwanted, in a file of its own after
// a while, and then goes without anything else being written (RECON-19).
func TestUnwantedStaysOnDisk(t *testing.T) {
	for name, sets := range map[string][]string{"the default group": nil, "a group that ends": {"groups.key=[id]", "timers.name_linger=10m"}} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			inWorld(t, append(sets, "cache.snapshot.dir="+dir, "cache.snapshot.keep_unwanted=2h"), func(w *world) {
				conn := w.dial()
				w.open(conn, "c", false)
				synctest.Wait()
				w.publish()
				synctest.Wait()
				conn.Close()
				for _, step := range []struct {
					wait time.Duration
					want int
				}{{10 * time.Second, 1}, {30 * time.Second, 1}, {time.Minute, 1}, {time.Hour, 1}, {time.Hour, 0}} {
					time.Sleep(step.wait)
					all, _ := onDisk(t, dir)
					if all = slices.Compact(all); len(all) != step.want {
						t.Errorf("%v later there is %q on disk, want %d", step.wait, all, step.want)
					}
					if step.wait >= time.Minute && len(all) > 0 && !strings.HasSuffix(all[0], "-") {
						t.Errorf("%v later %q is still wanted", step.wait, all)
					}
				}
				if files, _ := filepath.Glob(filepath.Join(dir, "*.unwanted")); len(files) > 0 {
					t.Errorf("there still is %q", files)
				}
			})
		})
	}
}

// TestUnwantedIsNotServedForLongerThanItIsKept: a relay that waits long for its first client serves it nothing that
// keep_unwanted says is to go by then.
func TestUnwantedIsNotServedForLongerThanItIsKept(t *testing.T) {
	begins := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // the time in a synctest bubble
	for wait, served := range map[time.Duration]bool{time.Minute: true, 90 * time.Minute: false} {
		dir := filepath.Join(t.TempDir(), "state")
		lane := fanout.Saved{Lane: fanout.Lane{Type: cache.Cluster, Wildcard: true}, Resources: []cache.Held{{
			Resource: cache.NewResource(cache.Cluster, &discovery.Resource{Name: "a", Resource: &anypb.Any{TypeUrl: string(cache.Cluster)}}, cache.Fingerprint{}),
		}}}
		s := &snapshot.Snapshot{Groups: []snapshot.Group{{Saved: begins.Add(-time.Hour), Unwanted: true, Lanes: []fanout.Saved{lane}}}}
		if _, err := snapshot.Write(dir, s, nil); err != nil {
			t.Fatal(err)
		}
		inWorld(t, []string{"cache.snapshot.dir=" + dir, "cache.snapshot.keep_unwanted=2h"}, func(w *world) {
			time.Sleep(wait)
			c := w.open(w.dial(), "c", false)
			time.Sleep(time.Second)
			if got := c.version("a") != ""; got != served {
				t.Errorf("after %v it is served: %v, want %v", wait, got, served)
			}
		})
	}
}

// TestMaxBytes: max_bytes bounds what nobody wants, the oldest go first, when it is written and when it is read;
// what is wanted is written and read in any case, and the log says so.
func TestMaxBytes(t *testing.T) {
	resource := func(name string) cache.Held {
		return cache.Held{Resource: cache.NewResource(cache.Endpoint, &discovery.Resource{
			Name: name, Resource: &anypb.Any{TypeUrl: string(cache.Endpoint), Value: bytes.Repeat([]byte{1}, 1000)},
		}, cache.Fingerprint{})}
	}
	group := func(unwanted bool, ago time.Duration, names ...string) snapshot.Group {
		lane := fanout.Saved{Lane: fanout.Lane{Type: cache.Endpoint}, Names: names}
		for _, name := range names {
			lane.Resources = append(lane.Resources, resource(name))
		}
		return snapshot.Group{Name: []byte("g;"), Saved: time.Now().Add(-ago), Unwanted: unwanted, Lanes: []fanout.Saved{lane}}
	}
	for _, test := range []struct {
		max      string
		shelved  []string
		says     string // in a WARN
		unwanted []string
	}{
		{"1MiB", []string{"u1", "u2", "u3", "u4"}, "", []string{"u1", "u2", "u3", "u4"}},
		{"5000B", []string{"u1", "u2"}, "", []string{"u1", "u2"}},
		{"3900B", []string{"u1"}, "", []string{"u1"}},
		{"1000B", nil, "what clients want is more than cache.snapshot.max_bytes", nil},
	} {
		dir := filepath.Join(t.TempDir(), "state")
		s := &snapshot.Snapshot{Groups: []snapshot.Group{group(false, 0, "w1", "w2"), group(true, time.Hour, "u1")}}
		if _, err := snapshot.Write(dir, s, nil); err != nil {
			t.Fatal(err)
		}
		more := []snapshot.Group{group(true, 4*time.Hour, "u4"), group(true, 2*time.Hour, "u2"), group(true, 3*time.Hour, "u3", "u1", "w1")}
		if _, err := snapshot.WriteUnwanted(dir, snapshot.Header{}, more, nil, cache.Fingerprint{}, &snapshot.Sieve{Room: math.MaxInt64}); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load("", []string{"cache.snapshot.dir=" + dir, "cache.snapshot.max_bytes=" + test.max, "groups.key=[id]"})
		if err != nil {
			t.Fatal(err)
		}
		log := new(bytes.Buffer)
		r, err := New(c, Options{Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo}))})
		if err != nil {
			t.Fatal(err)
		}
		var shelved []string
		for _, g := range r.groups.shelved["g;"] {
			shelved = append(shelved, g.Lanes[0].Names...)
		}
		if !slices.Equal(shelved, test.shelved) || len(r.groups.saved["g;"]) != 1 {
			t.Errorf("%s: %q was read of what is unwanted, and %d groups are wanted; want %q and 1", test.max, shelved, len(r.groups.saved), test.shelved)
		}
		says := fmt.Sprintf("snapshot loaded: 2 resources of 1 type as of %s", s.Groups[0].Saved.UTC().Format(time.RFC3339))
		if n := len(test.shelved); n > 0 {
			says += fmt.Sprintf(", and %d that no client wanted any more", n)
		}
		r.keeper.written = map[string]progress{"": {}} // there is something to write
		r.keeper.unwanted.written = time.Time{}
		r.keeper.save(false)
		r.Close(0)
		if text := log.String(); !strings.Contains(text, says) || strings.Count(text, "level=WARN") != len(test.says)/max(len(test.says), 1) || !strings.Contains(text, test.says) {
			t.Errorf("%s: it says\n%s\nwant %q, and a warning %q", test.max, text, says, test.says)
		}
		all, _ := onDisk(t, dir)
		slices.Sort(all)
		want := []string{"g;w1", "g;w2"}
		for _, name := range test.unwanted {
			want = append(want, "g;"+name+" -")
		}
		slices.Sort(want)
		if all = slices.Compact(all); !slices.Equal(all, want) {
			t.Errorf("%s: then there is %q on disk, want %q", test.max, all, want)
		}
	}
}

// TestAStartSaysThatASnapshotIsEmpty: nobody has to guess whether one was found, or used.
func TestAStartSaysThatASnapshotIsEmpty(t *testing.T) {
	old := snapshot.Group{Saved: time.Now().Add(-2 * time.Hour), Lanes: []fanout.Saved{{Lane: fanout.Lane{Type: cache.Cluster, Wildcard: true}}}}
	for want, groups := range map[string][]snapshot.Group{
		"snapshot loaded: it is empty":        nil,
		"snapshot loaded: none of it is used": {old},
	} {
		dir := filepath.Join(t.TempDir(), "state")
		if _, err := snapshot.Write(dir, &snapshot.Snapshot{Groups: groups}, nil); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load("", []string{"cache.snapshot.dir=" + dir, "cache.snapshot.max_age=1h"})
		if err != nil {
			t.Fatal(err)
		}
		log := new(bytes.Buffer)
		r, err := New(c, Options{Log: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		r.Close(0)
		if text := log.String(); !strings.Contains(text, want) {
			t.Errorf("it says\n%s\nwant %q", text, want)
		}
	}
}
