package downstream

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

// bare is a request that names a type and a nonce and says nothing else. Its bytes are
// good until the next one is read.
type bare struct {
	typeURL, nonce []byte
}

// Field numbers of DeltaDiscoveryRequest and DiscoveryRequest.
const (
	deltaRequestType  = 2
	deltaRequestNonce = 6

	sotwRequestVersion = 1
	sotwRequestType    = 4
	sotwRequestNonce   = 5
)

// read reports whether a request is bare, and if so keeps what it says.
func (b *bare) read(data []byte, delta bool) bool {
	var typeURL, nonce []byte
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 || kind != protowire.BytesType {
			return false
		}
		value, m := protowire.ConsumeBytes(data[n:])
		if m < 0 {
			return false
		}
		data = data[n+m:]
		switch {
		case delta && field == deltaRequestType, !delta && field == sotwRequestType:
			typeURL = value
		case delta && field == deltaRequestNonce, !delta && field == sotwRequestNonce:
			nonce = value
		case !delta && field == sotwRequestVersion: // the nonce says it, too
		default:
			return false
		}
	}
	if len(typeURL) == 0 || len(nonce) == 0 {
		return false
	}
	b.typeURL = append(b.typeURL[:0], typeURL...)
	b.nonce = append(b.nonce[:0], nonce...)
	return true
}

// message is the same as a message.
func (b *bare) message(delta bool) proto.Message {
	if delta {
		return &discovery.DeltaDiscoveryRequest{TypeUrl: string(b.typeURL), ResponseNonce: string(b.nonce)}
	}
	return &discovery.DiscoveryRequest{TypeUrl: string(b.typeURL), ResponseNonce: string(b.nonce)}
}

// ack takes in a bare request if it accepts a response and changes nothing else. If
// not, ok is false, and nothing has happened.
func (s *Session) ack(b *bare, now time.Time) (note Note, ok bool) {
	i := slices.IndexFunc(s.states, func(st state) bool { return string(st.base().url) == string(b.typeURL) })
	if i < 0 {
		return note, false
	}
	x := s.states[i].base()
	j := slices.IndexFunc(x.unacked, func(u sent) bool { return u.nonce == string(b.nonce) })
	if j < 0 || !s.states[i].acks(x.unacked[j].nonce) {
		return note, false
	}
	nonce := x.unacked[j].nonce
	note = Note{Type: x.url, Kind: SubscribeRequest}
	note.judged(x.verdict(nonce, nil, now), nonce, nil)
	note.Charged = s.charge(nonce, false)
	return note, true
}

// acks: a request with this nonce, and nothing else, changes no interest.
func (d *deltaState) acks(string) bool { return d.requested }

// acks is the same. A SotW request lists all names: one without names keeps them only
// if there were none. One for endpoints may ask for them again (ORDER-5).
func (s *sotwState) acks(nonce string) bool {
	return s.requested && len(s.names) == 0 && nonce == s.lastNonce && s.url != cache.Endpoint
}
