package admin

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/xds-relay/xds-relay/internal/events"
)

// eventsShown is how many events a view has.
const eventsShown = 100

// eventsData is what the view of events is made of.
type eventsData struct {
	Kinds  []kindChoice
	Some   bool // not all kinds
	Events []events.Event
	Most   int
	More   int // how many to ask for to see more; 0: there are no others
}

type kindChoice struct {
	Kind events.Kind
	On   bool
}

// eventsView shows the latest events, newest first.
func (u *ui) eventsView(w http.ResponseWriter, req *http.Request) {
	if !u.asks(w, req, "kind", "show") {
		return
	}
	d := eventsData{Most: eventsShown}
	if text := req.URL.Query().Get("show"); text != "" {
		var err error
		if d.Most, err = strconv.Atoi(text); err != nil || d.Most < 1 || d.Most > events.Most {
			u.fail(w, http.StatusBadRequest, "/ui/events", "The latest events", "show is %q; use a number from 1 to %d", text, events.Most)
			return
		}
	}
	var kinds []events.Kind
	for _, text := range req.URL.Query()["kind"] {
		some, err := kindsOf(text, true)
		if err != nil {
			u.fail(w, http.StatusBadRequest, "/ui/events", "All events", "%v", err)
			return
		}
		kinds = append(kinds, some...)
	}
	for _, k := range events.Kinds() {
		d.Kinds = append(d.Kinds, kindChoice{k, slices.Contains(kinds, k)})
	}
	d.Some = len(kinds) > 0
	moves := u.metrics.observed.moves.Load()
	d.Events = u.ring.List(0, kinds, d.Most+1).Events
	slices.Reverse(d.Events)
	if len(d.Events) > d.Most {
		d.Events = d.Events[:d.Most]
		d.More = min(2*d.Most, events.Most)
	}
	u.show(w, "events", "Events", "events", moves, d)
}
