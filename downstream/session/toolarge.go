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
	"github.com/xds-relay/xds-relay/internal/hop"
)

// A resource that is too large for a client by itself is left out of its responses, and named in
// an error (ERR-13). It is left out before anything is noted as sent, so the client still holds
// what it held of it before.

// leftOut is a resource that is too large, and its size in bytes.
type leftOut struct {
	*cache.Resource
	bytes int
}

// measure sets the relay's identifier in the next response (DOWN-DELTA-19), and how large a
// resource in it may be. The whole sets of SotW clients have no bound, since clients delete what
// they lack.
func (s *Session) measure(sp *candidate, v fanout.View) {
	x, most := sp.base(), s.config.MaxResponse
	if of := x.group.Hub.Identifier(); x.plane.text == "" || x.plane.of != of {
		x.plane.of, x.plane.text = of, hop.Identifier(s.config.Instance, of)
	}
	if x.space = math.MaxInt; most == 0 || x.sets {
		return
	}
	version := longestVersion
	if s.kind.Delta {
		version = len(v.SystemVersion())
	}
	x.space = x.room(most, version, len(x.plane.text), v.Position())
}

// room returns the size left for one resource in a response, given the sizes of its version and
// of the relay's identifier.
func (x *exchange) room(most, version, identifier int, position cache.Seq) int {
	nonce := x.nonceSize(position, math.MaxUint64, math.MaxUint32)
	frame := sizeOf(fieldVersion, version) + sizeOf(fieldTypeURL, len(x.url)) + nonce
	return most - frame - sizeOf(deltaControlPlane, sizeOf(controlPlaneIdentifier, identifier))
}

// longestVersion is the greatest length of the version of a SotW response.
const longestVersion = len("1:18446744073709551615:") + 32

func digits(n uint64) int { return len(strconv.FormatUint(n, 10)) }

// oversize returns the size of a resource that is too large for the client, or 0.
func (x *exchange) oversize(v fanout.View, r *cache.Resource) int {
	if x.space == math.MaxInt {
		return 0
	}
	limited := false
	if x.ttl {
		ends, _, _ := v.Ends(r)
		limited = !ends.IsZero()
	}
	if bytes := sizeOfResource(r, x.delta, limited); bytes > x.space {
		return bytes
	}
	return 0
}

// leavesOut reports whether a resource is too large for the client, and if so notes the error.
// The client goes on holding another version, or nothing. Its version is noted as unknown, so
// that the next one that it can take is sent and says that the error is over (ERR-8).
func (x *exchange) leavesOut(v fanout.View, r *cache.Resource, p *plan) bool {
	bytes := x.oversize(v, r)
	if bytes == 0 {
		return false
	}
	put(&p.leftOut, r.Name, leftOut{r, bytes})
	if r.Negative {
		return true
	}
	if x.exact != nil || !subscribes(v, r.Name) { // else fanout.Told says what it holds
		x.unknown(v, r.Name)
		x.exact.unclaim(x.exact.find(r.Name))
	}
	return true
}

// fitting returns the resources that are not left out.
func (x *exchange) fitting(v fanout.View, resources []*cache.Resource, p *plan) []*cache.Resource {
	return slices.DeleteFunc(resources, func(r *cache.Resource) bool { return x.leavesOut(v, r, p) })
}

// saysTooLarge notes the errors that had to wait for the wildcard's answer, if they still apply.
func (x *exchange) saysTooLarge(v fanout.View, p *plan) {
	for _, r := range x.tooLarge {
		// The lane of names has its own copy of a resource in the wildcard's set, which may have
		// come later.
		if now := v.Resource(r.Name); now != nil && now.Version == r.Version && !x.holds(v, now) {
			x.leavesOut(v, now, p)
		}
	}
	x.tooLarge = nil
}

// nameTooLarge adds errors for the resources that are left out of a response, for wildcard
// clients too: unlike an error of upstream's (ERR-9) this one is about the client itself, which
// would otherwise believe that it has all resources.
func (r *Response) nameTooLarge(p *plan, most int) {
	if len(p.leftOut) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(p.leftOut)) {
		bytes := p.leftOut[name].bytes
		r.Oversized = append(r.Oversized, Oversized{Name: name, Bytes: bytes})
		if p.mute {
			continue
		}
		r.Errors = append(r.Errors, resourceError(name, &statuspb.Status{
			Code:    cache.ResourceExhausted,
			Message: fmt.Sprintf("xds-relay: the resource takes %d bytes, and a response at most %d (downstream.max_response_bytes)", bytes, most),
		}))
	}
}
