package session

import (
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
)

// Nearly all requests are ACKs: a type and a nonce, for each change and client. Such a request is
// read without decoding it into a message.

// Bare is a request that has a type and a nonce, and maybe a version, but nothing else. Its bytes
// are valid until the next one is read.
type Bare struct {
	raw            []byte
	TypeURL, Nonce []byte // of raw
}

// maxBare bounds the buffer that is kept for the next request, in bytes. A larger request is no
// ACK of a response of the relay.
const maxBare = 1 << 10

// requestFields are the field numbers of an ACK. 0 stands for a field that its message lacks.
type requestFields struct{ version, typeURL, nonce protowire.Number }

var (
	deltaFields = requestFields{typeURL: 2, nonce: 6}             // of DeltaDiscoveryRequest
	sotwFields  = requestFields{version: 1, typeURL: 4, nonce: 5} // of DiscoveryRequest
)

// Read reports whether a request is bare, and if so keeps it. If not, nothing else may be read of b.
func (b *Bare) Read(data []byte, delta bool) bool {
	if len(data) > maxBare {
		return false
	}
	*b = Bare{raw: append(b.raw[:0], data...)}
	fields := sotwFields
	if delta {
		fields = deltaFields
	}
	for rest := b.raw; len(rest) > 0; {
		field, kind, n := protowire.ConsumeTag(rest)
		if n < 0 || kind != protowire.BytesType {
			return false
		}
		value, m := protowire.ConsumeBytes(rest[n:])
		if m < 0 {
			return false
		}
		rest = rest[n+m:]
		switch field {
		case fields.typeURL:
			b.TypeURL = value
		case fields.nonce:
			b.Nonce = value
		case fields.version: // an ACK's nonce says as much
		default:
			return false
		}
	}
	return len(b.TypeURL) > 0 && len(b.Nonce) > 0
}

// Size is that of the request, in bytes.
func (b *Bare) Size() int { return len(b.raw) }

// Message decodes the request. It fails if a string is not UTF-8, which Read does not check and
// which must not go upstream.
func (b *Bare) Message(delta bool) (m proto.Message, end *End) {
	m = new(discovery.DiscoveryRequest)
	if delta {
		m = new(discovery.DeltaDiscoveryRequest)
	}
	if err := proto.Unmarshal(b.raw, m); err != nil {
		return nil, &End{BadRequest, "a request cannot be read: " + err.Error()}
	}
	return m, nil
}

// Ack takes in a bare request if it accepts a response and changes nothing else. If not, ok is
// false and nothing has changed. A type that the client has not asked for has no responses to
// accept.
func (s *Session) Ack(b *Bare, now time.Time) (note Note, ok bool) {
	i := slices.IndexFunc(s.states, func(st state) bool { return string(st.base().url) == string(b.TypeURL) })
	if i < 0 {
		return note, false
	}
	x := s.states[i].base()
	j := slices.IndexFunc(x.unacked, func(u sent) bool { return u.nonce == string(b.Nonce) })
	if j < 0 {
		return note, false
	}
	nonce := x.unacked[j].nonce
	if w, ok := s.states[i].(*sotwState); ok && !w.acks(nonce) {
		return note, false
	}
	note = x.takeAck(nonce, nil, now)
	note.Charged = s.charge(nonce, false)
	return note, true
}

// acks reports whether a request with this nonce and without names changes no interest. A SotW
// request lists all names and locators, so one without any changes nothing only if there were none. A
// request for endpoints may ask for them again (ORDER-5).
func (s *sotwState) acks(nonce string) bool {
	return len(s.names)+len(s.unserved) == 0 && nonce == s.lastNonce && s.api != cache.Endpoint
}
