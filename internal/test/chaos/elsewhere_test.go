//go:build linux

package chaos

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Some targets need no processes, and have their test where their code is. A plain
// go test runs them there; the long form runs them in the form that the target's
// text describes, and writes their figures down beside the others.

// elsewhere runs a test of another package and returns what it said.
func elsewhere(t *testing.T, pkg, test string, env ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "../../../"+pkg, "-count=1", "-timeout=2h", "-v", "-run=^"+test+"$")
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", test, err, text)
	}
	return string(text)
}

// line finds what a test logged about a target, and what stands in it.
func line(t *testing.T, text, pattern string) []string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no line %q in:\n%s", pattern, text)
	}
	return found
}

func onlyLong(t *testing.T) {
	t.Helper()
	if !long() {
		t.Skip("it has its test elsewhere; the long form runs that and writes its figures down")
	}
}

// R13: nobody deadlocks with a peer that does not read while it writes.
func TestR13_Deadlock(t *testing.T) {
	onlyLong(t)
	r := begin(t, "R13", "deadlock class of incident 9: 8 MiB of state, tiny windows, both sides pushing, 10 000 iterations: no stall > 1 s",
		"TestNoSendRecvDeadlock in internal/test/e2e: a control plane and a client that never read while they write")
	const rounds = "E2E_DEADLOCK_ROUNDS"
	asked := cmp.Or(os.Getenv(rounds), "1000")
	if asked != "10000" {
		r.note("%s rounds, each of which pushes 8 MiB; 10000 take an hour and a half: %s=10000 make chaos RUN=R13", asked, rounds)
	}
	text := elsewhere(t, "internal/test/e2e", "TestNoSendRecvDeadlock", rounds+"="+asked)
	found := line(t, text, `R13: (\d+) rounds of .* the longest time without a message was (\S+)`)
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	r.tell("rounds", float64(n), "")
	longest, err := time.ParseDuration(found[2])
	if err != nil {
		t.Fatal(err)
	}
	r.note("%s", strings.TrimSpace(found[0]))
	r.below("longest time without a message", seconds(longest), 1, "s")
}

// R18: a damaged snapshot is rejected whole.
func TestR18_EveryByte(t *testing.T) {
	onlyLong(t)
	r := begin(t, "R18", "snapshot: truncate at every offset and flip every byte of a 100 KiB file: 0 panics, 0 wrong resources",
		"TestSnapshot_EveryByte in internal/snapshot, in clear and sealed")
	text := elsewhere(t, "internal/snapshot", "TestSnapshot_EveryByte")
	for _, found := range regexp.MustCompile(`R18: .*`).FindAllString(text, -1) {
		r.note("%s", found)
	}
	r.holds("forms of the file (in clear, sealed)", float64(len(r.Notes)), "", "2", len(r.Notes) == 2)
	r.none("damaged files accepted, or panics", int64(strings.Count(text, "--- FAIL")))
}

// R26: a panic ends only the stream that it is met on.
func TestR26_Panic(t *testing.T) {
	onlyLong(t)
	r := begin(t, "R26", "panic injected in any handler: only that stream dies; counter +1", "TestPanic_Contained in internal/relay")
	text := elsewhere(t, "internal/relay", "TestPanic_Contained")
	handlers := regexp.MustCompile(`--- PASS: TestPanic_Contained/(\S+)`).FindAllStringSubmatch(text, -1)
	for _, h := range handlers {
		r.note("a panic in the handling of a %s: only that stream ended, and one panic was counted", h[1])
	}
	r.holds("handlers in which a panic was injected", float64(len(handlers)), "", "at least 3", len(handlers) >= 3)
	r.none("other streams that ended, or panics not counted", int64(strings.Count(text, "--- FAIL")))
}
