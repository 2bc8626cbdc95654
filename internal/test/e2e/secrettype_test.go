package e2e

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/xds-relay/xds-relay/internal/admin"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/relay"
	"github.com/xds-relay/xds-relay/internal/tracing"
)

// kept are the spans that were exported, also after the end.
type kept struct{ *tracetest.InMemoryExporter }

func (kept) Shutdown(context.Context) error { return nil }

// A type that the configuration makes secret is kept as Secrets are: each client has its own, and neither the admin
// endpoint, nor the log, nor traces, nor the disk show what is in it or a version of it (NODE-6, RECON-1, T9).
func TestTypeMadeSecret(t *testing.T) {
	t.Parallel()
	const canary = "canary-private-key"
	w := newLinear(t, unknownType)
	w.Set(unknownType, "thing", raw(append([]byte{0x0a, 0x05, 't', 'h', 'i', 'n', 'g', 0x12, byte(len(canary))}, canary...)))
	for _, secret := range []string{"true", "false"} {
		t.Run(secret, func(t *testing.T) {
			t.Parallel()
			cp := startControlPlane(t, w.Mux())
			state := filepath.Join(t.TempDir(), "state")
			c, err := config.Load("", []string{
				"upstream.address=" + cp.addr, "cache.snapshot.dir=" + state, `types=[{"type_url":"` + string(unknownType) + `","secret":` + secret + `}]`,
			})
			if err != nil {
				t.Fatal(err)
			}
			log, spans, metrics := newLog(t), kept{tracetest.NewInMemoryExporter()}, admin.NewMetrics(admin.ReadBuild("test"))
			o := relay.Options{Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})), Upstream: metrics, Downstream: metrics}
			followed := relay.TracingOptions(c, "test", o.Log)
			followed.Exporter, followed.Ratio = spans, 1
			tracer := tracing.New(followed)
			o.Trace(tracer)
			r, err := relay.New(c, o)
			if err != nil {
				t.Fatal(err)
			}
			metrics.Attach(r)
			served := &relayed{Relay: r, log: log}
			served.serveAt(t, "127.0.0.1:0")

			one, two, sotw := openDelta(t, served.addr, "one"), openDelta(t, served.addr, "two"), openSotw(t, served.addr, "three")
			for _, c := range []*deltaClient{one, two} {
				c.Subscribe(unknownType, "thing")
			}
			sotw.Watch(unknownType, "thing")
			eventually(t, patience, func() error {
				_, got := sotw.Get(unknownType, "thing")
				return first(one.Has(unknownType, "thing"), two.Has(unknownType, "thing"), is("sotw", got, true))
			})
			page := httptest.NewRecorder()
			req := httptest.NewRequest(http.MethodGet, "/resources", nil)
			req.Host = "127.0.0.1"
			admin.NewHandler(r, metrics, admin.HandlerOptions{Host: "127.0.0.1", Log: o.Log}).ServeHTTP(page, req)
			groups := len(r.Groups())
			r.Close(0)
			tracer.Close() // it has exported everything
			file, err := os.ReadFile(filepath.Join(state, "snapshot"))
			if err != nil && secret == "false" {
				t.Fatal(err)
			}
			hidden := secret == "true"
			if want := map[bool]int{true: 3, false: 1}[hidden]; groups != want {
				t.Errorf("there are %d groups, want %d", groups, want)
			}
			version, _ := one.Get(unknownType, "thing")
			set := sotw.Version(unknownType)
			var traces strings.Builder
			for _, s := range spans.GetSpans() {
				for _, a := range s.Attributes {
					traces.WriteString(string(a.Key) + "=" + a.Value.String() + "\n")
				}
			}
			if !strings.Contains(traces.String(), "xds.version=") || !strings.Contains(page.Body.String(), `"version"`) || len(log.Lines("client response", "sotw")) == 0 {
				t.Fatalf("there is nothing to look at: %s\n%s", traces.String(), page.Body)
			}
			for what, shows := range map[string]bool{
				"the admin endpoint shows the version": strings.Contains(page.Body.String(), version.version),
				"a trace shows the version of the set": strings.Contains(traces.String(), set),
				"the log shows the version of the set": len(log.Lines(set)) > 0,
				"the disk has it in the clear":         bytes.Contains(file, []byte(canary)),
			} {
				if shows == hidden {
					t.Errorf("secret: %v, and %s: %v", hidden, what, shows)
				}
			}
			if len(log.Lines(canary)) > 0 || strings.Contains(traces.String(), canary) || strings.Contains(page.Body.String(), canary) {
				t.Error("what is in it is shown")
			}
		})
	}
}
