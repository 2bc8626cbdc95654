package admin

import (
	"encoding/json"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
)

// fill sets every field of a value, so that none is left out of a comparison.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, 11, 28, 21, 0, 0, 120_000_000, time.FixedZone("", 3600))))
			return
		}
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(t, v.Index(i))
		}
	case reflect.String:
		v.SetString("a\"\\<\u00e9\n\xff")
	case reflect.Int, reflect.Int64:
		v.SetInt(-7)
	case reflect.Uint64:
		v.SetUint(7)
	case reflect.Bool:
		v.SetBool(true)
	default:
		t.Fatalf("a field is of %v", v.Type())
	}
}

// TestClientPage: a page for programs is byte by byte what encoding/json makes of it, with every field and without any.
func TestClientPage(t *testing.T) {
	var all downstream.Client
	fill(t, reflect.ValueOf(&all).Elem())
	for _, page := range []clientPage{
		{Total: 3, Clients: []downstream.Client{all, {}, {Types: []session.ClientType{}}}, Continue: "7"},
		{Clients: []downstream.Client{}},
	} {
		w := httptest.NewRecorder()
		page.stream(w)
		want, err := json.Marshal(page)
		if err != nil || w.Body.String() != string(want)+"\n" || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%v: it is\n%s\nwant\n%s", err, w.Body, want)
		}
	}
}

// BenchmarkClientPage writes 1,000 clients.
func BenchmarkClientPage(b *testing.B) {
	page := clientPage{Total: 1000}
	for range 1000 {
		page.Clients = append(page.Clients, downstream.Client{
			Node: "node-1", Peer: "127.0.0.1:12345", Protocol: "delta", Since: time.Now(), Sync: "synced",
			Types: []session.ClientType{{Type: "type.googleapis.com/envoy.config.cluster.v3.Cluster", Group: "default", Wildcard: true, Sync: "synced", LastSent: time.Now(), LastAck: time.Now(), Version: "v", Nonce: "CDS.1-0"}},
		})
	}
	for name, answers := range map[string]func(w *httptest.ResponseRecorder){
		"stream": func(w *httptest.ResponseRecorder) { page.stream(w) },
		"json":   func(w *httptest.ResponseRecorder) { write(w, page, "") },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				answers(httptest.NewRecorder())
			}
		})
	}
}
