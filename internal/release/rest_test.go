package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// static is the relay for this platform, as a release has it.
func static(t *testing.T) string {
	t.Helper()
	relay := filepath.Join(t.TempDir(), "xds-relay")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", relay, "./cmd/xds-relay")
	build.Dir, build.Env = checkout, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return relay
}

// TestAtRest: how large the program is, when it is ready after its start, and what memory it takes without clients and without
// a control plane. The limits are far away; the figures are in docs/operations.md.
func TestAtRest(t *testing.T) {
	if testing.Short() || runtime.GOOS != "linux" {
		t.Skip("make test-release measures it, on Linux")
	}
	relay := static(t)
	info, err := os.Stat(relay)
	if err != nil {
		t.Fatal(err)
	}
	var starts []time.Duration
	var resident, own []int
	for range 11 {
		took, all, anonymous := atRest(t, relay)
		starts, resident, own = append(starts, took), append(resident, all), append(own, anonymous)
	}
	slices.Sort(starts)
	slices.Sort(resident)
	slices.Sort(own)
	t.Logf("%d bytes; ready after %v (%v to %v); %.1f MiB resident, of these %.1f MiB not of the file", info.Size(),
		starts[5].Round(time.Millisecond), starts[0].Round(time.Millisecond), starts[10].Round(time.Millisecond), float64(resident[5])/1024, float64(own[5])/1024)
	if info.Size() > 40<<20 || starts[5] > time.Second || resident[5] > 64<<10 {
		t.Error("that is much more than it was")
	}
}

// atRest starts a relay, and says when it was ready and, 2 s later, its memory in KiB.
func atRest(t *testing.T, relay string) (took time.Duration, resident, own int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	admin := l.Addr().String()
	l.Close()
	cmd := exec.Command(relay, "serve", "--upstream", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--admin", admin)
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGKILL) // it holds nothing
		_ = cmd.Wait()
	}()
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for ready := false; !ready; time.Sleep(time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatal("it is not ready")
		}
		if r, err := client.Get("http://" + admin + "/readyz"); err == nil {
			r.Body.Close()
			ready = r.StatusCode == http.StatusOK
		}
		took = time.Since(begin)
	}
	time.Sleep(2 * time.Second)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	kib := func(name string) int {
		found := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(status)
		if found == nil {
			t.Fatalf("no %s in\n%s", name, status)
		}
		n, _ := strconv.Atoi(string(found[1]))
		return n
	}
	return took, kib("VmRSS"), kib("RssAnon")
}
