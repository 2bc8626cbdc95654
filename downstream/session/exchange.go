package session

import (
	"slices"
	"strconv"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/hop"
)

// exchange is what both variants keep of one type on one stream: the subscription, what is to be
// sent, and the responses that await an ACK. It ends with the stream, and its nonces and versions
// say nothing of another type (DOWN-DELTA-2); the order of types is all that one has of another.
type exchange struct {
	url       cache.TypeURL
	api       cache.TypeURL // the type of the current API that it is, or stands for
	group     Membership
	sub       *fanout.Subscription
	requested bool // the type's first request was taken in
	// refusal says why the type is not served, or is nil (NODE-14).
	refusal *refusal
	clientKind

	// counted is how many names the stream keeps of the type (Session.names).
	counted int

	door
	spelled spellings

	frame

	// What the client may hold, and the reasons to send it something:
	holdings
	toSend
	renewing
	source *cache.Source // the update that brought the pending changes

	acks
	clusterWait
	removalWait

	// starving says why something that the client waits for could not be had when it was last
	// looked at, or is nil (ERR-7).
	starving *statuspb.Status
}

// clientKind is how a stream's client is served.
type clientKind struct {
	delta bool // the stream is Delta
	ends  bool // an outage ends the stream, and no errors are sent for names (ERR-7)
	ttl   bool // the client knows TTLs (TTL-6)
	wraps bool // SotW resources go with their wrappers (DOWN-SOTW-15)
}

// frame is what is around the resources of a response.
type frame struct {
	// space is the size left for one resource in the response that is being made, in bytes (ERR-13).
	space int
	// plane.text is the relay's control_plane.identifier, made of the control plane's.
	plane struct{ of, text string }
}

// isOf reports whether a list of the configuration has the type, or that of the current API for which it stands.
func (x *exchange) isOf(types []cache.TypeURL) bool {
	return slices.Contains(types, x.url) || slices.Contains(types, x.api)
}

// due reports whether there may be something to send now.
func (x *exchange) due() bool { return x.toSend.due() || x.renewing.due() }

// tellable returns the names whose error can be sent in a response. A copy says that the error is
// over, so the error goes after it, in another response (ERR-9), and once more after each copy
// that is sent for another reason.
func (x *exchange) tellable(v fanout.View, p *plan) (ids []cache.ID) {
	if x.failed.len()+len(x.erred) == 0 {
		return nil
	}
	sent, untold := namesOf(p.resources, p.heartbeats), distinct(slices.Clone(x.changed.items))
	leadsToSent := func(id cache.ID) bool {
		return len(sent) > 0 && contains(v.Leading(id), func(r *cache.Resource) bool { return sent.has(r.Name) })
	}
	x.endErrors(v, p.resources)
	for _, id := range x.failed.take() {
		_, waits := slices.BinarySearch(untold, id)
		copied := waits && v.Answer(id).State == cache.Present
		switch {
		case !v.Has(id):
		case copied, sent.has(v.Name(id)), leadsToSent(id):
			x.failed.add(id)
		default:
			ids = append(ids, id)
		}
	}
	return ids
}

// endErrors notes that resources are sent that say of errors told before that they are over. Those that
// still stand are told again.
func (x *exchange) endErrors(v fanout.View, resources []*cache.Resource) {
	if len(x.erred) == 0 {
		return
	}
	for _, r := range resources {
		for name := range r.Names() {
			id, asked := v.Lookup(name)
			if _, told := x.erred[id]; asked && told {
				if drop(&x.erred, id); v.Answer(id).Error != nil {
					x.failed.add(id)
				}
			}
		}
	}
}

// nonce returns the nonce of a response (DOWN-DELTA-3). A push is named after its position alone;
// an answer, and a second response at one position, also have a counter of the stream. The nonce
// ends in the number of chunks that follow (RECON-16).
func (x *exchange) nonce(seq cache.Seq, answer bool, left int, counter *uint64) string {
	n := strconv.AppendUint(append(make([]byte, 0, 64), x.url.Name()+"."...), uint64(seq), 10)
	if answer || seq <= x.pushedAt {
		*counter++
		n = strconv.AppendUint(append(n, '.'), *counter, 10)
	}
	x.pushedAt = max(x.pushedAt, seq)
	return hop.Part(string(n), left)
}
