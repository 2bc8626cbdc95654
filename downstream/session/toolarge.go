package session

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// A resource that is too large for a client by itself is left out of what the client is sent,
// and named (ERR-13). It is left out before anything is noted as sent: what the client holds
// of it, an older version or nothing, is what it held before.

// leftOut is a resource that is too large, and what it takes, in bytes.
type leftOut struct {
	*cache.Resource
	bytes int
}

// measure takes in how large the response may be that is made now. Nothing bounds the whole sets
// of SotW clients, which would delete what is missing.
func (s *Session) measure(sp *speaker, v fanout.View) {
	x, most := sp.base(), s.config.MaxResponse
	sp.identifier = x.identifier(s.config.Instance)
	if x.space = math.MaxInt; most == 0 || x.sets {
		return
	}
	version := longestVersion
	if s.kind.Delta {
		version = len(v.SystemVersion())
	}
	x.space = x.room(most, version, len(sp.identifier), v.Position())
}

// room is what a response has for one resource, whatever else it says, given what its version and
// the relay's identifier take.
func (x *exchange) room(most, version, identifier int, position cache.Seq) int {
	nonce := x.nonceSize(position, math.MaxUint64, math.MaxUint32)
	frame := sizeOf(deltaSystemVersion, version) + sizeOf(fieldTypeURL, len(x.url)) + nonce
	return most - frame - sizeOf(deltaControlPlane, sizeOf(controlPlaneIdentifier, identifier))
}

// longestVersion is what the version of a SotW response takes at most.
const longestVersion = len("1:18446744073709551615:") + 32

func digits(n uint64) int { return len(strconv.FormatUint(n, 10)) }

// oversize is what a resource takes that is too large for the client; 0: it is not, as far as is
// known, since its body may not be here.
func (x *exchange) oversize(v fanout.View, r *cache.Resource) int {
	if x.space == math.MaxInt {
		return 0
	}
	body := v.Body(r)
	if body == nil {
		return 0
	}
	limited := false
	if x.ttl {
		ends, _, _ := v.Ends(r)
		limited = !ends.IsZero()
	}
	if bytes := sizeOfResource(body, x.delta, limited); bytes > x.space {
		return bytes
	}
	return 0
}

// leavesOut: a resource is too large for the client, which is told that. It holds another version
// of it, or nothing, as before. Which one does not count: the next one that it can take says that
// the error is over (ERR-8).
func (x *exchange) leavesOut(v fanout.View, r *cache.Resource, p *part) bool {
	bytes := x.oversize(v, r)
	if bytes == 0 {
		return false
	}
	put(&p.leftOut, r.Name, leftOut{r, bytes})
	if r.Negative {
		return true
	}
	_, some := x.of(v, r.Name)
	brought := x.holdings.brings(r.Name)
	x.judge(r.Name)
	switch id, own := v.Lookup(r.Name); {
	case !own || x.exact.notes(r.Name) || v.LedTo(id) != nil:
		x.exact.note(r.Name, "", some)
	case brought:
		v.Tell(id, fanout.Brought)
	} // else it is what the name was told
	return true
}

// fitting are those of the resources that are not left out.
func (x *exchange) fitting(v fanout.View, resources []*cache.Resource, p *part) []*cache.Resource {
	if x.space == math.MaxInt {
		return resources
	}
	return slices.DeleteFunc(resources, func(r *cache.Resource) bool { return x.leavesOut(v, r, p) })
}

// lacksNewest: the client has no copy of this version of a resource, since it is too large.
func (x *exchange) lacksNewest(v fanout.View, r *cache.Resource) bool {
	return x.oversize(v, r) > 0 && !x.holds(v, r)
}

// saysTooLarge has the client told what could not be said earlier, if it still is so.
func (x *exchange) saysTooLarge(v fanout.View, p *part) {
	for _, r := range x.tooLarge {
		// The lane of names has a copy of its own of what the wildcard's set has, and may have come later.
		if now := v.Resource(r.Name); now != nil && now.Version == r.Version && !x.holds(v, now) {
			x.leavesOut(v, now, p)
		}
	}
	x.tooLarge = nil
}

// withoutSent: what is sent in another version, or told to have gone, is not named.
func (p *part) withoutSent() {
	if len(p.leftOut) == 0 {
		return
	}
	for _, r := range slices.Concat(p.resources, p.beats) {
		delete(p.leftOut, r.Name)
	}
	for _, name := range p.gone {
		delete(p.leftOut, name)
	}
}

// nameTooLarge names what is left out of a response. It does so to wildcard clients too: unlike an
// error of upstream's (ERR-9) this one is about the client itself, and silence would let it think
// that it has them all.
func (r *Response) nameTooLarge(p *part, most int) {
	if len(p.leftOut) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(p.leftOut)) {
		bytes := p.leftOut[name].bytes
		r.Oversized = append(r.Oversized, Oversized{Name: name, Bytes: bytes})
		r.Errors = append(r.Errors, resourceError(name, &statuspb.Status{
			Code:    cache.ResourceExhausted,
			Message: fmt.Sprintf("xds-relay: the resource takes %d bytes, and a response at most %d (downstream.max_response_bytes)", bytes, most),
		}))
	}
}
