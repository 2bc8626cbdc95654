package preflight

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xds-relay/xds-relay/internal/config"
)

// TestOverREST: a control plane that is asked over REST is asked for what it has, and what is wrong is said.
func TestOverREST(t *testing.T) {
	const cluster = `{"resources": [{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a"}]}`
	for name, tt := range map[string]struct {
		serve http.HandlerFunc
		tls   bool
		want  string
		fails int
	}{
		"well": {func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, ":clusters") {
				_, _ = io.WriteString(w, cluster)
			} else {
				_, _ = io.WriteString(w, "{}")
			}
		}, false, "ok upstream: REST 1 CDS, 0 LDS", 0},
		"well, by TLS": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }, true, "ok upstream: REST 0 CDS, 0 LDS", 0},
		"no listeners": {func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, ":clusters") {
				_, _ = io.WriteString(w, cluster)
			} else {
				http.Error(w, "No resources found", http.StatusNotFound)
			}
		}, false, "note upstream: REST 1 CDS, LDS: POST ", 0},
		"another path": {http.NotFound, false, "some answer 404 then", 1},
		"HTML":         {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, false, "it is no xDS server at this path: see upstream.address", 1},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(tt.serve)
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			set := []string{"upstream.rest.poll=1s"}
			if tt.tls {
				server.StartTLS()
				ca := filepath.Join(t.TempDir(), "ca.pem")
				if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
					t.Fatal(err)
				}
				set = append(set, "upstream.tls.ca="+ca)
			} else {
				server.Start()
			}
			defer server.Close()
			c, err := config.Load("", append(set, "upstream.address=rest+"+server.URL))
			if err != nil {
				t.Fatal(err)
			}
			var said []string
			failed := Run(t.Context(), c, Options{}, func(r Result) { said = append(said, r.String()) })
			if all := strings.Join(said, "\n"); failed != tt.fails || !strings.Contains(strings.Join(strings.Fields(all), " "), tt.want) {
				t.Errorf("%d failed:\n%s\nwant %s", failed, all, tt.want)
			}
		})
	}
	c, err := config.Load("", []string{"upstream.address=rest+http://127.0.0.1:1/"})
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	if failed := Run(t.Context(), c, Options{}, func(r Result) { said = append(said, r.String()) }); failed != 1 {
		t.Error(fmt.Sprint(failed, " failed: ", said))
	}
}
