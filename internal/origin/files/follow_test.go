package files

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// followed is a path that is followed, with what became of it.
type followed struct {
	t    *testing.T
	path string

	mu     sync.Mutex
	loads  int
	failed int
	latest *Set
	text   bytes.Buffer // the log
}

// Write implements io.Writer, for the log.
func (f *followed) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text.Write(p)
}

func (f *followed) FilesLoaded(_ string, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !ok {
		f.failed++
	}
}

// start follows a path until the test ends.
func start(t *testing.T, path string, set func(*Follow)) *followed {
	t.Helper()
	f := &followed{t: t, path: path}
	follow := Follow{Options: options(), Log: slog.New(slog.NewTextHandler(f, nil)), Observer: f, Loaded: func(s *Set) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.loads, f.latest = f.loads+1, s
	}}
	if set != nil {
		set(&follow)
	}
	s, err := Open(path, follow)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { s.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		run.Wait()
	})
	return f
}

// await waits until such is true.
func (f *followed) await(what string, such func() bool) {
	f.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		f.mu.Lock()
		is := such()
		f.mu.Unlock()
		if is {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("in vain: %s; %d loads, %d failed; %s", what, f.loads, f.failed, f.text.String())
		}
		<-time.After(time.Millisecond)
	}
}

// still fails the test if there is another load within three times the time in which changes are gathered.
func (f *followed) still(what string) {
	f.t.Helper()
	f.mu.Lock()
	before := f.loads + f.failed
	f.mu.Unlock()
	<-time.After(3 * coalesce)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loads+f.failed != before {
		f.t.Errorf("%s is a load", what)
	}
}

func (f *followed) has(name string) func() bool {
	return func() bool { return f.latest.Resources[cache.Cluster][name].Resource != nil }
}

func named(name string) string { return strings.Replace(clusterYAML, "name: a", "name: "+name, 1) }

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// TestRename: a file that is renamed into place is loaded, several within 100 ms at once, and none that is written in
// place (FS-3, FS-4). One that is wrong changes nothing, and is one line of the log (FS-5).
func TestRename(t *testing.T) {
	dir := write(t, map[string]string{"a.yaml": named("a")})
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	f := start(t, dir, nil)
	put(t, a, named("a2"))
	put(t, b, named("b"))
	f.await("two files that were renamed into place", func() bool { return f.has("a2")() && f.has("b")() })
	if f.loads != 2 {
		t.Errorf("there were %d loads, of which the first was at the start", f.loads)
	}

	if err := os.WriteFile(a, []byte(named("a3")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "c.yaml"), []byte("resources: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	f.still("a file that is written in place")
	os.Remove(filepath.Join(dir, "c.yaml"))

	put(t, b, "wrong: 1\n")
	f.await("a mistake", func() bool { return f.failed == 1 })
	f.still("nothing")
	if n := strings.Count(f.text.String(), "level=WARN"); n != 1 || !strings.Contains(f.text.String(), b+`:1:1: unknown field \"wrong\"`) {
		t.Errorf("there are %d warnings: %s", n, f.text.String())
	}
	if !f.has("b")() {
		t.Error("a mistake has taken something away")
	}
	put(t, b, named("b2"))
	f.await("the correction", f.has("b2"))

	if err := os.Remove(b); err != nil {
		t.Fatal(err)
	}
	f.still("a file that is removed")
	put(t, a, named("a4"))
	f.await("the next load", func() bool { return f.has("a4")() && !f.has("b2")() })
}

// TestInPlace: with reload_on_close_write a file is loaded when it is closed, and not before.
func TestInPlace(t *testing.T) {
	dir := write(t, map[string]string{"a.yaml": named("a")})
	f := start(t, dir, func(o *Follow) { o.InPlace = true })
	file, err := os.OpenFile(filepath.Join(dir, "a.yaml"), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	half := named("b")[:40]
	fmt.Fprint(file, half)
	f.still("half of a file")
	fmt.Fprint(file, named("b")[40:])
	file.Close()
	f.await("the file that was closed", f.has("b"))
	if f.failed > 0 {
		t.Errorf("%d loads failed", f.failed)
	}
}

// TestSwap: one swap of Kubernetes' ..data link is one load, whatever it changes, and no load sees two versions.
func TestSwap(t *testing.T) {
	dir := t.TempDir()
	version := func(n int) {
		to := fmt.Sprintf("..%d", n)
		if err := os.Mkdir(filepath.Join(dir, to), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a.yaml", "b.yaml"} {
			if err := os.WriteFile(filepath.Join(dir, to, name), []byte(named(fmt.Sprint(name[:1], n))), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(to, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
		os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..%d", n-1)))
	}
	version(1)
	for _, name := range []string{"a.yaml", "b.yaml"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	f := start(t, dir, nil)
	for n := 2; n < 6; n++ {
		version(n)
		f.await("a swap", func() bool {
			return f.has(fmt.Sprint("a", n))() && f.has(fmt.Sprint("b", n))() && f.latest.Count() == 2
		})
		f.still("nothing")
		if f.loads != n || f.failed > 0 {
			t.Fatalf("after %d versions there were %d loads, and %d failed", n, f.loads, f.failed)
		}
	}
}

// TestLinkedDirectory: the path itself may be a link, and its target may change.
func TestLinkedDirectory(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "xds")
	point := func(to string) {
		os.Remove(link + ".new")
		if err := os.Symlink(to, link+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link+".new", link); err != nil {
			t.Fatal(err)
		}
	}
	point(write(t, map[string]string{"a.yaml": named("a")}))
	f := start(t, link, nil)
	two := write(t, map[string]string{"a.yaml": named("b")})
	point(two)
	f.await("another target", f.has("b"))
	put(t, filepath.Join(two, "a.yaml"), named("c"))
	f.await("a change in it", f.has("c"))
}

// TestPoll: without reports a change is seen at the next look, once it is old enough to be complete (FS-10).
func TestPoll(t *testing.T) {
	dir := write(t, map[string]string{"a.yaml": named("a")})
	f := start(t, dir, func(o *Follow) { o.NoNotify, o.Poll = true, 10*time.Millisecond })
	put(t, filepath.Join(dir, "a.yaml"), named("b"))
	f.still("a file that was just written")
	old := time.Now().Add(-still)
	if err := os.Chtimes(filepath.Join(dir, "a.yaml"), old, old); err != nil {
		t.Fatal(err)
	}
	f.await("the next look", f.has("b"))
}
