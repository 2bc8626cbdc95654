package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/readable"
)

// The bounds of a diff, which decodes bodies.
const (
	diffsAtOnce  = 2
	defaultNames = 100
	maxNames     = 1000
	maxBody      = 1 << 20 // bytes of one body in wire form
	maxBodies    = 8 << 20 // bytes of all bodies of an answer
)

// difference is a resource in which a client is not where the relay is. Of a secret it has the name and the step only.
type difference struct {
	clientName
	// Probably: what the client acknowledged last is not known, and Client is the version before.
	Probably bool `json:"probably,omitempty"`
	// Client is what the client acknowledged last, and Relay what the relay has. Without Client the client
	// has nothing, or it is not remembered what it has.
	Client *body `json:"client,omitempty"`
	Relay  *body `json:"relay,omitempty"`
}

// body is one version of a resource.
type body struct {
	Version string `json:"version"`
	Bytes   int    `json:"bytes"`
	// Body is the resource, with what may be secret redacted. Without it Omitted says why.
	Body    json.RawMessage `json:"body,omitempty"`
	Omitted string          `json:"omitted,omitempty"`
}

// diff answers with what one client lacks, has not acknowledged or has rejected.
func (h *handler) diff(w http.ResponseWriter, req *http.Request) {
	if err := knows(req, "type", "limit"); err != nil {
		badRequest(w, err)
		return
	}
	only, err := typeOf(req)
	if err != nil {
		badRequest(w, err)
		return
	}
	limit := defaultNames
	if text := req.URL.Query().Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxNames {
			badRequest(w, fmt.Errorf("limit is %q; use a number from 1 to %d", text, maxNames))
			return
		}
	}
	c, ok := h.streamOf(w, req)
	if !ok {
		return
	}
	select {
	case h.diffs <- struct{}{}:
		defer func() { <-h.diffs }()
	default:
		http.Error(w, fmt.Sprintf("%d others look at differences now; ask again in a moment", diffsAtOnce), http.StatusServiceUnavailable)
		return
	}
	set, err := readable.Load()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	d := differ{relay: h.relay, set: set, room: maxBodies, limit: limit, found: []difference{}}
	for _, t := range c.Types {
		if only == "" || t.Type == only {
			d.look(c.Stream, t)
		}
	}
	reply(w, struct {
		downstream.Client
		Differences []difference `json:"differences"`
		More        bool         `json:"more,omitempty"` // there are others
	}{c, d.found, d.more})
}

// streamOf is the client of a path. Without one the answer is given already.
func (h *handler) streamOf(w http.ResponseWriter, req *http.Request) (c downstream.Client, ok bool) {
	id, err := strconv.ParseUint(req.PathValue("stream"), 10, 64)
	if err != nil {
		badRequest(w, fmt.Errorf("%q is no stream; use the number that /clients gives as stream", req.PathValue("stream")))
		return c, false
	}
	if c, ok = h.relay.Client(id); !ok {
		noStream(w, id)
	}
	return c, ok
}

func noStream(w http.ResponseWriter, id uint64) {
	http.Error(w, fmt.Sprintf("there is no stream %d; it may have ended, and /clients lists those that are open", id), http.StatusNotFound)
}

// differ collects the differences of one client.
type differ struct {
	relay Relay
	set   *readable.Set
	room  int // bytes of bodies that there may still be
	limit int
	found []difference
	more  bool
}

// look adds the differences of a type.
func (d *differ) look(stream uint64, t session.ClientType) {
	hub := d.relay.Groups()[t.Group]
	first := len(d.found)
	names := make(map[string]bool)
	for after, more := "", !d.more; more && !d.more; {
		var page []session.ClientName
		page, more = d.relay.ClientNames(stream, t.Type, after, maxLimit)
		for _, n := range page {
			after = n.Name
			if n.Step == session.StepSynced {
				continue
			}
			if d.more = len(d.found) == d.limit; d.more {
				break
			}
			d.found = append(d.found, difference{clientName: clientNameOf(hub, t.Type, n)})
			names[n.Name] = true
		}
		more = more && len(page) > 0
	}
	found := d.found[first:]
	if hub == nil || hub.Properties(t.Type).Secret {
		for i := range found {
			found[i].Sent, found[i].Now = "", ""
		}
		return
	}
	bodies := bodiesOf(hub, t.Type, names)
	for i := range found {
		d.fill(&found[i], bodies[found[i].Name])
	}
}

// versions are the resource of a name as the relay has it, and as it had it before.
type versions struct{ now, former *cache.Resource }

// bodiesOf are the versions of names that are not of a secret type.
func bodiesOf(hub *fanout.Hub, t cache.TypeURL, names map[string]bool) map[string]versions {
	bodies := make(map[string]versions, len(names))
	if len(names) == 0 {
		return bodies
	}
	described, _ := hub.Of(t).Describe(fanout.Place{}, 2*len(names), func(name string) bool { return names[name] })
	for _, d := range described { // of each name, on the lane of names and on that of the wildcard
		v := bodies[d.Name]
		if d.Resource != nil {
			v.now = d.Resource
		}
		if d.Former != nil {
			v.former = d.Former
		}
		bodies[d.Name] = v
	}
	return bodies
}

// fill says what both have of one resource.
func (d *differ) fill(to *difference, v versions) {
	if to.Now != "" {
		to.Relay = &body{Version: to.Now, Omitted: "it has changed since it was looked for"}
		if v.now != nil && v.now.Version == to.Now {
			to.Relay = d.body(v.now)
		}
	}
	switch to.Step {
	case session.StepUnsent:
		switch known := v.former != nil && v.former.Version == to.Sent; {
		case to.Older:
			to.Probably = true
		case to.Sent == "": // it has nothing
			return
		case !known:
			to.Client = &body{Version: to.Sent, Omitted: "the relay does not remember this version; see admin.history"}
			return
		}
	case session.StepUnacked, session.StepRejected, session.StepStays, session.StepUnknown:
		to.Probably = to.Step != session.StepStays || v.former == nil || v.former.Version != to.Sent
	default:
		return
	}
	if v.former != nil {
		to.Client = d.body(v.former)
	}
}

// body shows a resource, if there is room.
func (d *differ) body(r *cache.Resource) *body {
	b := &body{Version: r.Version, Bytes: r.Size()}
	resource := new(discovery.Resource)
	switch {
	case r.Negative:
		b.Omitted = "it says that the resource does not exist"
	case r.Size() > maxBody, r.Size() > d.room:
		b.Omitted = "it is too large, or there are too many others"
	case proto.Unmarshal(r.Content(), resource) != nil:
		b.Omitted = "it cannot be read"
	}
	if b.Omitted != "" {
		return b
	}
	d.room -= r.Size()
	shown, err := d.set.Show(resource.GetResource().GetTypeUrl(), resource.GetResource().GetValue())
	if err != nil {
		b.Omitted = "it is not of a message that this relay knows"
		return b
	}
	b.Body = shown
	return b
}
