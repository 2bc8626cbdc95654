package session

import (
	"slices"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/fanout"
)

// While upstream does not answer and a client waits for something, the client learns of it (ERR-7): by errors for the
// names, or by the end of its stream, so that it connects elsewhere. The end waits until the relay has had time to
// serve the client after all: a client that is refused at once waits longer each time before it comes back.

// endWithin is the time over which the streams of an outage are ended.
const endWithin = 2 * time.Second

// outage is the state of that.
type outage struct {
	began time.Time // when the stream's first request came
	endAt time.Time // when the stream is to end; zero: everything that is waited for can be had
	next  bool      // the stream ends after the response that is made now
	// hurries says that nothing else goes before the end, so that nothing waits for Clusters.
	hurries bool
}

// over reports whether the stream is to end.
func (o *outage) over(now time.Time) bool { return !o.endAt.IsZero() && !now.Before(o.endAt) }

// isGRPC reports whether the client is one of gRPC's own, which do not read resource_errors.
func isGRPC(node *core.Node) bool { return strings.HasPrefix(node.GetUserAgentName(), "gRPC") }

// endsStream reports whether the client learns of an outage by the end of its stream. A client that
// was sent nothing loses nothing by that, and only the end of a stream makes Envoy turn to its next
// control plane. A client that was sent something, and reads errors, keeps its stream.
func (s *Session) endsStream() bool {
	return !s.carried || !s.kind.Delta && isGRPC(s.node)
}

// learn adds errors for what a type's client cannot have just now, unless the end of the stream says so.
func (s *Session) learn(v fanout.View, sp *candidate) {
	x := sp.base()
	if !s.endsStream() || !s.endsFor(x) || len(sp.resources) > 0 {
		sp.errors = append(sp.errors, sp.unavailable...)
		return
	}
	x.failAgain(v, sp.unavailable) // if the stream carries a resource after all
}

// endsFor reports whether the stream may end because of a type. One with a group of its own does not end
// the stream of the others.
func (s *Session) endsFor(x *exchange) bool { return !x.group.Own || s.kind.Type != "" }

// starved returns why some type that may end the stream waits in vain, or nil.
func (s *Session) starved() *statuspb.Status {
	for _, st := range s.states {
		if x := st.base(); x.starving != nil && s.endsFor(x) {
			return x.starving
		}
	}
	return nil
}

// schedule sets when the stream of a client that waits in vain ends, and resets that when it no
// longer waits. says: a response goes first.
func (s *Session) schedule(now time.Time, says bool) {
	o := &s.outage
	switch {
	case !s.endsStream() || s.starved() == nil:
		o.endAt = time.Time{}
	case o.endAt.IsZero():
		if o.endAt = o.began.Add(s.config.UnavailableAfter); o.endAt.Before(now) {
			o.endAt = now
		}
		if s.config.Random != nil {
			o.endAt = o.endAt.Add(time.Duration(s.config.Random() * float64(endWithin)))
		}
	}
	o.next = says && o.over(now)
}

// hangUp ends the stream when its time has come and nothing else is to be sent.
func (s *Session) hangUp(now time.Time) *End {
	if !s.outage.over(now) {
		return nil
	}
	waits := func(st state) bool { return st.base().pending() && st.base().blocked(now, s.config.AckTimeout) }
	if slices.ContainsFunc(s.states, waits) {
		return nil
	}
	for _, st := range s.states { // the client may have given up what it waited for
		x := st.base()
		x.sub.Read(func(v fanout.View) { x.starving = starving(v, st.claims) })
	}
	if why := s.starved(); why != nil {
		return &End{Unreachable, why.GetMessage()}
	}
	s.outage.endAt = time.Time{}
	return nil
}

// waitsForReturn reports whether a SotW client whose stream may end is not sent again the version
// that it came with: after a response, a stream that ends makes the client come back at once, again
// and again. The client is marked when upstream is back (DOWN-SOTW-11).
func (s *sotwState) waitsForReturn(v fanout.View) bool {
	if s.moved || s.lastNonce != "" || !s.ends {
		return false
	}
	return s.came != "" && unavailable(v) && s.came == versionOf(v)
}

// unavailable reports whether something that the client asks for cannot be had just now.
func unavailable(v fanout.View) bool {
	named, set := v.Unavailable()
	if len(v.Names()) > 0 && named != nil {
		return true
	}
	return set != nil && wildcard(v)
}
