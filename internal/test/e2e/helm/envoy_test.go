package helm

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/xds-relay/xds-relay/internal/test/e2e/loopback"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// says complains until a URL answers with 200 and a text.
func says(url, text string) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || !strings.Contains(string(body), text)) {
		err = fmt.Errorf("%s answers %d %.200q, want %q", url, resp.StatusCode, body, text)
	}
	return err
}

func portOf(t testing.TB, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// startPlane starts the control plane of the quickstart.
func startPlane(t testing.TB, xds string) {
	t.Helper()
	plane := filepath.Join(t.TempDir(), "controlplane")
	if text, err := exec.Command("go", "build", "-C", root, "-o", plane, "./deploy/examples/quickstart/controlplane").CombinedOutput(); err != nil {
		t.Fatalf("build the control plane: %v\n%s", err, text)
	}
	peer.Start(t, exec.Command(plane, "-listen", xds, "-web", loopback.Reserve(t), "-backend", loopback.Reserve(t)))
}

// TestSidecar: the sidecar's pod, all of it, below the control plane of the quickstart: the relay starts first, Envoy
// with the rendered arguments and bootstrap after it, takes its listener through the socket, answers its readiness
// probe, and ends before the relay.
func TestSidecar(t *testing.T) {
	t.Parallel()
	envoy := realenvoy.Need(t)
	xds := loopback.Reserve(t)
	startPlane(t, xds)
	p := newPod(t, render(t, values(t, "sidecar", "{config: {upstream: {address: '"+xds+"'}}, tls: {upstream: {secretName: ''}}}")))
	p.start()

	admin, ready := loopback.Reserve(t), loopback.Reserve(t)
	c := container(t, p.spec, "envoy")
	var bootstrap string
	for _, m := range c.VolumeMounts {
		if m.Name == "xds-relay-envoy" {
			bootstrap = p.here().Replace(m.MountPath)
		}
	}
	local := p.here().Replace(configMap(t, p.r, "xds-relay-envoy").Data["envoy.yaml"])
	for was, is := range map[string]string{
		"address: 127.0.0.1, port_value: 19000":               "address: 127.0.0.1, port_value: " + portOf(t, admin),
		`address: "::", port_value: 19003, ipv4_compat: true`: "address: 127.0.0.1, port_value: " + portOf(t, ready),
	} {
		if !strings.Contains(local, was) {
			t.Fatalf("the bootstrap has no %s any more", was)
		}
		local = strings.ReplaceAll(local, was, is)
	}
	volume{0o644, map[string]string{"envoy.yaml": local}}.mount(t, bootstrap, int(*p.spec.SecurityContext.FSGroup))
	args := []string{"--concurrency", "1"}
	vars := strings.NewReplacer("$(POD_NAME)", environment["POD_NAME"], "$(POD_NAMESPACE)", environment["POD_NAMESPACE"])
	for _, a := range c.Args {
		args = append(args, vars.Replace(p.here().Replace(a)))
	}
	e := peer.Start(t, exec.Command(envoy, args...))
	at := realenvoy.Attach(admin)
	peer.Eventually(t, patience, func() error {
		if e.Gone() {
			t.Fatalf("Envoy has ended: %v\n%s", e.Ended(), e.Output)
		}
		return says("http://"+ready+c.ReadinessProbe.HTTPGet.Path, "LIVE")
	})
	if err := says("http://"+ready+"/stats", ""); err == nil {
		t.Error("the port of the probe shows more than the probe")
	}
	var listener string
	peer.Eventually(t, patience, func() (err error) { listener, err = at.Address("web"); return err })
	peer.Eventually(t, patience, func() error { return says("http://"+listener, "hello from the backend") })
	for _, text := range []string{environment["POD_NAME"] + "." + namespace, "delta"} {
		if err := says("http://"+p.AdminAddr+"/clients", text); err != nil {
			t.Error(err)
		}
	}
	e.Stop()
	begin := time.Now()
	p.Stop()
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("without its Envoy the relay takes %v to end", took)
	}
}

func configMap(t testing.TB, r rendering, name string) *core.ConfigMap {
	t.Helper()
	for _, m := range all[*core.ConfigMap](r) {
		if m.Name == name {
			return m
		}
	}
	t.Fatalf("there is no ConfigMap %s", name)
	return nil
}
