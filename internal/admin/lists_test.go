package admin

import (
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
)

// twoTypes has clients of two types, one of which none is in step with.
type twoTypes struct{ described }

func (twoTypes) Clients() (clients []downstream.Client) {
	for i := range uint64(5) {
		clients = append(clients, downstream.Client{Stream: i + 1, Sync: "nacked", Types: []session.ClientType{
			{Type: cache.Cluster, Sync: "synced"}, {Type: cache.Endpoint, Sync: "nacked"},
		}})
	}
	return clients
}

// TestClientsOfOneType: who asks for one type is shown that type of each client, and nothing else.
func TestClientsOfOneType(t *testing.T) {
	h := NewHandler(twoTypes{newDescribed()}, NewMetrics(Build{}), HandlerOptions{Host: "localhost", Log: slog.New(slog.DiscardHandler)})
	for short, sync := range map[string]session.Sync{"CDS": "synced", "EDS": "nacked"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/clients?type="+short, nil))
		var page struct{ Clients []downstream.Client }
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || len(page.Clients) != 5 {
			t.Fatal(err, w.Body)
		}
		for _, c := range page.Clients {
			if len(c.Types) != 1 || c.Types[0].Type.Short() != short || c.Sync != sync {
				t.Errorf("of %s: %+v", short, c)
			}
		}
	}
}
