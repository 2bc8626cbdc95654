package session

import (
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
)

// Nearly all that clients say is that they accept a response: a type and a nonce, for
// each change and client. Such a request is read without a message being made of it.

// Bare is a request that names a type and a nonce, and maybe a version. Its bytes are
// good until the next one is read.
type Bare struct {
	raw            []byte
	TypeURL, Nonce []byte // of raw
}

// maxBare bounds what is kept of a request for the next one, in bytes: what is larger is
// no ACK of ours.
const maxBare = 1 << 10

// requestFields are the field numbers of what an ACK has; 0, of which there is no field,
// for what its message lacks.
type requestFields struct{ version, typeURL, nonce protowire.Number }

var (
	deltaFields = requestFields{typeURL: 2, nonce: 6}             // of DeltaDiscoveryRequest
	sotwFields  = requestFields{version: 1, typeURL: 4, nonce: 5} // of DiscoveryRequest
)

// Read reports whether a request is bare, and if so keeps it.
func (b *Bare) Read(data []byte, delta bool) bool {
	if len(data) > maxBare {
		return false
	}
	fields := sotwFields
	if delta {
		fields = deltaFields
	}
	type span struct{ from, to int }
	var typeURL, nonce span
	for at := 0; at < len(data); {
		field, kind, n := protowire.ConsumeTag(data[at:])
		if n < 0 || kind != protowire.BytesType {
			return false
		}
		value, m := protowire.ConsumeBytes(data[at+n:])
		if m < 0 {
			return false
		}
		at += n + m
		found := span{at - len(value), at}
		switch field {
		case fields.typeURL:
			typeURL = found
		case fields.nonce:
			nonce = found
		case fields.version: // of an ACK, its nonce says as much
		default:
			return false
		}
	}
	if typeURL.from == typeURL.to || nonce.from == nonce.to {
		return false
	}
	b.raw = append(b.raw[:0], data...)
	b.TypeURL, b.Nonce = b.raw[typeURL.from:typeURL.to], b.raw[nonce.from:nonce.to]
	return true
}

// Message is the same as a message, if it is one: Read has not looked whether its strings
// are UTF-8, which must not go upstream if they are not.
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

// Ack takes in a bare request if it accepts a response and changes nothing else. If
// not, ok is false, and nothing has happened. Of a type that was not asked for no
// response is known.
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
	note = x.verdict(nonce, nil, now)
	note.Charged = s.charge(nonce, false)
	return note, true
}

// acks: a request with this nonce, and no names, changes no interest. A SotW request lists
// all names: one without keeps them only if there were none. One for endpoints may ask
// for them again (ORDER-5).
func (s *sotwState) acks(nonce string) bool {
	return len(s.names) == 0 && nonce == s.lastNonce && s.url != cache.Endpoint
}
