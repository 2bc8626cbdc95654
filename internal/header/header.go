// Package header owns what a header of a stream may be called and what it may hold, and the form in which the
// relay carries one: its value does not print (NODE-13).
//
// It never reads a file, and never decides who is sent which header. Limitations: no binary headers, whose names end
// in -bin, and values of printable ASCII only, as gRPC has it.
package header

import (
	"fmt"
	"slices"
	"strings"

	"github.com/xds-relay/xds-relay/internal/hop"
)

// Header is one header with one value. A name that has several values stands several times, in their order.
type Header struct {
	Name  string
	Value Value
}

// Value is the value of a header. Most are credentials, so a Value never prints itself, not even as part
// of something that is printed.
type Value string

// hidden stands for a value wherever one would print.
const hidden = "[redacted]"

func (v Value) String() string {
	if v == "" {
		return ""
	}
	return hidden
}

// GoString is what %#v shows.
func (v Value) GoString() string { return fmt.Sprintf("%q", v.String()) }

// MarshalText is what JSON and YAML show.
func (v Value) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Credential reports whether clients use a header of this name to prove who they are. No such name is longer than
// a metric's label may be.
func Credential(name string) bool {
	const longest = 64
	return name == "authorization" || len(name) <= longest && strings.HasPrefix(name, "x-") && strings.HasSuffix(name, "-token")
}

// reserved are names that gRPC writes itself, or that HTTP/2 forbids.
var reserved = []string{
	"content-type", "user-agent", "te", "host", "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade",
	"content-length",
}

// CheckName says why a header of this name cannot be sent, and what to do; problem is empty if it can.
func CheckName(name string) (problem, hint string) {
	switch {
	case name == "":
		return "is empty", "for example authorization"
	case name != strings.ToLower(name):
		return "is not in lower case", "write " + strings.ToLower(name)
	case strings.HasPrefix(name, ":"), strings.HasPrefix(name, "grpc-"), slices.Contains(reserved, name):
		return "belongs to gRPC itself", "leave it out"
	case strings.HasPrefix(name, hop.Prefix):
		return "is one of the relay's own", "leave it out; relays send it by themselves"
	case strings.HasSuffix(name, "-bin"):
		return "would be a binary header", "use a name that does not end in -bin"
	case strings.IndexFunc(name, func(r rune) bool { return !inName(r) }) >= 0:
		return "cannot be the name of a header", "use letters, digits, -, _ and . only"
	}
	return "", ""
}

func inName(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.'
}

// Printable reports whether gRPC sends a value as it is.
func (v Value) Printable() bool {
	return strings.IndexFunc(string(v), func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// secretLength is the least length of a word that is taken for a secret: "Bearer" is none.
const secretLength = 8

// Hide removes the values from a text, since some servers repeat in an error the value that
// they refuse.
func Hide(text string, headers []Header) string {
	for _, h := range headers {
		for word := range strings.FieldsSeq(string(h.Value)) {
			if len(word) >= secretLength {
				text = strings.ReplaceAll(text, word, hidden)
			}
		}
	}
	return text
}
