package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// TestValidate_Files: the files that are served are read, too; notes about them are mistakes with --strict. No value is
// quoted that cannot be read, since it may be a secret.
func TestValidate_Files(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "c.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const head = "resources:\n- \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\n  name: a\n"
	for _, c := range []struct {
		text string
		args []string
		code int
		want []string
	}{
		{head, nil, 0, []string{"upstream: " + dir + ": 1 files, 1 types, 1 resources", "the configuration is valid"}},
		{head + "  type: EDS\n", nil, 0, []string{"note: " + dir + "/c.yaml:2:3: \"a\" is a cluster of type EDS, and there is no ClusterLoadAssignment \"a\"", "the configuration is valid"}},
		{head + "  type: EDS\n", []string{"--strict"}, exitUsage, []string{"1 notes about files, which --strict takes for mistakes"}},
		{head + "  typ: EDS\n", nil, exitUsage, []string{"upstream.address: " + dir + "/c.yaml:4:3: unknown field \"typ\""}},
		{"resources:\n- \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret\n  generic_secret: {secret: {inline_bytes: \"canary!\"}}\n", nil, exitUsage, []string{"upstream.address: " + dir + "/c.yaml:3:43: invalid value for bytes field inlineBytes\n"}},
	} {
		write(c.text)
		var out bytes.Buffer
		code := execute(append([]string{"validate", "--from", dir}, c.args...), &out, &out)
		for _, want := range c.want {
			if code != c.code || !strings.Contains(strings.ReplaceAll(out.String(), "\u00a0", " "), want) || strings.Contains(out.String(), "canary") {
				t.Errorf("%v: %d, %s\nhas not\n%s", c.args, code, out.String(), want)
			}
		}
	}
	var out bytes.Buffer
	if code := execute([]string{"validate", "--from", dir, "--upstream", "127.0.0.1:1"}, &out, &out); code != exitUsage || !strings.Contains(out.String(), "--from and --upstream both name upstream.address") {
		t.Errorf("%d, %s", code, out.String())
	}
	out.Reset()
	write(head)
	if code := execute([]string{"check", "--from", dir}, &out, &out); code != 0 || !strings.Contains(out.String(), "upstream: files                  "+dir+": 1 Cluster") {
		t.Errorf("%d, %s", code, out.String())
	}
}

// TestServe_From: the program serves a directory, and its metrics count the loads.
func TestServe_From(t *testing.T) {
	dir := t.TempDir()
	const text = "resources:\n- \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\n  name: a\n"
	if err := os.WriteFile(filepath.Join(dir, "c.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serveProgram(t, "--from", dir)
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&discovery.DiscoveryRequest{TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster"}); err != nil {
		t.Fatal(err)
	}
	got, err := stream.Recv()
	if err != nil || len(got.GetResources()) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	resp, err := http.Get(s.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	metrics, err := io.ReadAll(resp.Body)
	for _, want := range []string{"xds_relay_files_loads_total{result=\"ok\"} 1\n", "xds_relay_files_last_load_successful 1\n"} {
		if err != nil || !strings.Contains(string(metrics), want) {
			t.Errorf("there is no %s (%v)", want, err)
		}
	}
}
