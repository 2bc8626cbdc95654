package helm

import (
	"context"
	"crypto/tls"
	"errors"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	core3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	core "k8s.io/api/core/v1"

	"github.com/xds-relay/xds-relay/internal/test/e2e/loopback"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// patience is how long anything may take on a busy machine.
const patience = time.Minute

// pod is a relay that runs as the container of a rendering: with its arguments, variables and volumes, and, if the test
// is run by root, as its user. Only where its files are, and what it listens on, is the test's.
type pod struct {
	t    testing.TB
	r    rendering
	spec core.PodSpec
	dir  string // short, for the name of a socket may have 107 bytes
	pki  *authority
	// Addr, AdminAddr and Metrics are where the relay listens; Addr is the path of a socket for a sidecar.
	Addr, AdminAddr, Metrics string
	*peer.Process
}

// newPod has the volumes of the only pod of a rendering, and runs nothing yet.
func newPod(t testing.TB, r rendering) *pod {
	t.Helper()
	dir, err := os.MkdirTemp("", "pod")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // the relay runs as another user
		t.Fatal(err)
	}
	p := &pod{t: t, r: r, spec: workloads(r)[0].Pod.Spec, dir: dir, pki: newAuthority(t), AdminAddr: loopback.Reserve(t), Metrics: loopback.Reserve(t)}
	p.mount()
	return p
}

// paths are directories of the relay's container, and where they are here.
func (p *pod) here() *strings.Replacer {
	return strings.NewReplacer(
		"/etc/xds-relay", filepath.Join(p.dir, "config"), "/etc/envoy", filepath.Join(p.dir, "envoy"), "/etc/ssl/other", filepath.Join(p.dir, "other"),
		"/var/run/xds-relay", filepath.Join(p.dir, "tls"), "/var/lib/xds-relay", filepath.Join(p.dir, "lib"), "/run/xds-relay", filepath.Join(p.dir, "run"))
}

// mount fills the volumes of all containers, again if the rendering is another one.
func (p *pod) mount() {
	p.t.Helper()
	data := map[string]map[string]string{}
	for _, m := range all[*core.ConfigMap](p.r) {
		data[m.Name] = map[string]string{}
		for key, text := range m.Data {
			data[m.Name][key] = p.here().Replace(text)
		}
	}
	volumes := map[string]volume{} // those of claims have no more than their names
	for _, v := range p.spec.Volumes {
		is := volume{mode: 0o644, data: map[string]string{}}
		switch {
		case v.EmptyDir != nil:
			is = volume{}
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				for _, item := range s.ConfigMap.Items {
					is.data[item.Path] = data[s.ConfigMap.Name][item.Key]
				}
			}
		case v.ConfigMap != nil:
			is.data = data[v.ConfigMap.Name]
		case v.Secret != nil:
			is.data, _ = p.pki.secret("xds-relay-headless.relay-system.svc")
			if v.Secret.DefaultMode != nil {
				is.mode = os.FileMode(*v.Secret.DefaultMode)
			}
		default:
			p.t.Fatalf("no test knows the volume %v", v)
		}
		volumes[v.Name] = is
	}
	for _, c := range containers(p.spec) {
		for _, m := range c.VolumeMounts {
			dir := p.here().Replace(m.MountPath)
			if !strings.HasPrefix(dir, p.dir) {
				p.t.Fatalf("no test knows the directory %s", dir)
			}
			volumes[m.Name].mount(p.t, dir, int(*p.spec.SecurityContext.FSGroup))
		}
	}
}

// start starts the relay, and waits until its startup probe would succeed.
func (p *pod) start() {
	p.t.Helper()
	c := container(p.t, p.spec, "xds-relay")
	args := []string{}
	for _, a := range c.Args {
		args = append(args, p.here().Replace(a))
	}
	_, config := relayConfig(p.t, p.r)
	p.Addr = filepath.Join(p.dir, "run", "xds.sock")
	if at := config.Downstream.Listen[0]; !strings.HasPrefix(at, "unix:") {
		p.Addr = loopback.Reserve(p.t)
		args = append(args, "--listen", p.Addr)
	}
	args = append(args, "--admin", p.AdminAddr, "--set", "metrics.listen="+p.Metrics)
	binary := filepath.Join(p.dir, "xds-relay")
	if text, err := os.ReadFile(peer.Binary(p.t)); err != nil {
		p.t.Fatal(err)
	} else if err := os.WriteFile(binary, text, 0o755); err != nil { //nolint:gosec // the relay runs as another user
		p.t.Fatal(err)
	}
	cmd := exec.Command(binary, args...)
	cmd.Env = os.Environ()
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
		} else if environment[e.Name] == "" {
			p.t.Fatalf("no test knows the variable %s", e.Name)
		}
	}
	p.Process = peer.StartBy(p.t, cmd, func(start func() error) error {
		if os.Getuid() == 0 {
			cmd.SysProcAttr.Credential = &syscall.Credential{
				Uid: uint32(*c.SecurityContext.RunAsUser), Gid: uint32(*c.SecurityContext.RunAsGroup), Groups: []uint32{uint32(*p.spec.SecurityContext.FSGroup)},
			}
		}
		return start()
	})
	peer.Eventually(p.t, patience, func() error {
		if p.Gone() {
			p.t.Fatalf("the relay has ended: %v\n%s", p.Ended(), p.Output)
		}
		return p.probe(c.StartupProbe)
	})
}

// probe asks as a kubelet would.
func (p *pod) probe(probe *core.Probe) error {
	return says("http://"+p.Metrics+probe.HTTPGet.Path, "")
}

// TestRelayStarts: the real relay starts with the configuration of each rendering, answers all probes, and, told to end,
// ends with 0 within its grace period, of which all but the drain is left.
func TestRelayStarts(t *testing.T) {
	for _, name := range cases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := render(t, values(t, name))
			if len(workloads(r)) == 0 {
				text, _ := relayConfig(t, r)
				dir := t.TempDir()
				file := filepath.Join(dir, "relay.yaml")
				text = strings.NewReplacer("/var/lib/xds-relay", filepath.Join(dir, "lib"), "/run/xds-relay", filepath.Join(dir, "run")).Replace(text)
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				if said, err := exec.Command(peer.Binary(t), "validate", "-c", file).CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, said)
				}
				return
			}
			p := newPod(t, r)
			p.start()
			c := container(t, p.spec, "xds-relay")
			for _, probe := range []*core.Probe{c.LivenessProbe, c.ReadinessProbe} {
				if probe != nil {
					peer.Eventually(t, patience, func() error { return p.probe(probe) })
				}
			}
			// The test pod asks the same through the Service.
			for _, pod := range hooks(r) {
				args := slices.Clone(pod.Spec.Containers[0].Args)
				args[len(args)-1] = p.Metrics
				if said, err := exec.Command(peer.Binary(t), args...).CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, said)
				}
			}
			begin := time.Now()
			p.Stop()
			if code := p.ProcessState.ExitCode(); code != 0 {
				t.Errorf("it ends with %d", code)
			}
			if took, limit := time.Since(begin), time.Duration(*p.spec.TerminationGracePeriodSeconds)*time.Second; took > limit {
				t.Errorf("it takes %v to end, a kubelet kills it after %v", took, limit)
			}
			if _, config := relayConfig(t, r); config.Cache.Snapshot.Dir != "" {
				if files, err := os.ReadDir(p.here().Replace(config.Cache.Snapshot.Dir)); err != nil || len(files) == 0 {
					t.Errorf("the relay does not use the directory of its snapshot: %v", err)
				}
			}
		})
	}
}

// TestReadyTypes: a new pod of a tier whose control plane is away has started, so that no kubelet starts it again, and is
// not ready, so that a rollout waits, until it has what ready_types names.
func TestReadyTypes(t *testing.T) {
	t.Parallel()
	xds := loopback.Reserve(t)
	p := newPod(t, render(t, values(t, "plain", "config: {upstream: {address: '"+xds+"'}, downstream: {ready_types: [CDS, LDS]}}")))
	p.start()
	c := container(t, p.spec, "xds-relay")
	peer.Throughout(t, 3*time.Second, func() error {
		if p.probe(c.ReadinessProbe) == nil {
			return errors.New("it is ready without its control plane")
		}
		return p.probe(c.LivenessProbe)
	})
	startPlane(t, xds)
	peer.Eventually(t, patience, func() error { return p.probe(c.ReadinessProbe) })
}

// TestRotation: a Secret that cert-manager renews, and ConfigMaps that Helm changes, hold in the relay that runs.
func TestRotation(t *testing.T) {
	t.Parallel()
	with := func(over string) rendering {
		return render(t, values(t, "deployment", "policy: {rules: [{identity: 'dns:envoy', read: [{types: [CDS], names: ['*']}]}]}", over))
	}
	p := newPod(t, with("{}"))
	p.start()
	var old *big.Int
	served := func() (*big.Int, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		d := tls.Dialer{NetDialer: &net.Dialer{}, Config: p.pki.client("xds-relay-headless.relay-system.svc")}
		conn, err := d.DialContext(ctx, "tcp", p.Addr)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber, nil
	}
	peer.Eventually(t, patience, func() (err error) { old, err = served(); return err })
	p.mount() // with new certificates
	peer.Eventually(t, patience, func() error {
		is, err := served()
		if err == nil && is.Cmp(old) == 0 {
			err = errors.New("it still has the old certificate")
		}
		return err
	})

	ended := stream(t, p.Addr, p.pki.client("xds-relay-headless.relay-system.svc"))
	peer.Eventually(t, patience, func() error { return says("http://"+p.AdminAddr+"/clients", "dns:envoy") })
	p.r = with("{config: {log: {level: debug}}, policy: {rules: [{identity: 'dns:other', read: [{types: [LDS], names: ['*']}]}]}}")
	p.mount()
	peer.Eventually(t, patience, func() error { return says("http://"+p.AdminAddr+"/logging", "debug") })
	peer.Eventually(t, patience, func() error { return says("http://"+p.Metrics+"/metrics", "xds_relay_config_last_reload_successful 1") })
	select {
	case err := <-ended:
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("the stream of whom no rule admits any more ends with %v", err)
		}
	case <-time.After(patience):
		t.Error("a client that no rule admits any more keeps its stream")
	}
}

// stream is a client's first request for clusters, and what its stream ends with.
func stream(t testing.TB, address string, as *tls.Config) (ended chan error) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(as)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(context.Background())
	if err == nil {
		err = s.Send(&discovery.DeltaDiscoveryRequest{Node: &core3.Node{Id: "envoy"}, TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster"})
	}
	if err != nil {
		t.Fatal(err)
	}
	ended = make(chan error, 1)
	go func() {
		for {
			if _, err := s.Recv(); err != nil {
				ended <- err
				return
			}
		}
	}()
	return ended
}
