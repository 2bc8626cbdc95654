package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-relay/xds-relay/internal/certs/certstest"
)

// patience is spent only by a test that fails.
const patience = 20 * time.Second

// eventually waits for what another goroutine is to do with real files.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// told is what a follower says and counts.
type told struct {
	mu         sync.Mutex
	text       bytes.Buffer
	ok, failed atomic.Int64
	changed    atomic.Int64
}

func (s *told) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *told) CertificatesReloaded(ok bool) {
	if ok {
		s.ok.Add(1)
	} else {
		s.failed.Add(1)
	}
}

// lines are those of the log that contain a text.
func (s *told) lines(text string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range strings.Lines(s.text.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (s *told) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// world is an authority, and a directory with what it has issued.
type world struct {
	t         *testing.T
	authority *certstest.Authority
	dir       string
	serial    int64
	said      *told
}

func newWorld(t *testing.T) *world {
	return &world{t: t, authority: certstest.NewAuthority(t, "test"), dir: t.TempDir(), said: &told{}}
}

// files are those of a new certificate.
func (w *world) files(c x509.Certificate) map[string][]byte {
	w.serial++
	c.SerialNumber, c.Subject = big.NewInt(w.serial), pkix.Name{CommonName: "relay"}
	cert, key := w.authority.Issue(w.t, c)
	return map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": w.authority.PEM}
}

func (w *world) paths() Files {
	return Files{
		Section: "upstream.tls", Hop: Upstream, Address: "a:1",
		Cert: filepath.Join(w.dir, "tls.crt"), Key: filepath.Join(w.dir, "tls.key"), CA: filepath.Join(w.dir, "ca.crt"),
	}
}

// follow follows the files of the world until end is called.
func (w *world) follow(o Options) (d *Followed, end func()) {
	w.t.Helper()
	o.Log, o.Observer = slog.New(slog.NewTextHandler(w.said, nil)), w.said
	o.Changed = func() { w.said.changed.Add(1) }
	f := NewFollower(o)
	d, err := f.Follow(w.paths())
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	return d, func() { cancel(); running.Wait() }
}

func serial(d *Followed) int64 { return d.Material().Leaf().SerialNumber.Int64() }

// Files are followed however they are replaced, without waiting for a poll, and each
// change is one line.
func TestFollow(t *testing.T) {
	for name, replace := range map[string]certstest.Replace{"in place": certstest.InPlace, "rename": certstest.Rename, "symlink swap": certstest.Swap} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			replace(t, w.dir, w.files(x509.Certificate{}))
			d, end := w.follow(Options{Poll: time.Hour, Settle: time.Millisecond, Retry: time.Millisecond})
			defer end()
			const rounds = 30
			for range rounds {
				replace(t, w.dir, w.files(x509.Certificate{}))
				eventually(t, "the new certificate is used", func() bool { return serial(d) == w.serial })
			}
			end() // it is used before it is logged and counted
			if n := w.said.lines("certificates reloaded"); n != rounds || w.said.ok.Load() != rounds || w.said.failed.Load() != 0 {
				t.Errorf("%d lines, %d successes and %d failures counted, want %d, %d and 0:\n%s", n, w.said.ok.Load(), w.said.failed.Load(), rounds, rounds, w.said)
			}
			if n := w.said.lines("WARN"); n != 0 {
				t.Errorf("%d warnings:\n%s", n, w.said)
			}
		})
	}
}

// A directory on the way may be a link that is swapped, and one that is removed and made
// again is found again.
func TestFollowDirectories(t *testing.T) {
	w := newWorld(t)
	top := w.dir
	version := func(name string) {
		dir := filepath.Join(top, name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		certstest.InPlace(t, dir, w.files(x509.Certificate{}))
	}
	point := func(name string) {
		if err := os.Symlink(name, filepath.Join(top, "next")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(top, "next"), filepath.Join(top, "current")); err != nil {
			t.Fatal(err)
		}
	}
	version("v1")
	point("v1")
	w.dir = filepath.Join(top, "current")
	d, end := w.follow(Options{Poll: time.Hour, Settle: time.Millisecond, Retry: time.Millisecond, Persist: time.Hour})
	defer end()
	version("v2")
	point("v2")
	eventually(t, "the second version is used", func() bool { return serial(d) == 2 })
	if err := os.RemoveAll(filepath.Join(top, "v2")); err != nil {
		t.Fatal(err)
	}
	version("v2")
	eventually(t, "what is in the directory that was made again is used", func() bool { return serial(d) == 3 })
	version("v2")
	eventually(t, "and so is what is written there", func() bool { return serial(d) == 4 })
}

// inBubble follows files in virtual time, without notice of changes: they are seen at
// the next poll, and heard is what makes them be looked at.
func inBubble(t *testing.T, poll time.Duration, c func(now time.Time) x509.Certificate, f func(w *world, d *Followed, heard func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		certstest.InPlace(t, w.dir, w.files(c(time.Now())))
		d, end := w.follow(Options{NoNotify: true, Poll: poll})
		defer end()
		synctest.Wait()
		f(w, d, func() {
			d.follower.poke()
			time.Sleep(d.follower.options.Settle)
			synctest.Wait()
		})
	})
}

func always(time.Time) x509.Certificate { return x509.Certificate{} }

func TestPoll(t *testing.T) {
	inBubble(t, time.Minute, always, func(w *world, d *Followed, _ func()) {
		certstest.Rename(t, w.dir, w.files(x509.Certificate{}))
		time.Sleep(59 * time.Second)
		if serial(d) != 1 {
			t.Error("who has not heard of a change has seen it")
		}
		time.Sleep(2 * time.Second)
		if serial(d) != 2 {
			t.Error("a change is not seen after a minute")
		}
	})
}

// A pair that is not whole yet is read again soon, and nobody is told; if it stays so,
// there is one line, and one more when it is over.
func TestHalfWritten(t *testing.T) {
	for name, broken := range map[string]struct {
		part func(files map[string][]byte) map[string][]byte
		says string
	}{
		"cut off": {func(f map[string][]byte) map[string][]byte {
			return map[string][]byte{"tls.crt": f["tls.crt"][:len(f["tls.crt"])/2], "tls.key": f["tls.key"]}
		}, `upstream.tls.cert: \"`},
		"empty": {func(map[string][]byte) map[string][]byte { return map[string][]byte{"tls.key": nil} },
			"has no private key in PEM form"},
		"the key is missing": {func(f map[string][]byte) map[string][]byte { return map[string][]byte{"tls.crt": f["tls.crt"]} },
			"is not the key of upstream.tls.cert"},
		"a bundle that is cut off": {func(f map[string][]byte) map[string][]byte {
			ca := append(append([]byte{}, f["ca.crt"]...), f["ca.crt"]...)
			return map[string][]byte{"ca.crt": ca[:len(ca)-40]}
		}, "it may be cut off"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, time.Minute, always, func(w *world, d *Followed, heard func()) {
				next := w.files(x509.Certificate{})
				certstest.InPlace(t, w.dir, broken.part(next))
				heard()
				time.Sleep(time.Second)
				if serial(d) != 1 || w.said.lines("WARN") != 0 {
					t.Errorf("serial number %d is in use, and the log is\n%s", serial(d), w.said)
				}
				certstest.InPlace(t, w.dir, next)
				time.Sleep(2 * time.Second) // and nobody has said that it has changed
				if serial(d) != 2 || w.said.lines("WARN") != 0 || w.said.lines("certificates reloaded") != 1 {
					t.Errorf("serial number %d is in use, and the log is\n%s", serial(d), w.said)
				}

				certstest.InPlace(t, w.dir, broken.part(w.files(x509.Certificate{})))
				heard()
				time.Sleep(time.Hour)
				if serial(d) != 2 || w.said.lines("WARN") != 1 || w.said.lines(broken.says) != 1 || w.said.failed.Load() != 1 {
					t.Errorf("serial number %d is in use, %d failures are counted, and the log is\n%s", serial(d), w.said.failed.Load(), w.said)
				}
				if s := d.follower.States(); len(s) != 2 || !s[0].Stale {
					t.Errorf("states %+v, want two that are stale", s)
				}
				certstest.InPlace(t, w.dir, next)
				time.Sleep(61 * time.Second)
				if w.said.lines("can be used again") != 1 || d.follower.States()[0].Stale {
					t.Errorf("states %+v, and the log is\n%s", d.follower.States(), w.said)
				}
			})
		})
	}
}

// Files that are gone leave what was read last.
func TestDeleted(t *testing.T) {
	inBubble(t, time.Minute, always, func(w *world, d *Followed, heard func()) {
		for _, name := range []string{"tls.crt", "tls.key", "ca.crt"} {
			if err := os.Remove(filepath.Join(w.dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		heard()
		time.Sleep(24 * time.Hour / 2)
		if serial(d) != 1 || w.said.lines("cannot read") != 1 || w.said.lines("upstream.tls.key: cannot read") != 1 {
			t.Errorf("serial number %d is in use, and the log is\n%s", serial(d), w.said)
		}
		certstest.Rename(t, w.dir, w.files(x509.Certificate{}))
		time.Sleep(61 * time.Second)
		if serial(d) != 2 {
			t.Error("the new files are not used")
		}
	})
}

// What cannot be used because of the time does not replace what can, until it can.
func TestTimeMakesWorse(t *testing.T) {
	inBubble(t, time.Minute, always, func(w *world, d *Followed, heard func()) {
		now := time.Now()
		certstest.Rename(t, w.dir, w.files(x509.Certificate{NotBefore: now.Add(-2 * time.Hour), NotAfter: now.Add(-time.Hour)}))
		heard()
		time.Sleep(10 * time.Second)
		if serial(d) != 1 || w.said.lines("has expired") != 1 {
			t.Errorf("serial number %d is in use, and the log is\n%s", serial(d), w.said)
		}
		certstest.Rename(t, w.dir, w.files(x509.Certificate{NotBefore: now.Add(10 * time.Minute)}))
		heard()
		time.Sleep(5 * time.Minute)
		if serial(d) != 1 || w.said.lines("is not valid yet") != 1 {
			t.Errorf("serial number %d is in use, and the log is\n%s", serial(d), w.said)
		}
		time.Sleep(6 * time.Minute)
		if serial(d) != 3 {
			t.Error("a certificate that has become valid is not used")
		}
		// One that has expired is replaced by whatever comes.
		time.Sleep(25 * time.Hour)
		now = time.Now()
		certstest.Rename(t, w.dir, w.files(x509.Certificate{NotBefore: now.Add(-2 * time.Hour), NotAfter: now.Add(-time.Hour)}))
		heard()
		if serial(d) != 4 {
			t.Errorf("serial number %d is in use, which has expired, and not what is in the files", serial(d))
		}
	})
}

// What is probably a mistake is mentioned once, and not while files change one after the
// other: a second authority of that name does not fit the old certificate for a moment.
func TestMistakesAreMentioned(t *testing.T) {
	inBubble(t, time.Minute, always, func(w *world, d *Followed, heard func()) {
		w.authority = certstest.NewAuthority(t, "test")
		next := w.files(x509.Certificate{})
		certstest.InPlace(t, w.dir, map[string][]byte{"ca.crt": next["ca.crt"]})
		heard()
		if n := len(d.Material().Authorities); n != 1 || !d.Material().Authorities[0].Equal(w.authority.Cert) {
			t.Error("the new authority is not used")
		}
		certstest.InPlace(t, w.dir, next)
		heard()
		time.Sleep(time.Hour)
		if n := w.said.lines("WARN"); n != 0 {
			t.Errorf("%d warnings:\n%s", n, w.said)
		}
		certstest.InPlace(t, w.dir, map[string][]byte{"ca.crt": certstest.NewAuthority(t, "test").PEM})
		heard()
		time.Sleep(time.Hour)
		if n := w.said.lines("is signed by another authority"); n != 1 || w.said.lines("WARN") != 1 {
			t.Errorf("%d lines of a wrong authority, want 1:\n%s", n, w.said)
		}
	})
}

// An operator is told from a third of a certificate's life before its end, each day, and
// again when it has expired, at the very time.
func TestReminders(t *testing.T) {
	const day = 24 * time.Hour
	quarter := func(now time.Time) x509.Certificate {
		return x509.Certificate{NotBefore: now, NotAfter: now.Add(90 * day)}
	}
	inBubble(t, time.Hour, quarter, func(w *world, d *Followed, heard func()) {
		// The authority would have expired long before.
		w.authority = certstest.NewAuthorityFrom(t, x509.Certificate{Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(10000 * day)})
		certstest.Rename(t, w.dir, w.files(quarter(time.Now())))
		heard()
		begin := d.Material().Leaf().NotBefore
		until := func(after time.Duration) { time.Sleep(time.Until(begin.Add(after))); synctest.Wait() }
		warnings := w.said.lines("WARN")
		until(60*day - time.Second)
		if n := w.said.lines("WARN") - warnings; n != 0 {
			t.Errorf("%d warnings before a third of its life is left:\n%s", n, w.said)
		}
		until(60 * day)
		if n := w.said.lines("upstream.tls.cert: the certificate of \\\"relay\\\""); n != 1 || w.said.lines("expires on") != 1 {
			t.Errorf("%d lines when a third of its life is left, want 1:\n%s", n, w.said)
		}
		until(70*day + time.Hour)
		if n := w.said.lines("expires on"); n != 11 {
			t.Errorf("%d reminders in ten days, want one a day, and the first:\n%s", n, w.said)
		}
		changes := w.said.changed.Load()
		until(90 * day)
		if n := w.said.lines("ERROR"); n != 0 || w.said.changed.Load() != changes {
			t.Errorf("%d errors before it has expired:\n%s", n, w.said)
		}
		until(90*day + time.Millisecond)
		if n := w.said.lines("ERROR"); n != 1 || w.said.changed.Load() == changes {
			t.Errorf("%d errors when it has expired, want 1:\n%s", n, w.said)
		}
		if _, expired := d.Expired(time.Now()); !expired {
			t.Error("it has not expired")
		}
		until(93*day + time.Hour)
		if n := w.said.lines("ERROR"); n != 4 {
			t.Errorf("%d errors three days after it has expired, want 4:\n%s", n, w.said)
		}
		certstest.Rename(t, w.dir, w.files(quarter(time.Now())))
		changes = w.said.changed.Load()
		heard()
		if _, expired := d.Expired(time.Now()); expired || w.said.changed.Load() == changes {
			t.Error("the new certificate does not end it")
		}
		time.Sleep(2 * day)
		if n := w.said.lines("ERROR"); n != 4 {
			t.Errorf("there are still reminders of the old one:\n%s", w.said)
		}
	})
}

// Other files may be followed instead, and what cannot be used changes nothing.
func TestSwitch(t *testing.T) {
	inBubble(t, time.Minute, always, func(w *world, d *Followed, heard func()) {
		first := w.dir
		w.dir = t.TempDir()
		if err := d.Switch(w.paths()); err == nil || serial(d) != 1 || d.Files().Cert != filepath.Join(first, "tls.crt") {
			t.Errorf("switched to files that are not there: %v", err)
		}
		certstest.InPlace(t, w.dir, w.files(x509.Certificate{}))
		if err := d.Switch(w.paths()); err != nil || serial(d) != 2 {
			t.Errorf("not switched: %v", err)
		}
		certstest.InPlace(t, first, w.files(x509.Certificate{}))
		time.Sleep(2 * time.Minute)
		if serial(d) != 2 {
			t.Error("the old files are still followed")
		}
		certstest.InPlace(t, w.dir, w.files(x509.Certificate{}))
		time.Sleep(2 * time.Minute)
		if serial(d) != 4 {
			t.Error("the new files are not followed")
		}
		d.Close()
		certstest.InPlace(t, w.dir, w.files(x509.Certificate{}))
		time.Sleep(2 * time.Minute)
		if serial(d) != 4 || len(d.follower.States()) != 0 {
			t.Error("the files are still followed after Close")
		}
	})
}

// TestRetryDoublesWhenItIsDue: changes that are heard of while files cannot be used do not make the wait longer.
func TestRetryDoublesWhenItIsDue(t *testing.T) {
	f := NewFollower(Options{Retry: time.Second, Poll: time.Minute})
	d, now := &Followed{follower: f}, time.Unix(1000, 0)
	for range 5 {
		f.fail(d, errors.New("no"), now)
	}
	if d.trouble.wait != time.Second {
		t.Errorf("after changes that were heard of it waits for %v", d.trouble.wait)
	}
	f.fail(d, errors.New("no"), d.trouble.again)
	if d.trouble.wait != 2*time.Second {
		t.Errorf("after a retry it waits for %v", d.trouble.wait)
	}
}
