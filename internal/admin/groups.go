package admin

import (
	"maps"
	"net/http"
	"slices"

	"github.com/xds-relay/xds-relay/cache"
)

// groupEntry is one group: what its clients have in common (H-23), and how much it
// holds.
type groupEntry struct {
	Group string      `json:"group"`
	Key   string      `json:"key"`
	Types []typeEntry `json:"types"`
}

type typeEntry struct {
	Type      cache.TypeURL `json:"type"`
	Resources int           `json:"resources"`
	Wildcards int           `json:"wildcard_clients"`
	Named     int           `json:"named_subscriptions"`
	Held      int           `json:"removals_held,omitempty"`
}

func (h *handler) groups(w http.ResponseWriter, _ *http.Request) {
	list := []groupEntry{}
	hubs := h.relay.Groups()
	for _, name := range slices.Sorted(maps.Keys(hubs)) {
		e := groupEntry{Group: name, Key: hubs[name].Key(), Types: []typeEntry{}}
		for _, s := range hubs[name].Summarize() {
			e.Types = append(e.Types, typeEntry{s.Type, s.Resources, s.Wildcards, s.Named, s.Held})
		}
		list = append(list, e)
	}
	reply(w, struct {
		Groups []groupEntry `json:"groups"`
	}{list})
}

// release lets go the removals that the guard holds back (H-22).
func (h *handler) release(w http.ResponseWriter, req *http.Request) {
	only, err := typeOf(req)
	if err != nil {
		badRequest(w, err)
		return
	}
	released := 0
	for name, hub := range h.relay.Groups() {
		if !inGroup(req, name) {
			continue
		}
		for _, t := range hub.Types() {
			if only == "" || t == only {
				if n := hub.Release(t); n > 0 {
					h.log.Warn("an operator lets go removals that were held back", "group", name, "type", t, "count", n)
					released += n
				}
			}
		}
	}
	reply(w, struct {
		Released int `json:"released"`
	}{released})
}
