package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

var written = time.Date(2026, 11, 21, 4, 0, 0, 0, time.UTC)

// example is a snapshot of about so many bytes, with all that one can hold.
func example(size int) *Snapshot {
	resource := func(t cache.TypeURL, name string, body int) cache.Held {
		return cache.Held{
			Resource: cache.NewResource(t, &discovery.Resource{
				Name: name, Aliases: []string{name + "/alias"},
				Resource: &anypb.Any{TypeUrl: string(t), Value: bytes.Repeat([]byte{byte(len(name))}, body)},
			}, cache.Fingerprint{}),
			Upstream: "v-" + name, Announced: len(name)%2 == 0,
		}
	}
	const body = 500
	clusters := fanout.Saved{Lane: fanout.Lane{Type: cache.Cluster, Wildcard: true}, Origin: cache.Origin{Entry: "127.0.0.1:15010", SotW: true}}
	for i := 0; i < size; i += body + 100 {
		clusters.Resources = append(clusters.Resources, resource(cache.Cluster, fmt.Sprintf("cluster-%d", i), body))
	}
	leased := resource(cache.Endpoint, "leased", 10)
	leased.Ends = written.Add(time.Hour)
	return &Snapshot{
		Header: Header{Relay: "1.2.3", Instance: "edge-1", Written: written},
		Groups: []Group{
			{Name: []byte{}, Saved: written, Lanes: []fanout.Saved{
				clusters,
				{Lane: fanout.Lane{Type: cache.Endpoint}, Names: []string{"leased", "\xff"}, Resources: []cache.Held{leased}},
			}},
			{Name: []byte("\x00\xff"), Saved: written.Add(-time.Hour)},
		},
	}
}

func encode(t testing.TB, s *Snapshot, key *Key) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Encode(&b, key); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func testKey(t testing.TB, seed byte) *Key {
	t.Helper()
	k, err := NewKey(bytes.Repeat([]byte{seed}, KeySize))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// plain is a snapshot for comparing: resources as their bytes.
func plain(s *Snapshot) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%+v\n", s.Header)
	for _, g := range s.Groups {
		fmt.Fprintf(&b, "%q %v\n", g.Name, g.Saved)
		for _, l := range g.Lanes {
			fmt.Fprintf(&b, " %v %v %q\n", l.Lane, l.Origin, l.Names)
			for _, r := range l.Resources {
				fmt.Fprintf(&b, "  %q %v %d %x %s\n", r.Upstream, r.Announced, r.Ends.UnixMilli(), r.Resource.Element(), r.Resource.Version)
			}
		}
	}
	return b.String()
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	for name, key := range map[string]*Key{"in clear": nil, "sealed": testKey(t, 1)} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			if _, err := Read(dir, key, cache.Fingerprint{}); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("no file: %v", err)
			}
			s := example(5000)
			for range 2 { // the second replaces the first
				if _, err := Write(dir, s, key); err != nil {
					t.Fatal(err)
				}
			}
			got, err := Read(dir, key, cache.Fingerprint{})
			if err != nil {
				t.Fatal(err)
			}
			if a, b := plain(got), plain(s); a != b {
				t.Errorf("read\n%s\nwritten\n%s", a, b)
			}
			names, _ := filepath.Glob(filepath.Join(dir, "*"))
			if want := []string{filepath.Join(dir, fileName)}; !reflect.DeepEqual(names, want) {
				t.Errorf("the directory holds %v, want %v", names, want)
			}
			for path, mode := range map[string]fs.FileMode{dir: 0o700, names[0]: 0o600} {
				if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
					t.Errorf("%s has mode %v (%v), want %v", path, info.Mode().Perm(), err, mode)
				}
			}
		})
	}
}

// TestEarlierVersions: what earlier versions of the relay have written is read. The files are
// named after the commits of those that wrote them, and some are sealed.
func TestEarlierVersions(t *testing.T) {
	files, err := filepath.Glob("testdata/earlier/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are none: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var key *Key
		if strings.HasSuffix(file, "-sealed") {
			key = testKey(t, 1)
		}
		s, err := Decode(data, key, cache.Fingerprint{})
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		var held []string
		for _, g := range s.Groups {
			for _, lane := range g.Lanes {
				for _, r := range lane.Resources {
					held = append(held, lane.Lane.Type.Short()+" "+r.Resource.Name)
				}
			}
		}
		if want := []string{"CDS hello", "LDS web", "LDS backend"}; !reflect.DeepEqual(held, want) {
			t.Errorf("%s holds %q, want %q", file, held, want)
		}
	}
}

// TestSnapshot_EveryByte is R18: a file of 100 KiB, cut off at every offset, and with
// every byte changed, is rejected whole; nothing panics. With the race detector, which finds nothing here, one
// in 17 will do.
func TestSnapshot_EveryByte(t *testing.T) {
	const size = 100 << 10
	step := 1
	if peer.Race {
		step = 17
	}
	for name, key := range map[string]*Key{"in clear": nil, "sealed": testKey(t, 1)} {
		t.Run(name, func(t *testing.T) {
			data := encode(t, example(size), key)
			if len(data) < size {
				t.Fatalf("the file has %d bytes, want %d", len(data), size)
			}
			if _, err := Decode(data, key, cache.Fingerprint{}); err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(data); i += step {
				if _, err := Decode(data[:i], key, cache.Fingerprint{}); err == nil {
					t.Fatalf("cut off at %d it is accepted", i)
				}
				data[i] ^= 1 << (i % 8)
				if _, err := Decode(data, key, cache.Fingerprint{}); err == nil {
					t.Fatalf("with byte %d changed it is accepted", i)
				}
				data[i] ^= 1 << (i % 8)
			}
			if _, err := Decode(append(data, 0), key, cache.Fingerprint{}); err == nil {
				t.Error("with a byte too many it is accepted")
			}
			t.Logf("R18: %d damaged files of %d bytes, all rejected", 2*len(data)/step+1, len(data))
		})
	}
}

func TestSealedRecordsKeepTheirPlaces(t *testing.T) {
	key := testKey(t, 1)
	data := encode(t, example(2000), key)
	if bytes.Contains(data, []byte("cluster-")) {
		t.Error("a name can be read in a sealed file")
	}
	for name, k := range map[string]*Key{"another key": testKey(t, 2), "no key": nil} {
		if _, err := Decode(data, k, cache.Fingerprint{}); err == nil {
			t.Errorf("it opens with %s", name)
		}
	}
	if _, err := Decode(encode(t, example(2000), nil), key, cache.Fingerprint{}); err == nil {
		t.Error("a file in clear is accepted where there is a key")
	}
	// Exchange the last two resources of the clusters, checksums and all.
	const begins = len(magicSealed) + idSize
	records := frames(data[begins:])
	swapped := slices.Clone(records)
	swapped[2], swapped[3] = records[3], records[2]
	refuses := func(what string, n int, records [][]byte) {
		t.Helper()
		file := append(slices.Clone(data[:begins]), bytes.Join(records, nil)...)
		if _, err := Decode(file, key, cache.Fingerprint{}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("record %d:", n)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refuses("records that were exchanged", 2, swapped)
	// Take one from the same place of another file with the same key: it may be another group's there.
	spliced := slices.Clone(records)
	spliced[3] = frames(encode(t, example(2000), key)[begins:])[3]
	refuses("a record of another file", 3, spliced)
}

// TestSealedFileOfAnotherName: what is unwanted is not taken for what is wanted.
func TestSealedFileOfAnotherName(t *testing.T) {
	var b bytes.Buffer
	w := newWriter(&b, unwantedName, testKey(t, 1))
	w.begin(Header{})
	if err := w.end(); err != nil {
		t.Fatal(err)
	}
	if _, err := Decode(b.Bytes(), testKey(t, 1), cache.Fingerprint{}); err == nil {
		t.Error("it is read as the snapshot")
	}
}

func frames(data []byte) (all [][]byte) {
	for len(data) > 0 {
		n := frameSize + int(data[0])<<24 + int(data[1])<<16 + int(data[2])<<8 + int(data[3])
		all, data = append(all, data[:n]), data[n:]
	}
	return all
}

// TestRecordsInTheWrongPlace: a file whose checksums are right is still read with
// suspicion.
func TestRecordsInTheWrongPlace(t *testing.T) {
	good := frames(encode(t, example(1200), nil)[len(magic):])
	file := func(order ...int) []byte {
		b := []byte(magic)
		for _, i := range order {
			b = append(b, good[i]...)
		}
		return b
	}
	end := len(good) - 1
	for name, data := range map[string][]byte{
		"nothing":                     file(),
		"only a header":               file(0),
		"no header":                   file(1, 2, end),
		"two headers":                 file(0, 0, end),
		"a lane without a group":      file(0, 2, end),
		"a resource without a lane":   file(0, 1, 3, end),
		"a resource without a group":  file(0, 3, end),
		"an end that counts too many": file(0, end),
	} {
		if _, err := Decode(data, nil, cache.Fingerprint{}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestWhatOthersCanWriteIsNotTrusted(t *testing.T) {
	dir := t.TempDir()
	if _, err := Write(dir, example(100), nil); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, fileName)
	if err := os.Chmod(file, 0o620); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir, nil, cache.Fingerprint{}); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("a file that the group can write to: %v", err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(dir, example(100), nil); err == nil || !strings.Contains(err.Error(), "(mode 0777); name a directory") {
		t.Errorf("a directory that all can write to: %v", err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir, nil, cache.Fingerprint{}); err == nil || !strings.Contains(err.Error(), "(mode 0777); name a directory") {
		t.Errorf("a file in a directory that all can write to: %v", err)
	}
}

// TestALeftoverIsReplaced: what a crash left behind lends the next file neither its
// mode nor its place.
func TestALeftoverIsReplaced(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	for name, leave := range map[string]func(temp string) error{
		"a file": func(temp string) error { return os.WriteFile(temp, nil, 0o644) },
		"a link": func(temp string) error { return os.Symlink(elsewhere, temp) },
	} {
		if err := leave(filepath.Join(dir, tempName)); err != nil {
			t.Fatal(err)
		}
		if _, err := Write(dir, example(100), nil); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Lstat(filepath.Join(dir, fileName)); err != nil || info.Mode() != 0o600 {
			t.Errorf("after %s the snapshot has mode %v (%v)", name, info.Mode(), err)
		}
	}
	if _, err := os.Stat(elsewhere); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file outside of the directory: %v", err)
	}
}

// TestAFailedWriteLeavesTheOldFile: and nothing beside it.
func TestAFailedWriteLeavesTheOldFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(dir, example(100), nil); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	// A directory of that name with something in it is in the way of everybody.
	if err := os.MkdirAll(filepath.Join(dir, tempName, "something"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(dir, example(5000), nil); err == nil {
		t.Fatal("the write was accepted")
	}
	if after, err := os.ReadFile(filepath.Join(dir, fileName)); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the old file is not what it was (%v)", err)
	}
}

func TestKeys(t *testing.T) {
	if _, err := NewKey(make([]byte, 31)); err == nil {
		t.Error("a short key is accepted")
	}
	path := filepath.Join(t.TempDir(), "key")
	if _, err := ReadKey(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no key file: %v", err)
	}
	if err := os.WriteFile(path, make([]byte, KeySize), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, good := range map[fs.FileMode]bool{0o600: true, 0o400: true, 0o640: true, 0o604: false, 0o602: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadKey(path); (err == nil) != good {
			t.Errorf("a key of mode %v: %v", mode, err)
		}
	}
}

// FuzzSnapshotLoad: no file makes the relay panic, and one that is accepted says the
// same when it is written again.
func FuzzSnapshotLoad(f *testing.F) {
	f.Add([]byte(magic))
	f.Add(encode(f, &Snapshot{Header: Header{Written: written}}, nil))
	f.Add(encode(f, example(1200), nil))
	f.Add(encode(f, example(1200), testKey(f, 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = Decode(data, testKey(t, 1), cache.Fingerprint{})
		// The fuzzer cannot guess checksums: let it write payloads, and frame them.
		for _, data := range [][]byte{data, reframed(data)} {
			s, err := Decode(data, nil, cache.Fingerprint{})
			if err != nil {
				continue
			}
			again, err := Decode(encode(t, s, nil), nil, cache.Fingerprint{})
			if err != nil {
				t.Fatalf("what was read cannot be read again: %v", err)
			}
			if plain(again) != plain(s) {
				t.Fatalf("written again it says\n%s\nand not\n%s", plain(again), plain(s))
			}
			hub := fanout.NewHub(fanout.Config{Linger: time.Second})
			for _, g := range s.Groups {
				hub.Disk().Load(g.Lanes, written)
			}
		}
	})
}

// reframed takes data as lines, each a payload, and makes a file of them.
func reframed(data []byte) []byte {
	var b bytes.Buffer
	w := newWriter(&b, fileName, nil)
	w.raw([]byte(magic))
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		w.record(line)
	}
	w.json(kindEnd, endRecord{w.records})
	_ = w.out.Flush() // a buffer takes everything
	return b.Bytes()
}

// TestTwoRelaysOneDirectory: whoever writes while another one does is told so, and
// what is there is whole at any time.
func TestTwoRelaysOneDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(dir, example(1000), nil); err != nil {
		t.Fatal(err)
	}
	var relays sync.WaitGroup
	for i := range 4 {
		relays.Go(func() {
			for range 30 {
				if _, err := Write(dir, example(20000*(i+1)), nil); err != nil && !errors.Is(err, errShared) {
					t.Errorf("writing: %v", err)
				}
				if _, err := Read(dir, nil, cache.Fingerprint{}); err != nil {
					t.Errorf("reading: %v", err)
				}
			}
		})
	}
	relays.Wait()
}
