package session

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
)

// Responses that are too large for a client: Delta ones are split, and a resource
// that is too large by itself is left out (DOWN-DELTA-18, ERR-13).

// chunk is a part of a response, or all of it.
type chunk struct {
	*Response
	x        *exchange
	position cache.Seq
	answer   bool
	begun    bool // others went before it
	left     int  // others follow
	changes  bool // it adds or changes resources
}

// chunk hands over the next part of what is under way. All parts are one push: it
// began with the first, and is accepted with the last (DOWN-DELTA-15).
func (s *Session) chunk(now time.Time) *Response {
	c := s.chunks[0]
	s.chunks = slices.Delete(s.chunks, 0, 1)
	s.verdicts++
	c.At, c.Partial = now, c.left > 0
	c.Nonce = c.x.nonce(c.position, c.answer, c.left, &s.counter)
	c.x.sending(c.Nonce, c.Version, c.position, c.answer || c.begun, c.left > 0, c.changes, c.Response.list(), now)
	return c.Response
}

// fit makes a response into parts that the client can take.
func (s *Session) fit(r *Response, x *exchange, sp *speaker) []chunk {
	whole := append(s.chunks[:0], chunk{Response: r, x: x, position: sp.position, answer: sp.answer, changes: sp.adds && len(sp.changed) > 0})
	if s.config.MaxResponse == 0 {
		return whole
	}
	room := s.config.MaxResponse - frameSize(r) - s.nonceSize(r, x, sp.position)
	if r.contentSize() <= room {
		return whole
	}
	if r.Delta || !x.full {
		sp.tooLarge = r.leaveOut(room, s.config.MaxResponse)
	}
	if !r.Delta {
		return whole
	}
	parts := r.split(room)
	chunks := make([]chunk, len(parts))
	for i, part := range parts {
		chunks[i] = whole[0]
		chunks[i].Response, chunks[i].begun, chunks[i].left = part, i > 0, len(parts)-1-i
	}
	return chunks
}

// nonceSize bounds what the nonce of any part takes, in bytes.
func (s *Session) nonceSize(r *Response, x *exchange, position cache.Seq) int {
	parts := uint64(len(r.Resources)+len(r.Heartbeats)+len(r.Removed)+len(r.Errors)) + 1
	digits := func(n uint64) int { return len(strconv.FormatUint(n, 10)) }
	const marks = len("..-")
	return sizeOf(deltaNonce, len(x.short)+marks+digits(uint64(position))+digits(s.counter+parts)+digits(parts))
}

// leaveOut takes out the resources that are too large by themselves. They are
// named, to wildcard clients too: unlike an error of upstream's (ERR-9) this one is
// about the client itself, and silence would let it think that it has them all.
func (r *Response) leaveOut(room, limit int) (out []*cache.Resource) {
	fitting := make([]*cache.Resource, 0, len(r.Resources))
	for _, res := range r.Resources {
		size := r.sizeOf(res)
		if size <= room {
			fitting = append(fitting, res)
			continue
		}
		out = append(out, res)
		r.Oversized = append(r.Oversized, Oversized{Name: res.Name, Bytes: size})
		r.Errors = append(r.Errors, resourceError(res.Name, &statuspb.Status{
			Code:    cache.ResourceExhausted,
			Message: fmt.Sprintf("xds-relay: the resource takes %d bytes, and a response at most %d (downstream.max_response_bytes)", size, limit),
		}))
	}
	r.Resources = fitting
	return out
}

// split distributes what a response says over as few parts as its order permits. A
// name or an error that exceeds the room by itself has a part of its own.
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
		p := into(r.sizeOfHeartbeat(res))
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

// contentSize is what a response says, in bytes at most.
func (r *Response) contentSize() (size int) {
	for _, res := range r.Resources {
		size += r.sizeOf(res)
	}
	for _, res := range r.Heartbeats {
		size += r.sizeOfHeartbeat(res)
	}
	for _, name := range r.Removed {
		size += sizeOf(deltaRemoved, len(name))
	}
	for _, e := range r.Errors {
		size += sizeOf(deltaErrors, proto.Size(e))
	}
	return size
}

func (r *Response) sizeOfHeartbeat(res *cache.Resource) int {
	return sizeOf(fieldResources, len(res.Heading())+maxTTL)
}

// sizeOf is what a resource takes in the response at most, in bytes.
func (r *Response) sizeOf(res *cache.Resource) int {
	switch _, limited := r.Ends[res]; {
	case limited && r.Delta:
		return sizeOf(fieldResources, len(res.Content())+maxTTL)
	case limited:
		return sizeOf(fieldResources, sizeOf(anyTypeURL, len(wrapperType))+sizeOf(anyValue, len(res.Content())+maxTTL))
	case r.Delta:
		return len(res.Element())
	}
	return len(res.Body())
}

// sizeOf is what a field takes whose value has that many bytes.
func sizeOf(field protowire.Number, n int) int {
	return protowire.SizeTag(field) + protowire.SizeBytes(n)
}

// frameSize is what a response takes without its nonce and its contents.
func frameSize(r *Response) int {
	empty := &Response{Delta: r.Delta, Type: r.Type, Version: r.Version, Identifier: r.Identifier}
	return len(empty.Head())
}
