package relay

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/header"
	"github.com/xds-relay/xds-relay/internal/snapshot"
)

// What the headers of clients' streams have to do with groups, and those that the relay
// sends on its own account (NODE-13).

// headerKey is the part of a group's key that is made of its clients' headers. Their
// values are hashed under a secret, since a plain hash of a weak token would let a reader
// check guesses. Without the snapshot's secret the next process cannot find a group
// again.
type headerKey struct {
	names  []string
	secret []byte
	lasts  bool // the secret outlives the relay
}

func newHeaderKey(names []string) headerKey {
	k := headerKey{names: names}
	if len(names) > 0 {
		k.secret = make([]byte, sha256.Size)
		_, _ = rand.Read(k.secret) // it never fails
	}
	return k
}

// of is the part of the key for a client's headers. A missing header is a value of
// its own.
func (k headerKey) of(headers []header.Header) string {
	var text strings.Builder
	for _, name := range k.names {
		fmt.Fprintf(&text, "header.%s=%s;", name, k.hash(name, headers))
	}
	return text.String()
}

func (k headerKey) hash(name string, headers []header.Header) string {
	mac := hmac.New(sha256.New, k.secret)
	absent := true
	write := func(s string) {
		_, _ = mac.Write(binary.AppendUvarint(nil, uint64(len(s)))) // it never fails
		_, _ = mac.Write([]byte(s))
	}
	write(name)
	for _, h := range headers {
		if h.Name == name {
			absent = false
			write(string(h.Value))
		}
	}
	if absent {
		return "absent"
	}
	return fmt.Sprintf("hmac-sha256:%x", mac.Sum(nil))
}

// Under is the same grouping, with hashes of headers under a key that outlives the relay,
// so that the next process finds its groups in the snapshot; nil: there is no such key.
func (g Grouping) Under(key *snapshot.Key) Grouping {
	if key != nil {
		g.headers.secret, g.headers.lasts = key.Derive("groups.forward_headers"), true
	}
	return g
}

// Keeps: what a group holds belongs in the snapshot, since clients can come back to it.
func (g Grouping) Keeps(p Place) bool {
	return !p.Alone && (len(p.Headers) == 0 || g.headers.lasts)
}

// HasDefault: there is a group to which clients belong whatever they say of themselves,
// or might.
func (g Grouping) HasDefault() bool { return len(g.headers.names) == 0 }

// Stays: a group goes on without clients. The default group of an aggregate is where all clients, or
// those without a node, come back to, and where ready_types and the snapshot begin (NODE-10).
func (g Grouping) Stays(name string) bool {
	return name == "" && g.config.Groups.Profile == config.ProfileAggregate
}

// advice is a hint for a control plane that refuses a group: a header that its clients
// send and the relay does not forward may be missing; "": there is none.
func (g Grouping) advice(e config.Fallback, sent []header.Header, withheld string) string {
	const refused = "the control plane refuses the relay; "
	switch {
	case withheld != "":
		return refused + "clients send the header " + withheld + ", which is not forwarded: see groups.forward_headers, and upstream.headers"
	case len(sent) > 0 && !e.ForwardHeaders:
		return refused + "what clients send by groups.forward_headers does not go to this one: see its forward_headers, and its headers"
	case len(sent) > 0, len(e.Headers) > 0, e.TLS.Cert != "", e.TLS.SPIFFE.Enabled():
		return "" // it got a credential, and its own message says what is wrong with it
	case len(g.headers.names) > 0:
		return refused + "clients of this group send none of groups.forward_headers"
	default:
		return refused + "it is shown no credentials: see upstream.headers, groups.forward_headers and upstream.tls.cert"
	}
}

// OwnHeaders reads the headers that the relay sends to an entry, by their names in order;
// nil: there are none.
func OwnHeaders(e config.Fallback) func() ([]header.Header, error) { return ReadHeaders(e.Headers) }

// ReadHeaders reads headers of the relay's own, as OwnHeaders does.
func ReadHeaders(of map[string]config.Header) func() ([]header.Header, error) {
	if len(of) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(of))
	return func() (headers []header.Header, _ error) {
		for _, name := range names {
			value, err := of[name].Read()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			headers = append(headers, header.Header{Name: name, Value: value})
		}
		return headers, nil
	}
}
