package session

import (
	"fmt"
	"slices"

	"github.com/xds-relay/xds-relay/internal/header"
)

// maxForwarded bounds the headers of a stream that are forwarded upstream, in bytes, names
// included (NODE-13).
const maxForwarded = 8 << 10

// Sent takes in the headers of a client's stream. The relay keeps those that it forwards, with
// all values in their order, and the name of a withheld credential.
func (p *Peer) Sent(headers map[string][]string, c *Config) {
	p.Headers, p.Withheld = nil, ""
	for _, name := range c.ForwardHeaders {
		for _, value := range headers[name] {
			p.Headers = append(p.Headers, header.Header{Name: name, Value: header.Value(value)})
		}
	}
	for name := range headers {
		first := p.Withheld == "" || name < p.Withheld // always the same of several
		if first && header.Credential(name) && !slices.Contains(c.ForwardHeaders, name) {
			p.Withheld = name
		}
	}
}

// CannotGoUp refuses headers that no upstream stream could carry.
func CannotGoUp(headers []header.Header) *End {
	size := 0
	for _, h := range headers {
		if size += len(h.Name) + len(h.Value); !h.Value.Printable() {
			return &End{BadRequest, fmt.Sprintf("the header %s of this stream is not printable ASCII, and cannot be forwarded", h.Name)}
		}
	}
	if size > maxForwarded {
		return &End{BadRequest, fmt.Sprintf("the headers of this stream that are forwarded have %d bytes, more than %d: see groups.forward_headers", size, maxForwarded)}
	}
	return nil
}
