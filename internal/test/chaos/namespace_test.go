//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// namespace is a network of its own, with nothing in it but what the test puts
// there. It has no name, and goes with the last process that uses it. Nil stands
// for everybody's network.
type namespace struct{ file *os.File }

// ownNetwork is the network of the thread that asks.
const ownNetwork = "/proc/thread-self/ns/net"

// newNamespace makes a network, whose loopback is up. It skips the test where the
// system does not let it.
func newNamespace(t testing.TB) *namespace {
	t.Helper()
	n := &namespace{}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		var err error
		n.file, err = os.Open(ownNetwork)
		return err
	})
	if err != nil {
		t.Skipf("a network of one's own is needed, which takes root: %v", err)
	}
	t.Cleanup(func() { n.file.Close() })
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skipf("the program ip is needed, of iproute2: %v", err)
	}
	n.ip(t, "link", "set", "lo", "up")
	return n
}

// do calls a function on a thread that is in this network; what it starts is in it,
// too.
func (n *namespace) do(f func() error) error {
	if n == nil {
		return f()
	}
	return onThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter a network: %w", err)
		}
		return f()
	})
}

// onThread calls a function that changes the network of its thread, and changes it
// back. A thread for which that fails ends with its goroutine: nobody else may have
// it.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		was, err := os.Open(ownNetwork)
		if err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		defer was.Close()
		err = f()
		if back := unix.Setns(int(was.Fd()), unix.CLONE_NEWNET); back != nil {
			done <- errors.Join(err, fmt.Errorf("leave a network: %w", back))
			return
		}
		// Not before: a process that was started here dies with its thread.
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}

// path is where other programs find it, as long as the test runs.
func (n *namespace) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd()) }

// ip runs the program of this name in the network.
func (n *namespace) ip(t testing.TB, args ...string) {
	t.Helper()
	if err := n.try(args...); err != nil {
		t.Fatal(err)
	}
}

func (n *namespace) try(args ...string) error {
	var text []byte
	err := n.do(func() (err error) {
		text, err = exec.Command("ip", args...).CombinedOutput()
		return err
	})
	if err != nil {
		return fmt.Errorf("ip %q: %w\n%s", args, err, text)
	}
	return nil
}

// cable joins two networks.
type cable struct {
	t   testing.TB
	far *namespace
}

// The two sides of a cable, as each network has one. The addresses are of those that stand in examples only,
// and exist in these two networks alone.
const (
	nearLink, nearMAC, nearIP = "relay0", "02:00:00:00:00:01", "192.0.2.1"
	farLink, farMAC, farIP    = "plane0", "02:00:00:00:00:02", "192.0.2.2"
)

// newCable joins two new networks. The near side is told the far side's hardware
// address for good: were it asked for, the system would soon say that there is no
// way to the host, and the silence would be none.
func newCable(t testing.TB) (near *namespace, c *cable) {
	t.Helper()
	near = newNamespace(t)
	c = &cable{t: t, far: newNamespace(t)}
	err := near.try("link", "add", nearLink, "address", nearMAC, "type", "veth",
		"peer", "name", farLink, "address", farMAC, "netns", c.far.path())
	if err != nil {
		t.Skipf("a veth pair is needed: %v", err)
	}
	near.ip(t, "addr", "add", nearIP+"/30", "dev", nearLink)
	near.ip(t, "link", "set", nearLink, "up")
	near.ip(t, "neigh", "replace", farIP, "lladdr", farMAC, "dev", nearLink, "nud", "permanent")
	c.far.ip(t, "addr", "add", farIP+"/30", "dev", farLink)
	c.cut(false)
	return near, c
}

// cut sets the far end down: packets are lost both ways, and nobody says so.
func (c *cable) cut(on bool) {
	c.t.Helper()
	to := "up"
	if on {
		to = "down"
	}
	c.far.ip(c.t, "link", "set", farLink, to)
}
