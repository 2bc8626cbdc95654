package e2e

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/internal/test/e2e/loopback"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// javaPlane is a java-control-plane in a process of its own, on a loopback address
// of its own: io.envoyproxy.controlplane from Maven Central, with its SimpleCache.
// It can be killed and started again, and then has the snapshots that it is given.
type javaPlane struct {
	t    testing.TB
	addr string
	by   string
	// steady: what it started with has the same versions in each process. Else they
	// differ, as those of a server do that does more than this one. Set before Start.
	steady bool
	// wire is what it was asked and what it answered, all processes together.
	wire *peer.Output

	// The process that runs, if one does.
	cmd   *exec.Cmd
	in    io.WriteCloser
	done  chan struct{} // one for each command that it has obeyed; closed at its end
	reads sync.WaitGroup
}

// What chooses the snapshot of a request: there is one group, or one of each node id or
// node cluster.
const (
	byNothing     = "one"
	byNodeID      = "id"
	byNodeCluster = "cluster"
)

// javaSnapshot is all that a group of nodes is to have.
type javaSnapshot struct {
	group, version string
	resources      []proto.Message
}

// startJava serves snapshots until the test ends.
func startJava(t testing.TB, by string, snapshots ...javaSnapshot) *javaPlane {
	t.Helper()
	p := newJava(t, by)
	p.Start(snapshots...)
	return p
}

// newJava is one that does not serve yet.
func newJava(t testing.TB, by string) *javaPlane {
	t.Helper()
	buildJava(t)
	p := &javaPlane{t: t, addr: loopback.Reserve(t), by: by, wire: peer.NewOutput(t, "java-control-plane")}
	t.Cleanup(p.Kill)
	return p
}

// Start runs it with these snapshots. The caller has killed the one before.
func (p *javaPlane) Start(snapshots ...javaSnapshot) {
	p.t.Helper()
	// A small and quickly started machine: there is little to do.
	p.cmd = exec.Command("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-cp", "java/target/classes:java/target/dependency/*", "e2e.ControlPlane", p.by, strconv.FormatBool(p.steady))
	p.cmd.Stderr = p.wire
	in, err := p.cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatalf("java-control-plane: %v", err)
	}
	p.in, p.done = in, make(chan struct{})
	p.reads.Go(func() { p.listen(out, p.done) })
	for _, s := range snapshots {
		p.Snapshot(s)
	}
	_, port, _ := net.SplitHostPort(p.addr)
	p.tell("serve " + port)
}

func (p *javaPlane) listen(out io.Reader, done chan<- struct{}) {
	defer close(done)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if lines.Text() == "done" {
			done <- struct{}{}
			continue
		}
		_, _ = p.wire.Write([]byte(time.Now().Format("05.000 ") + lines.Text() + "\n"))
	}
}

// tell has it obey a line, and returns when it has: what it answered of itself to
// open streams has been said by then.
func (p *javaPlane) tell(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatalf("java-control-plane: %v", err)
	}
	if _, ok := <-p.done; !ok {
		p.t.Fatalf("java-control-plane ended at %.40q", line)
	}
}

// Snapshot gives a group what it is to have, in place of all that it had.
func (p *javaPlane) Snapshot(s javaSnapshot) {
	p.t.Helper()
	r := &discovery.DiscoveryResponse{VersionInfo: s.version}
	for _, m := range s.resources {
		r.Resources = append(r.Resources, mustAny(m))
	}
	data, err := proto.Marshal(r)
	if err != nil {
		p.t.Fatal(err)
	}
	p.tell(fmt.Sprintf("snapshot %s %s", s.group, base64.StdEncoding.EncodeToString(data)))
}

// Kill ends the process at once, as an outage does. It may be called twice.
func (p *javaPlane) Kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended by itself
	for range p.done {       // to its end
	}
	p.reads.Wait()
	_ = p.cmd.Wait() // killed
	p.cmd = nil
}

// Wire are the lines about the wire that contain every one of the parts.
func (p *javaPlane) Wire(parts ...string) []string { return p.wire.Lines(parts...) }

// javaAsked has `make e2e-java` run these tests: they need more than Go.
const javaAsked = "E2E_JAVA"

// buildJava compiles the control plane once, or skips the test where that is not
// asked for or cannot be done.
func buildJava(t testing.TB) {
	t.Helper()
	buildMaven(t, javaBuilt)
}

var (
	javaBuilt    = mavenBuild("java")
	javaXDSBuilt = mavenBuild("java-xds")
)

// buildMaven has a project built, where Java is asked for and there.
func buildMaven(t testing.TB, built func() error) {
	t.Helper()
	if os.Getenv(javaAsked) == "" {
		t.Skip("Java is not asked for: make e2e-java")
	}
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s: get a JDK of at least Java 11, and Maven (Debian: apt-get install default-jdk-headless maven)", tool)
		}
	}
	if err := built(); err != nil {
		t.Fatal(err)
	}
}

// mavenBuild compiles the project in a directory, once.
func mavenBuild(dir string) func() error {
	return sync.OnceValue(func() error {
		cmd := exec.Command("mvn", "-q", "-B", "process-classes")
		cmd.Dir = dir
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s (what is not in the local repository yet comes from Maven Central): %w\n%s", dir, err, text)
		}
		return nil
	})
}
