// Package hop owns the convention between relays: by which relays a stream has come (NODE-11), how a relay calls itself
// (DOWN-DELTA-19), and how its nonces say that more of an answer follows (RECON-16).
//
// It never opens a stream, and never decides what is served. Limitation: a way is what streams say of themselves. It
// guards against loops that somebody has configured, not against a peer that lies.
package hop

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The headers in which relays tell each other, and the operator of a control plane, what a stream is.
const (
	// Prefix begins all of their names.
	Prefix = "x-xds-relay-"
	// ViaHeader lists the relays that a stream has come through (NODE-11).
	ViaHeader = Prefix + "via"
	// StreamHeader says which of the relay's streams it is.
	StreamHeader = Prefix + "stream"
)

// mark separates the relays of a way; no id contains it.
const mark = ","

// most is how many relays a stream may have come through, and longest the length of an id in bytes.
// Ids go up with a group's streams, whose headers a control plane takes as a whole or not at all.
const (
	most    = 8
	longest = 64
)

// NewID makes the id of a relay on the way of streams: its name, for people, and a random suffix. The name alone
// would not do, since two relays on one host have the same by default. A long name is cut.
func NewID(instance string) string {
	var unique [8]byte
	_, _ = rand.Read(unique[:]) // it never fails
	suffix := "/" + hex.EncodeToString(unique[:])
	return strings.ToValidUTF8(instance[:min(len(instance), longest-len(suffix))], "") + suffix
}

// Via are the relays that a stream has come through, the nearest last, as the values of ViaHeader say.
func Via(values []string) (via []string) {
	for _, value := range values {
		for id := range strings.SplitSeq(value, mark) {
			if id = strings.TrimSpace(id); id != "" {
				via = append(via, id)
			}
		}
	}
	return via
}

// Value is what ViaHeader holds for a way.
func Value(via []string) string { return strings.Join(via, mark) }

// Loop says what is wrong with a way by which a stream comes to a relay, and what to do; "": nothing is. up is the
// part of it that would go further up.
func Loop(via, up []string, id string) string {
	way := strings.Join(up, ", ")
	switch tooLong := slices.IndexFunc(up, func(id string) bool { return len(id) > longest }); {
	case slices.Contains(via, id):
		return fmt.Sprintf("this stream has come through relay %q before (by way of %.1000s): break the loop", id, strings.Join(via, ", "))
	case len(up) > most:
		return fmt.Sprintf("this stream has come through %d relays (%.1000s), more than %d: connect clients to a relay nearer to the control plane", len(up), way, most)
	case tooLong >= 0:
		return fmt.Sprintf("the relay %.40q... on the way of this stream has an id of %d bytes, more than %d: give it a shorter instance name", up[tooLong], len(up[tooLong]), longest)
	}
	return ""
}

// identifier begins what a relay calls itself in control_plane.identifier.
const identifier = "xds-relay/"

// Identifier is what a relay calls itself that serves what another control plane says, if that has a name.
func Identifier(instance, of string) string {
	if of == "" {
		return identifier + instance
	}
	return identifier + instance + " [" + of + "]"
}

// IsRelay reports whether a control plane that calls itself so is a relay.
func IsRelay(name string) bool { return strings.HasPrefix(name, identifier) }

// Part is the nonce of one part of an answer, of which so many are to follow.
func Part(nonce string, follow int) string { return nonce + "-" + strconv.Itoa(follow) }

// Last reports whether a relay's nonce is that of the last part of an answer.
func Last(nonce string) bool { return strings.HasSuffix(nonce, "-0") }
