package admin

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// What an operator does to one client, by a program or by a form of the page.

// resync has a client sent again all that it asks for.
func (h *handler) resync(w http.ResponseWriter, req *http.Request) {
	h.actOn(w, req, "an operator has everything sent to a client again", h.relay.Resync)
}

// disconnect ends a client's stream.
func (h *handler) disconnect(w http.ResponseWriter, req *http.Request) {
	h.actOn(w, req, "an operator ends the stream of a client", h.relay.Disconnect)
}

func (h *handler) actOn(w http.ResponseWriter, req *http.Request, what string, act func(stream uint64) bool) {
	if err := knows(req); err != nil {
		badRequest(w, err)
		return
	}
	if id, err := strconv.ParseUint(req.PathValue("stream"), 10, 64); err == nil && fromForm(req) {
		if _, ok := h.relay.Client(id); !ok { // its view says so
			http.Redirect(w, req, fmt.Sprintf("/ui/clients/%d", id), http.StatusSeeOther)
			return
		}
	}
	c, ok := h.streamOf(w, req)
	if !ok {
		return
	}
	if !act(c.Stream) { // it has ended meanwhile
		noStream(w, c.Stream)
		return
	}
	h.log.Warn(what, "stream", c.Stream, "node", c.Node, "peer", c.Peer)
	h.acted(w, req, struct {
		Stream uint64 `json:"stream"`
		Node   string `json:"node"`
	}{c.Stream, c.Node})
}

// fromForm reports whether a person has sent a form of the page, and no program has asked.
func fromForm(req *http.Request) bool {
	return strings.Contains(req.Header.Get("Accept"), "text/html")
}

// acted answers that something was done: a program is told what, a person is shown the page again.
func (h *handler) acted(w http.ResponseWriter, req *http.Request, answer any) {
	if fromForm(req) {
		http.Redirect(w, req, backTo(req), http.StatusSeeOther)
		return
	}
	reply(w, answer)
}

// backTo is the view from which a form was sent, as far as the browser says so; else the overview. It is a path of ours:
// a form sends nobody elsewhere.
func backTo(req *http.Request) string {
	from, err := url.Parse(req.Referer())
	if err != nil || from.Host != req.Host || !strings.HasPrefix(from.Path, "/ui/") {
		return "/"
	}
	return from.RequestURI()
}
