package session

import (
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
)

// Responses that are too large for a Delta client are split (DOWN-DELTA-18). A resource that is
// too large by itself has been left out before (toolarge.go).

// chunk is a part of a response, or all of it.
type chunk struct {
	*Response
	x        *exchange
	position cache.Seq
	answer   bool
	begun    bool // it is not the first part
	changes  bool // it adds or changes resources
}

// chunk returns the next part of the response that is being sent. All parts are one push, which
// begins with the first part and is accepted with the last (DOWN-DELTA-15).
func (s *Session) chunk(now time.Time) *Response {
	c := s.chunks[0]
	s.chunks = slices.Delete(s.chunks, 0, 1)
	s.verdicts++
	c.At, c.Partial = now, len(s.chunks) > 0
	c.Nonce = c.x.nonce(c.position, c.answer, len(s.chunks), &s.counter)
	c.x.sending(c.Nonce, c.Version, c.position, c.answer || c.begun, c.Partial, c.changes, c.Response.list(), now)
	return c.Response
}

// fit splits a response into parts that the client can take.
func (s *Session) fit(r *Response, x *exchange, sp *speaker) []chunk {
	whole := append(s.chunks[:0], chunk{Response: r, x: x, position: sp.position, answer: sp.answer, changes: sp.adds && len(sp.changed) > 0})
	if s.config.MaxResponse == 0 || !r.Delta {
		return whole
	}
	most := uint64(len(r.Resources)+len(r.Heartbeats)+len(r.Removed)+len(r.Errors)) + 1
	frame := len(r.AppendFixed(nil)) + x.nonceSize(sp.position, s.counter+most, most)
	parts := r.split(s.config.MaxResponse - frame)
	if len(parts) == 1 {
		return whole
	}
	chunks := make([]chunk, len(parts))
	for i, part := range parts {
		chunks[i] = whole[0]
		chunks[i].Response, chunks[i].begun = part, i > 0
	}
	return chunks
}

// nonceSize returns the size of a nonce in bytes, given the greatest numbers that it may have.
func (x *exchange) nonceSize(position cache.Seq, counter, parts uint64) int {
	const marks = len("..-")
	return sizeOf(deltaNonce, len(x.short)+marks+digits(uint64(position))+digits(counter)+digits(parts))
}

// split distributes the contents of a response over as few parts as their order permits. A name
// or an error that is larger than the room has a part of its own.
func (r *Response) split(room int) []*Response {
	var parts []*Response
	free, begun := 0, false
	into := func(size int) *Response {
		if len(parts) == 0 || begun && size > free {
			next := *r
			next.Resources, next.Heartbeats, next.Removed, next.Errors, next.Oversized = nil, nil, nil, nil, nil
			parts, free = append(parts, &next), room
		}
		free, begun = free-size, size > 0
		return parts[len(parts)-1]
	}
	into(0).Oversized = r.Oversized
	for _, res := range r.Resources {
		p := into(r.sizeOf(res))
		p.Resources = append(p.Resources, res)
	}
	for _, res := range r.Heartbeats {
		p := into(sizeOf(fieldResources, len(res.Heading())+maxTTL))
		p.Heartbeats = append(p.Heartbeats, res)
	}
	for _, name := range r.Removed {
		p := into(sizeOf(deltaRemoved, len(name)))
		p.Removed = append(p.Removed, name)
	}
	for _, e := range r.Errors {
		p := into(sizeOf(deltaErrors, proto.Size(e)))
		p.Errors = append(p.Errors, e)
	}
	return parts
}

// sizeOf returns the greatest size of a resource in the response, in bytes.
func (r *Response) sizeOf(res *cache.Resource) int {
	_, limited := r.Ends[res]
	return sizeOfResource(res, r.Delta, limited)
}

// sizeOfResource returns the greatest size of a resource in a response. limited says that it has
// a TTL.
func sizeOfResource(res *cache.Resource, delta, limited bool) int {
	switch {
	case limited && delta:
		return sizeOf(fieldResources, len(res.Content())+maxTTL)
	case limited:
		return sizeOf(fieldResources, sizeOf(anyTypeURL, len(wrapperType))+sizeOf(anyValue, len(res.Content())+maxTTL))
	case delta:
		return len(res.Element())
	}
	return len(res.Body())
}

// sizeOf returns the size of a field whose value has n bytes.
func sizeOf(field protowire.Number, n int) int {
	return protowire.SizeTag(field) + protowire.SizeBytes(n)
}
