package admin

import (
	"fmt"
	"net/http"
	"time"
)

// maxDrain bounds the time over which clients are sent away.
const maxDrain = 24 * time.Hour

// drained is the answer to who drains the relay, or ends that.
type drained struct {
	Draining bool `json:"draining"`
	// Over is the time over which the clients are sent away; empty: they stay.
	Over string `json:"clients_leave_over,omitempty"`
	// Clients is how many there were when the drain began, or ended.
	Clients int `json:"clients"`
}

// drain has the relay report that it is not ready and, with for, send its clients away.
func (h *handler) drain(w http.ResponseWriter, req *http.Request) {
	if err := knows(req, "for"); err != nil {
		badRequest(w, err)
		return
	}
	answer, over := drained{Draining: true}, time.Duration(0)
	away := req.URL.Query().Has("for")
	if away {
		var err error
		if over, err = time.ParseDuration(req.URL.Query().Get("for")); err != nil || over < 0 || over > maxDrain {
			badRequest(w, fmt.Errorf("for is %q; use a duration such as 60s, %v at most, or 0s to send all clients away at once", req.URL.Query().Get("for"), maxDrain))
			return
		}
		answer.Over = over.String()
	}
	answer.Clients = h.relay.StartDrain(away, over)
	reply(w, answer)
}

// undrain ends a drain.
func (h *handler) undrain(w http.ResponseWriter, req *http.Request) {
	if err := knows(req); err != nil {
		badRequest(w, err)
		return
	}
	h.relay.StopDrain()
	reply(w, drained{Clients: h.relay.Count()})
}
