package authz_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xds-relay/xds-relay/internal/admin"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/events"
)

// What keeps an HTTP route from showing a client what is not its own.
const (
	// byThePlace: admin.listen is a loopback address or a Unix socket, and nothing else.
	byThePlace = "only this host reaches it, and it shows no bodies, and no versions of Secrets"
	nothing    = "it shows no resources"
	acts       = "only this host reaches it; it acts, and shows no resources"
)

// shown has a row for each HTTP route of admin.listen, and public for each of metrics.listen.
var (
	shown = map[string]string{
		"/ui/clients": byThePlace, "/ui/resources": byThePlace, "/ui/resource": byThePlace, "/ui/planes": byThePlace, "/ui/events": byThePlace,
		"/ui/clients/{stream}": "as /clients/{stream}/diff: of Secrets it shows names and steps, and of other bodies nothing that is marked as sensitive or inline",
		"/ui/live":             nothing, "/ui/page.css": nothing, "/ui/page.js": nothing, "/ui/icon.svg": nothing,
		"/": byThePlace, "/help": nothing, "/livez": nothing, "/readyz": nothing, "/ready": nothing, "/startupz": nothing, "/metrics": nothing, "/stats/prometheus": nothing,
		"/server_info": nothing, "/debug/check": nothing, "/clients": byThePlace, "/clients/{stream}": byThePlace, "/groups": byThePlace, "/resources": byThePlace, "/events": byThePlace, "/watch": byThePlace, "/debug/pprof/": byThePlace,
		"/clients/{stream}/diff":   "only this host reaches it; of Secrets it shows names and steps, and of other bodies nothing that is marked as sensitive or inline",
		"/clients/{stream}/resync": acts, "/clients/{stream}/disconnect": acts,
		"/drain": acts, "/undrain": acts,
		"/v3/discovery:client_status": byThePlace,
		"/guard/release":              acts, "/-/reload": acts, "/logging": acts,
	}
	// shownByGRPC has a row for each gRPC method of admin.listen.
	shownByGRPC = map[string]string{
		"envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus":  byThePlace + "; with admin.csds: bodies it shows those of other types, without inline data",
		"envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus": byThePlace + "; as FetchClientStatus",

		"grpc.health.v1.Health/Check": nothing, "grpc.health.v1.Health/List": nothing, "grpc.health.v1.Health/Watch": nothing,
		"grpc.reflection.v1.ServerReflection/ServerReflectionInfo": nothing, "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": nothing,

		"grpc.channelz.v1.Channelz/GetTopChannels": nothing, "grpc.channelz.v1.Channelz/GetServers": nothing, "grpc.channelz.v1.Channelz/GetServer": nothing,
		"grpc.channelz.v1.Channelz/GetServerSockets": nothing, "grpc.channelz.v1.Channelz/GetChannel": nothing, "grpc.channelz.v1.Channelz/GetSubchannel": nothing,
		"grpc.channelz.v1.Channelz/GetSocket": nothing,
	}
	public = map[string]string{
		"/livez": nothing, "/readyz": nothing, "/ready": nothing, "/startupz": nothing, "/metrics": nothing, "/stats/prometheus": nothing,
	}
)

// TestEveryRouteIsMeant: a row says of each HTTP route what keeps it from showing a client what is not its own, and
// none shows a byte of a key.
func TestEveryRouteIsMeant(t *testing.T) {
	w := newAlice(t, true)
	metrics := admin.NewMetrics(admin.ReadBuild("test"))
	metrics.Attach(w.relay)
	everything := admin.HandlerOptions{Host: "localhost", Pprof: true, Log: slog.New(slog.DiscardHandler), Level: new(slog.LevelVar), Reload: func() (string, error) { return "", nil },
		Events: events.NewRing(nil), Watch: events.NewWatch()}
	for _, face := range []struct {
		name string
		*admin.Face
		rows    map[string]string
		methods map[string]string
	}{{"admin.listen", admin.NewHandler(w.relay, metrics, everything), shown, shownByGRPC}, {"metrics.listen", admin.NewProbes(w.relay, metrics), public, nil}} {
		if rows := slices.Sorted(maps.Keys(face.methods)); !slices.Equal(rows, face.Methods()) {
			t.Errorf("%s: gRPC serves %q, and there are rows for %q. Each method needs one that says what keeps it from showing a client what is not its own", face.name, face.Methods(), rows)
		}
		served := face.Routes()
		for route := range face.rows {
			if !slices.Contains(served, route) {
				t.Errorf("%s: %s has a row, and is not served", face.name, route)
			}
		}
		for _, route := range served {
			if face.rows[route] == "" {
				t.Errorf("%s: %s is served. Add a row that says what keeps it from showing a client what is not its own", face.name, route)
			}
			for _, detail := range []string{"", "?verbose", "?type=SDS", "goroutine?debug=2", "heap?debug=1"} {
				w.shows(face.name, face.Face, route+detail)
			}
		}
	}
}

// shows fails if a page has a byte of Bob's key, or its version, against which guesses could be checked.
func (w *alice) shows(face string, h http.Handler, page string) {
	resp := httptest.NewRecorder()
	ctx, cancel := context.WithCancel(w.t.Context())
	if strings.HasPrefix(page, "/watch") || strings.HasPrefix(page, "/ui/live") { // it would go on
		cancel()
	}
	defer cancel()
	h.ServeHTTP(resp, httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+page, nil))
	text := resp.Body.String()
	if page == "/resources" && !strings.Contains(text, bobsKey) {
		w.t.Errorf("%s%s does not list Bob's key: %s", face, page, text)
	}
	for _, secret := range append(forms(canary), w.version) {
		if strings.Contains(text, secret) {
			w.t.Errorf("%s%s shows %q of Bob's key", face, page, secret)
		}
	}
}

// TestCSDSShowsNoSecret: whatever it shows, in both views (CSDS-5).
func TestCSDSShowsNoSecret(t *testing.T) {
	w := newAlice(t, true)
	for _, mode := range []config.CSDS{config.CSDSStatus, config.CSDSBodies} {
		o := admin.HandlerOptions{Host: "localhost", Log: slog.New(slog.DiscardHandler), CSDS: func() config.CSDS { return mode }}
		face := admin.NewHandler(w.relay, admin.NewMetrics(admin.ReadBuild("test")), o)
		for _, request := range []string{"", `{"nodeMatchers": [{}]}`} {
			resp := httptest.NewRecorder()
			face.ServeHTTP(resp, httptest.NewRequest(http.MethodPost, "http://localhost/v3/discovery:client_status", strings.NewReader(request)))
			text := resp.Body.String()
			if !strings.Contains(text, "config") {
				t.Fatalf("CSDS says %s", text)
			}
			if request != "" && !strings.Contains(text, bobsKey) {
				t.Errorf("CSDS does not list Bob's key: %s", text)
			}
			for _, secret := range append(forms(canary), w.version) {
				if strings.Contains(text, secret) {
					t.Errorf("CSDS shows %q of Bob's key", secret)
				}
			}
		}
	}
}

// forms are those in which a text may be shown.
func forms(text string) []string {
	return []string{text, base64.StdEncoding.EncodeToString([]byte(text))[:24], fmt.Sprintf("%x", text)}
}

// TestAdminIsForThisHost: no configuration lets another host reach admin.listen.
func TestAdminIsForThisHost(t *testing.T) {
	for _, address := range []string{"0.0.0.0:18001", "[::]:18001", "192.0.2.1:18001", ":18001"} {
		if _, err := config.Load("", []string{"upstream.address=127.0.0.1:1", "admin.listen=" + address}); err == nil {
			t.Errorf("admin.listen=%s is valid", address)
		}
	}
}

// TestRoutesAreRegistered: what is served over HTTP is a Face, which knows its routes, or for clients that poll, whose
// requests go through the door of every client (TestPollsAreMeant).
func TestRoutesAreRegistered(t *testing.T) {
	const root, of = "../../..", "internal/admin/"
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		path, _ = filepath.Rel(root, path) // it is below
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "internal/test", "bench", "bin"}, path):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		files++
		text, err := os.ReadFile(filepath.Join(root, path))
		for _, makes := range []string{"http.NewServeMux", "http.Server{", "http.Serve(", "http.ServeTLS(", "http.ListenAndServe", "http.Handle(", "http.HandleFunc("} {
			if n := strings.Count(string(text), makes); n > 1 || n == 1 && !slices.Contains([]string{of + "routes.go", of + "server.go", "downstream/rest.go"}, path) {
				t.Errorf("%s: %s: let internal/admin serve it, so that its routes are known", path, makes)
			}
		}
		return err
	})
	if err != nil || files < 100 {
		t.Fatalf("%d files: %v", files, err)
	}
}
