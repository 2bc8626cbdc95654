package admin

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/upstream"
	"github.com/xds-relay/xds-relay/upstream/session"
)

// groupEntry is one group: what its clients have in common (H-23), how much it holds, what
// node it shows, and how its control planes answer.
type groupEntry struct {
	Group    string          `json:"group"`
	Key      string          `json:"key"`
	Types    []typeEntry     `json:"types"`
	Node     nodeEntry       `json:"upstream_node"`
	Upstream []upstreamEntry `json:"upstream"`
}

type typeEntry struct {
	Type      cache.TypeURL `json:"type"`
	Resources int           `json:"resources"`
	Wildcards int           `json:"wildcard_clients"`
	Named     int           `json:"named_subscriptions"`
	Held      int           `json:"removals_held,omitempty"`
}

type nodeEntry struct {
	ID      string `json:"id"`
	Cluster string `json:"cluster"`
}

// upstreamEntry is one control plane of the list, as one group sees it.
type upstreamEntry struct {
	Address string `json:"address"`
	InUse   bool   `json:"in_use"`
	// State is whether it keeps the group current, as the metric upstream_state has it.
	State session.Condition `json:"state"`
	// Connected is since when the group's stream to it is open: the main one, or the one
	// that finds out whether it is back.
	Connected   *time.Time `json:"connected_since,omitempty"`
	Mode        string     `json:"mode,omitempty"`
	LastMessage *time.Time `json:"last_message,omitempty"`
	LastError   string     `json:"last_error,omitempty"`
	ErrorAt     *time.Time `json:"last_error_at,omitempty"`
	// Retry is when the wait before the next attempt is over.
	Retry *time.Time `json:"retry_at,omitempty"`
	// Types are what it is asked for.
	Types []askedEntry `json:"types,omitempty"`
}

// askedEntry is whether the control plane answers for a type that it is asked for by name, or
// by wildcard.
type askedEntry struct {
	Type     cache.TypeURL `json:"type"`
	Wildcard bool          `json:"wildcard"`
	Answered bool          `json:"answered"`
	// Unanswered is since when it has been asked, and Silent: for so long, while clients
	// wait, that the log says so.
	Unanswered *time.Time `json:"unanswered_since,omitempty"`
	Silent     bool       `json:"silent,omitempty"`
}

// timeOf is a time, or nothing.
func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func upstreamEntries(s session.State) []upstreamEntry {
	entries := []upstreamEntry{}
	for _, d := range s.Entries {
		e := upstreamEntry{
			Address: d.Name, InUse: d.InUse, State: d.Condition, Connected: timeOf(d.Connected), LastMessage: timeOf(d.Heard),
			LastError: d.Error, ErrorAt: timeOf(d.Failed), Retry: timeOf(d.Retry),
		}
		if e.Connected != nil {
			e.Mode = upstream.Stream{SotW: d.SotW}.Mode()
		}
		for _, l := range d.Lanes {
			e.Types = append(e.Types, askedEntry{l.Type, l.Wildcard, l.Answered, timeOf(l.Asked), l.Silent})
		}
		entries = append(entries, e)
	}
	return entries
}

func (h *handler) groups(w http.ResponseWriter, _ *http.Request) {
	list := []groupEntry{}
	hubs, states := h.relay.Groups(), h.relay.Upstream()
	for _, name := range slices.Sorted(maps.Keys(hubs)) {
		state := states[name]
		e := groupEntry{
			Group: name, Key: hubs[name].Key(), Types: []typeEntry{},
			Node: nodeEntry{state.Node, state.Cluster}, Upstream: upstreamEntries(state),
		}
		for _, s := range hubs[name].Summarize() {
			e.Types = append(e.Types, typeEntry{s.Type, s.Resources, s.Wildcards, s.Named, s.Held})
		}
		list = append(list, e)
	}
	reply(w, struct {
		Groups []groupEntry `json:"groups"`
	}{list})
}

// release carries out the removals that the guard holds back (H-22).
func (h *handler) release(w http.ResponseWriter, req *http.Request) {
	if err := knows(req, "type", "group"); err != nil { // else a misspelt type would let go all
		badRequest(w, err)
		return
	}
	only, err := typeOf(req)
	if query := req.URL.Query(); err == nil && (query.Has("type") && only == "" || len(query["type"]) > 1 || len(query["group"]) > 1) {
		err = errors.New("name one type and one group, or leave the parameter out for all") // type= may be a variable that is not set
	}
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
				if n := hub.Of(t).Release(time.Now()); n > 0 {
					h.log.Warn("an operator carries out removals that the mass-removal guard held back", "group", name, "type", t, "count", n)
					h.ring.Publish(events.Event{Kind: events.RemovalsReleased, Level: events.Warn, Group: name, Type: t, Count: n, Message: "an operator carries them out (POST /guard/release)"})
					released += n
				}
			}
		}
	}
	h.acted(w, req, struct {
		Released int `json:"released"`
	}{released})
}
