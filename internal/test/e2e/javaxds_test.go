package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/loopback"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// javaApp is an application in a process of its own that uses grpc-java's xDS, as a
// client or as a server (java-xds). What it needs to know is in its environment.
type javaApp struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser

	mu    sync.Mutex
	lines []string // on standard output
}

func startJavaApp(t testing.TB, target, node string, args ...string) *javaApp {
	t.Helper()
	a := &javaApp{t: t}
	a.cmd = exec.Command("java", append([]string{
		"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", "java-xds/target/classes:java-xds/target/dependency/*", "e2e.XdsApp",
	}, args...)...)
	a.cmd.Env = append(os.Environ(), "GRPC_XDS_BOOTSTRAP_CONFIG="+string(bootstrap(target, node)))
	a.cmd.Stderr = peer.NewOutput(t, "grpc-java")
	in, err := a.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		t.Fatalf("grpc-java: %v", err)
	}
	a.in = in
	var reading sync.WaitGroup
	reading.Go(func() { a.read(out) })
	t.Cleanup(func() {
		_ = a.cmd.Process.Kill() // it may have ended by itself
		reading.Wait()
		_ = a.cmd.Wait() // killed
		if t.Failed() {
			t.Logf("grpc-java %v said %q", args, a.Said())
		}
	})
	return a
}

func (a *javaApp) read(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		a.mu.Lock()
		a.lines = append(a.lines, lines.Text())
		a.mu.Unlock()
	}
}

// Said are the lines that it has written.
func (a *javaApp) Said() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.lines)
}

// ask has a client obey, and returns its answer.
func (a *javaApp) ask(command string) (answer string) {
	a.t.Helper()
	before := len(a.Said())
	if _, err := io.WriteString(a.in, command+"\n"); err != nil {
		a.t.Fatalf("grpc-java: %v", err)
	}
	eventually(a.t, 2*patience, func() error {
		said := a.Said()
		if len(said) == before {
			return fmt.Errorf("no answer to %q", command)
		}
		answer = said[before]
		return nil
	})
	return answer
}

// Finds complains unless a call is answered by a server, soon.
func (a *javaApp) Finds(name string) error {
	return is("call answered", a.ask("call 1000"), "ok "+name)
}

// Fails complains unless a call fails with a code.
func (a *javaApp) Fails(code codes.Code) error {
	if answer := a.ask("call 1000"); !strings.Contains(answer, "failed") || !strings.Contains(answer, strings.ToUpper(code.String())) {
		return fmt.Errorf("a call was answered %q, not with %v", answer, code)
	}
	return nil
}

// javaCount is how many calls of a load have ended, and how.
type javaCount struct {
	by     map[string]int // who answered
	failed int
	text   string
}

func (a *javaApp) count() javaCount {
	a.t.Helper()
	c := javaCount{by: make(map[string]int), text: a.ask("count")}
	for _, field := range strings.Fields(c.text) {
		name, n, ok := strings.Cut(field, "=")
		count, err := strconv.Atoi(n)
		if !ok || err != nil {
			break // the first failure begins
		}
		if c.by[name] = count; name == "failed" {
			c.failed = count
			break
		}
	}
	return c
}

// turnsTo waits until the load goes to a server, and complains of calls that failed on
// the way since the load was as before.
func (a *javaApp) turnsTo(name string, before javaCount) error {
	enough := before.by[name] + 20
	var now javaCount
	eventually(a.t, 2*patience, func() error {
		if now = a.count(); now.by[name] < enough {
			return fmt.Errorf("%s has answered %d of %d calls: %s", name, now.by[name], enough, now.text)
		}
		return nil
	})
	if now.failed > before.failed {
		return fmt.Errorf("calls failed on the way to %s: %s", name, now.text)
	}
	return nil
}

// Serves complains unless the last that a server said is that it serves.
func (a *javaApp) Serves() error {
	if said := a.Said(); len(said) == 0 || said[len(said)-1] != "serving" {
		return fmt.Errorf("the server said %q", said)
	}
	return nil
}

// listenAll is where grpc-java's server listens: it knows no other address.
const listenAll = "0.0.0.0:"

// grpc-java's own xDS client calls grpc-java's own xDS server, and both have it from the
// control plane through a relay: they boot; endpoints, and routes to clusters that are
// new, change under load without a failed call; a missing cluster comes; the relay is
// restarted and the control plane killed, and nobody notices. The same without a
// relay, except for what only a relay can do.
func TestJava_XDS(t *testing.T) {
	t.Parallel()
	buildMaven(t, javaXDSBuilt)
	for _, path := range javaPaths[:2] {
		t.Run(path.name, func(t *testing.T) { // one at a time: each is two JVMs
			w := newLinear(t)
			cp := startControlPlane(t, w.Mux())
			target := cp.addr
			restart := func() {}
			if path.relayed {
				target = loopback.Reserve(t)
				var r *relayed
				restart = func() {
					if r != nil {
						r.Close(0)
					}
					r = startRelayAt(t, target, cp.addr)
				}
				restart()
			}
			playJavaXDS(t, w, cp, target, path.relayed, restart)
		})
	}
}

func playJavaXDS(t *testing.T, w *linear, cp *controlPlane, target string, relayed bool, restart func()) {
	javaAddr := loopback.Reserve(t)
	_, port, _ := net.SplitHostPort(javaAddr)
	green := startBackend(t, "green")

	// The server waits for its listener, and the client for everything.
	server := startJavaApp(t, target, "server", "server", port, "java")
	client := startJavaApp(t, target, "client", "client", "xds:///shop")
	listenerName := serverListenerPrefix + listenAll + port
	if relayed { // the control plane counts what is asked of it in Delta
		eventually(t, 2*patience, func() error { return cp.subscribes(cache.Listener, listenerName) })
	}
	w.Set(cache.Route, "server-route", serverRoutes("server-route"))
	w.Set(cache.Listener, listenerName, serverListener(listenerName, listenAll+port, "server-route"))
	w.service("shop", javaAddr)
	eventually(t, 2*patience, server.Serves)
	eventually(t, 2*patience, func() error { return client.Finds("java") })

	client.ask("load 100")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	move := func(name string, address string, revision int) {
		t.Helper()
		before := client.count()
		w.Set(cache.Endpoint, "shop-cluster", endpoints("shop-cluster", revision, address))
		must(client.turnsTo(name, before))
	}
	must(client.turnsTo("java", client.count()))
	move("green", green, 2)
	move("java", javaAddr, 3)

	// A route turns to a cluster that is new, ten times.
	for i := range 10 {
		name, address := "java", javaAddr
		if i%2 == 0 {
			name, address = "green", green
		}
		turn := fmt.Sprintf("turn-%d", i)
		before := client.count()
		w.Set(cache.Endpoint, turn, endpoints(turn, 1, address))
		w.Set(cache.Cluster, turn, edsCluster(turn, 1))
		w.Set(cache.Route, "shop-route", routeTo("shop-route", 2+i, turn))
		must(client.turnsTo(name, before))
	}
	w.Set(cache.Route, "shop-route", routeTo("shop-route", 20, "shop-cluster"))
	must(client.turnsTo("java", client.count()))

	// The control plane is killed: nobody notices, and a relay has a newcomer served.
	before := client.count()
	cp.Stop()
	wait(2 * time.Second)
	must(client.turnsTo("java", before))
	if relayed {
		newcomer := startJavaApp(t, target, "newcomer", "client", "xds:///shop")
		eventually(t, 2*patience, func() error { return newcomer.Finds("java") })
	}
	cp.Start()
	move("green", green, 4)
	move("java", javaAddr, 5)

	// The relay is restarted.
	before = client.count()
	restart()
	must(client.turnsTo("java", before))
	move("green", green, 6)
	move("java", javaAddr, 7)

	// A cluster is missing, and comes.
	w.Set(cache.Route, "shop-route", routeTo("shop-route", 21, "late"))
	eventually(t, 2*patience, func() error { return client.Fails(codes.Unavailable) })
	w.Set(cache.Endpoint, "late", endpoints("late", 1, green))
	w.Set(cache.Cluster, "late", edsCluster("late", 1))
	eventually(t, 2*patience, func() error { return client.Finds("green") })

	// The server loses its listener, and has it again.
	if err := server.Serves(); err != nil {
		t.Error(err)
	}
	w.Delete(cache.Listener, listenerName)
	eventually(t, 2*patience, func() error {
		if server.Serves() == nil {
			return errStillServes
		}
		return nil
	})
	w.Set(cache.Listener, listenerName, serverListener(listenerName, listenAll+port, "server-route"))
	eventually(t, 2*patience, server.Serves)
	if relayed {
		must(cp.deltaADSOnly())
	}
	t.Logf("the load: %s", client.count().text)
}
