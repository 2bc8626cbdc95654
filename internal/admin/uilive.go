package admin

import (
	"net/http"
	"time"
)

// How soon a page hears that something has moved, and how often at most.
const (
	lookEvery = 100 * time.Millisecond
	sayEvery  = 500 * time.Millisecond
)

// live tells a page that something has moved, and not what: the page asks for its view again. So a page that is open
// costs the relay one number, ten times a second, until something happens.
func (u *ui) live(w http.ResponseWriter, req *http.Request) {
	if err := knows(req); err != nil {
		badRequest(w, err)
		return
	}
	if req.Method == http.MethodHead {
		return
	}
	e := u.streams.stream(w)
	if e == nil {
		return
	}
	defer e.close()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	told, at := u.metrics.observed.moves.Load(), time.Now()
	alive := e.say(0, "moved", told) && e.flush()
	for alive {
		select {
		case <-req.Context().Done():
			return
		case <-look.C:
		}
		moves, now := u.metrics.observed.moves.Load(), time.Now()
		switch {
		case moves != told && now.Sub(at) >= sayEvery:
			told, at = moves, now
			alive = e.say(0, "moved", moves) && e.flush()
		case now.Sub(at) >= heartbeat:
			at = now
			alive = e.beat()
		}
	}
}
