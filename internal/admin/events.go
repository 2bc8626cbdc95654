package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-relay/xds-relay/internal/events"
)

// followed is how many events go to a reader at once.
const followed = 100

// events answers with what operators act on: as a list, or as it comes.
func (h *handler) events(w http.ResponseWriter, req *http.Request) {
	if err := knows(req, "since", "kind", "limit", "follow"); err != nil {
		badRequest(w, err)
		return
	}
	limit, err := limitOf(req)
	if err != nil {
		badRequest(w, err)
		return
	}
	query := req.URL.Query()
	kinds, err := kindsOf(query.Get("kind"), query.Has("kind"))
	if err != nil {
		badRequest(w, err)
		return
	}
	follows := query.Has("follow") || strings.Contains(req.Header.Get("Accept"), "text/event-stream")
	since := query.Get("since")
	if id := req.Header.Get("Last-Event-ID"); follows && id != "" { // a reader that comes back
		since = id
	}
	after := uint64(0)
	if since != "" {
		if after, err = strconv.ParseUint(since, 10, 64); err != nil {
			badRequest(w, fmt.Errorf("since is %q; use the id of an event", since))
			return
		}
	}
	if follows {
		h.followEvents(w, req, after, since != "", kinds)
		return
	}
	p := h.ring.List(after, kinds, limit)
	if p.Events == nil {
		p.Events = []events.Event{}
	}
	reply(w, struct {
		Events []events.Event `json:"events"`
		// Last is what to give as since to be told what comes after these.
		Last uint64 `json:"last"`
		More bool   `json:"more,omitempty"`
		Lost bool   `json:"lost,omitempty"`
	}{p.Events, p.Last, p.More, p.Lost})
}

// followEvents says events as they come: those after an ID, or those from now on.
func (h *handler) followEvents(w http.ResponseWriter, req *http.Request, after uint64, given bool, kinds []events.Kind) {
	if req.Method == http.MethodHead {
		return
	}
	if !given {
		after = h.ring.Latest()
	}
	e := h.streams.stream(w)
	if e == nil {
		return
	}
	defer e.close()
	reader := h.ring.Read(after)
	defer reader.Close()
	follow(req.Context(), e, func() ([]events.Event, int) {
		batch, missed := reader.Next(req.Context(), followed, heartbeat)
		if len(kinds) > 0 {
			batch = slices.DeleteFunc(batch, func(e events.Event) bool { return !slices.Contains(kinds, e.Kind) })
		}
		return batch, missed
	}, func(e events.Event) uint64 { return e.ID })
}

// kindsOf are the kinds of events that a request is about, with commas between them; none: all.
func kindsOf(text string, given bool) (kinds []events.Kind, err error) {
	if !given {
		return nil, nil
	}
	for _, k := range strings.Split(text, ",") {
		if !slices.Contains(events.Kinds(), events.Kind(k)) {
			return nil, fmt.Errorf("kind is %q; use some of %v, with a comma between them", text, events.Kinds())
		}
		kinds = append(kinds, events.Kind(k))
	}
	return kinds, nil
}

// watch says what clients and the relay say to each other, as they say it.
func (h *handler) watch(w http.ResponseWriter, req *http.Request) {
	if err := knows(req, "stream", "node", "type"); err != nil {
		badRequest(w, err)
		return
	}
	query := req.URL.Query()
	filter := events.Filter{Node: query.Get("node")}
	var err error
	if filter.Type, err = typeOf(req); err != nil {
		badRequest(w, err)
		return
	}
	if query.Has("stream") {
		if filter.Stream, err = strconv.ParseUint(query.Get("stream"), 10, 64); err != nil || filter.Stream == 0 {
			badRequest(w, fmt.Errorf("stream is %q; use the number that /clients gives", query.Get("stream")))
			return
		}
		if _, ok := h.relay.Client(filter.Stream); !ok {
			http.Error(w, fmt.Sprintf("there is no stream %d; it may have ended, and /clients lists those that are open", filter.Stream), http.StatusNotFound)
			return
		}
	}
	if req.Method == http.MethodHead {
		return
	}
	watcher, err := h.watched.Add(filter)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer watcher.Close()
	e := h.streams.stream(w)
	if e == nil {
		return
	}
	defer e.close()
	follow(req.Context(), e, func() ([]events.Message, int) { return watcher.Next(req.Context(), heartbeat) }, func(events.Message) uint64 { return 0 })
}
