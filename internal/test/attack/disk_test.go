//go:build linux

package attack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// What somebody does to the snapshot, or to the relay while it writes.

// onDisk are the settings of a relay that writes all the time, and gives up waiting soon.
var onDisk = []string{"cache.snapshot.dir={dir}/state", "cache.snapshot.interval=20ms", "timers.unavailable_after=300ms"}

// cutOff has the relay find no control plane when it starts again, or find it again.
func (w *world) cutOff(yes bool) {
	to := w.plane.addr
	if yes {
		to = "127.0.0.1:1"
	}
	for i, arg := range w.relay.Args {
		if strings.HasPrefix(arg, "upstream.address=") {
			w.relay.Args[i] = "upstream.address=" + to
		}
	}
}

// snapshot is the file that is served after a restart.
func (w *world) snapshot() string { return w.path("state/snapshot") }

// frames are the records of a sealed snapshot, after its beginning.
func frames(file []byte) (begin []byte, records [][]byte) {
	const id, head = 16, 8
	at := bytes.IndexByte(file, '\n') + 1 + id
	begin = file[:at]
	for rest := file[at:]; len(rest) >= head; {
		n := min(head+int(binary.BigEndian.Uint32(rest)), len(rest))
		records, rest = append(records, rest[:n]), rest[n:]
	}
	return begin, records
}

// sealed is a snapshot with the secrets of two clients.
type sealed struct {
	alice, bob string // what they were sent
	file       []byte
	at         []int // which of its records these are, in some order
}

// sealedSecrets waits until the secrets are in the snapshot, and kills the relay.
func (w *world) sealedSecrets() (s sealed) {
	w.t.Helper()
	s.alice, s.bob = w.theirSecrets()
	if s.alice == "" || s.bob == "" || s.alice == s.bob {
		w.t.Fatalf("Alice is sent %q, Bob %q", s.alice, s.bob)
	}
	peer.Eventually(w.t, 30*time.Second, func() (err error) {
		if s.file, err = os.ReadFile(w.snapshot()); err != nil {
			return err
		}
		s.at = nil
		_, records := frames(s.file)
		for i, r := range records {
			if len(r) > 8<<10 {
				s.at = append(s.at, i)
			}
		}
		return peer.Is("secrets in the snapshot", len(s.at), 2)
	})
	w.relay.Kill()
	return s
}

// theirSecrets are those of both.
func (w *world) theirSecrets() (alice, bob string) {
	alices, bobs := w.as("alice"), w.as("bob")
	var both sync.WaitGroup
	both.Go(func() { alice = w.secretOf(alices) })
	both.Go(func() { bob = w.secretOf(bobs) })
	both.Wait()
	return alice, bob
}

// secretOf is for what node of the control plane's the secret is that a client is sent; empty: it is sent none.
func (w *world) secretOf(at *target) string {
	got, err := w.asks("node", at, subscribe(cache.Secret, "mine"))
	if err != nil || len(got.GetResources()) == 0 {
		return ""
	}
	text := string(got.GetResources()[0].GetResource().GetValue())
	return text[strings.LastIndexByte(text, '.')+1:]
}

// spliced is what somebody with two files, and without the key, can make of them.
func spliced(one, other sealed) [][]byte {
	begin, records := frames(one.file)
	_, others := frames(other.file)
	put := func(at int, r []byte) []byte {
		all := slices.Clone(records)
		all[at] = r
		return append(slices.Clone(begin), bytes.Join(all, nil)...)
	}
	exchanged := slices.Clone(records)
	exchanged[one.at[0]], exchanged[one.at[1]] = exchanged[one.at[1]], exchanged[one.at[0]]
	files := [][]byte{append(slices.Clone(begin), bytes.Join(exchanged, nil)...), put(one.at[0], others[other.at[1]])}
	if long() {
		files = append(files, put(one.at[0], records[one.at[1]]), put(one.at[1], records[one.at[0]]),
			put(one.at[0], others[other.at[0]]), put(one.at[1], others[other.at[0]]), put(one.at[1], others[other.at[1]]))
	}
	return files
}

// TestSplicedSnapshots: records of a sealed snapshot that stand in another place, or come from another file with the
// same key, are refused with the file, and nobody is sent another one's secret.
func TestSplicedSnapshots(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &attack{ID: "S11", Name: "sealed records in another group's place", TLS: true, Plane: planeOptions{Serve: secrets},
		Sets: append(onDisk[:len(onDisk):len(onDisk)], "groups.key=[identity]", "cache.snapshot.key_file={dir}/key")})
	w.noteEnd()
	one := w.sealedSecrets()
	if err := os.Remove(w.snapshot()); err != nil {
		t.Fatal(err)
	}
	w.relay.Start()
	other := w.sealedSecrets()
	if bytes.Contains(one.file, []byte(planted)) {
		t.Error("a sealed snapshot shows a secret")
	}

	w.cutOff(true)
	try := func(file []byte) (alice, bob string) {
		if err := os.WriteFile(w.snapshot(), file, 0o600); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(w.snapshot() + ".unwanted") // it may not be there
		w.relay.Start()
		defer w.relay.Kill()
		return w.theirSecrets()
	}
	if alice, bob := try(other.file); alice != one.alice || bob != one.bob {
		t.Fatalf("the file as it was: Alice is sent %q, Bob %q", alice, bob)
	}
	for i, file := range spliced(one, other) {
		if alice, bob := try(file); alice != "" || bob != "" {
			t.Errorf("file %d: Alice is sent %q, Bob %q", i, alice, bob)
		}
		if !complains(w.relay) {
			t.Errorf("file %d: the log does not say so\n%s", i, w.relay.Output)
		}
	}
}

// complains: the log says that the snapshot is not used.
func complains(r *peer.Relay) bool {
	return len(r.Output.Lines(`"level":"ERROR"`, "the snapshot is not used")) > 0
}

// huge is the one that takes long.
const huge = "1 GiB in a record"

// damages are what can have happened to a snapshot; each gets the path of a good one.
var damages = map[string]func(path string, good []byte) error{
	"cut in half":   func(path string, good []byte) error { return os.Truncate(path, int64(len(good)/2)) },
	"cut to a line": func(path string, good []byte) error { return os.Truncate(path, int64(bytes.IndexByte(good, '\n')+1)) },
	"empty":         func(path string, _ []byte) error { return os.Truncate(path, 0) },
	"flipped":       func(path string, good []byte) error { return flipped(path, good, len(good)/3) },
	"another beat":  func(path string, good []byte) error { return flipped(path, good, beatIn(good)) },
	"of a newer form": func(path string, good []byte) error {
		return os.WriteFile(path, bytes.Replace(good, []byte("snapshot 2"), []byte("snapshot 3"), 1), 0o600)
	},
	"a link": func(path string, _ []byte) error {
		if err := os.Rename(path, path+".there"); err != nil {
			return err
		}
		return os.Symlink(path+".there", path)
	},
	"anybody's":   func(path string, _ []byte) error { return os.Chmod(path, 0o666) },
	"a directory": func(path string, _ []byte) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
	"a pipe":      func(path string, _ []byte) error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)) },
	huge: func(path string, good []byte) error {
		const size = 1 << 30
		line := good[:bytes.IndexByte(good, '\n')+1]
		head := binary.BigEndian.AppendUint32(slices.Clone(line), size)
		return errors.Join(os.WriteFile(path, append(head, 0, 0, 0, 0), 0o600), os.Truncate(path, int64(len(head)+4+size)))
	},
}

// TestDamagedSnapshots: whatever has happened to it, the relay starts, says so, and sends nothing of it.
func TestDamagedSnapshots(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &attack{ID: "T14", Name: "snapshots that are damaged, no files, or too large", Sets: onDisk})
	w.noteEnd()
	good := w.snapshotOf("beat")
	w.relay.Kill()
	if got, _ := w.startFrom(t, good, nil); got == "" {
		t.Error("a good one is not served")
	}
	for name, damage := range damages {
		if name == huge && !long() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, r := w.startFrom(t, good, damage)
			if got != "" {
				t.Errorf("%q of it is served", got)
			}
			if !complains(r) {
				t.Errorf("the log does not say so\n%s", r.Output)
			}
			if size, err := r.Resident(); err != nil || size > 256<<20 {
				t.Errorf("the relay takes %d MiB (%v)", size>>20, err)
			}
			r.Kill()
		})
	}
}

// startFrom starts a relay on a directory of its own with a file, and returns what of beat it sends without a control
// plane.
func (w *world) startFrom(t *testing.T, file []byte, damage func(string, []byte) error) (text string, r *peer.Relay) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "snapshot")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	if damage != nil {
		if err := damage(path, file); err != nil {
			t.Fatal(err)
		}
	}
	addr, admin := peer.Address(t), peer.Address(t)
	r = peer.NewRelay(t, addr, admin, nil, append(peer.QuickBackoff[:len(peer.QuickBackoff):len(peer.QuickBackoff)], "downstream.listen=["+addr+"]", "admin.listen="+admin, "upstream.address=127.0.0.1:1",
		"cache.snapshot.dir="+dir, "cache.snapshot.max_bytes=1MiB", "timers.unavailable_after=300ms")...)
	r.Start()
	got, err := w.asks("victim", &target{Addr: addr}, subscribe(cache.Endpoint, beat))
	if err != nil || len(got.GetResources()) == 0 {
		return "", r
	}
	return said(got.GetResources()[0].GetResource()), r
}

// snapshotOf waits until a text is in the snapshot.
func (w *world) snapshotOf(text string) (file []byte) {
	w.t.Helper()
	peer.Eventually(w.t, 30*time.Second, func() (err error) {
		if file, err = os.ReadFile(w.snapshot()); err == nil && !bytes.Contains(file, []byte(text)) {
			err = fmt.Errorf("the snapshot lacks %q", text)
		}
		return err
	})
	return file
}

// bulk makes a snapshot large enough to be killed in the middle of.
func bulk(_ string, t cache.TypeURL, name string) *anypb.Any {
	if !strings.HasPrefix(name, "bulk") {
		return nil
	}
	return assignment(name, strings.Repeat("b", 1<<20))
}

// TestKilledWhileWriting: a relay that is killed at any moment starts again, and sends what the control plane has made.
func TestKilledWhileWriting(t *testing.T) {
	t.Parallel()
	kills := 3
	if long() {
		kills = 60
	}
	w := newWorld(t, &attack{ID: "T14", Name: fmt.Sprintf("kill -9 × %d while it writes the snapshot", kills), Plane: planeOptions{Serve: bulk}, Sets: onDisk})
	w.noteEnd()
	follower, err := dial(&w.target)
	if err != nil {
		t.Fatal(err)
	}
	defer follower.Close()
	began := 0
	for range kills {
		// It has much to write, and something new all the time.
		if _, _, err := follower.ask(t.Context(), "victim", subscribe(cache.Endpoint, names("bulk", 8, 0)...)); err != nil {
			t.Fatal(err)
		}
		w.snapshotOf("bulk-7-")
		peer.Wait(rand.N(100 * time.Millisecond))
		w.relay.Kill()
		if _, err := os.Stat(w.path("state/snapshot.new")); err == nil {
			began++
		}
		w.cutOff(true)
		w.relay.Start()
		got, err := w.asks("victim", &w.target, subscribe(cache.Endpoint, beat))
		if err != nil || len(got.GetResources()) != 1 {
			t.Errorf("beat is not served: %v %v", err, got)
		} else if n, _ := strconv.Atoi(said(got.GetResources()[0].GetResource())); w.plane.when(n).IsZero() {
			t.Errorf("beat %d, which was never made", n)
		}
		w.relay.Kill()
		w.cutOff(false)
		w.relay.Start()
	}
	t.Logf("%d of %d kills came in the middle", began, kills)
}

// TestOneDirectoryForTwo: the second relay says so, and serves; neither damages what the other writes.
func TestOneDirectoryForTwo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &attack{ID: "T14", Name: "two relays on one snapshot directory", Sets: onDisk})
	w.noteEnd()
	w.snapshotOf("beat")
	addr, admin := peer.Address(t), peer.Address(t)
	second := peer.NewRelay(t, addr, admin, nil, "downstream.listen=["+addr+"]", "admin.listen="+admin, "upstream.address="+w.plane.addr, "cache.snapshot.dir="+w.path("state"), "cache.snapshot.interval=20ms", "downstream.drain_delay=0s", "downstream.drain=0s")
	second.Start()
	if got, err := w.asks("other", &target{Addr: addr}, subscribe(cache.Endpoint, beat)); err != nil || len(got.GetResources()) != 1 {
		t.Errorf("the second relay serves %v, %v", got, err)
	}
	if len(second.Output.Lines(`"level":"ERROR"`, "belongs to another relay")) == 0 {
		t.Errorf("the second relay does not say so\n%s", second.Output)
	}
	second.Stop()
	w.relay.Kill()
	w.cutOff(true)
	w.relay.Start()
	if got, err := w.asks("victim", &w.target, subscribe(cache.Endpoint, beat)); err != nil || len(got.GetResources()) != 1 {
		t.Errorf("after both have ended: %v, %v", got, err)
	}
}

// flipped changes a bit of a byte.
func flipped(path string, good []byte, at int) error {
	bad := slices.Clone(good)
	bad[at] ^= 1
	return os.WriteFile(path, bad, 0o600)
}

// beatIn is where a snapshot has the first digit of beat, of which another one could be made: behind its name, and the
// tags and lengths of endpoints, locality and zone.
func beatIn(file []byte) int { return bytes.Index(file, []byte(beat)) + len(beat) + 6 }
