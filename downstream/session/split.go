package session

import (
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Responses that are too large for a Delta client are split (DOWN-DELTA-18). A resource that is
// too large by itself has been left out before (toolarge.go).

// chunk returns the next part of the response that is being sent. All parts are one push, which
// begins with the first part and is accepted with the last (DOWN-DELTA-15).
func (s *Session) chunk(now time.Time) *Response {
	r, sp := s.chunks[0], s.chunked
	if s.chunks = slices.Delete(s.chunks, 0, 1); len(s.chunks) == 0 {
		s.chunked = nil
	}
	s.uncounted++
	r.At, r.Partial = now, len(s.chunks) > 0
	x := sp.base()
	r.Nonce = x.nonce(sp.position, sp.answer, len(s.chunks), &s.counter)
	u := sent{nonce: r.Nonce, version: r.Version, seq: sp.position, at: now, partial: r.Partial, changes: len(sp.changed) > 0, listing: r.Listing()}
	if !x.sets && (x.rejected != nil || len(x.unacked) > 0) {
		x.sub.Read(func(v fanout.View) {
			for _, res := range r.Resources {
				u.carries = append(u.carries, v.Changed(res))
			}
		})
	}
	if !r.Partial && r.Source.Measured() {
		u.source = r.Source
	}
	x.sending(u, sp.answer)
	sp.answer = true // the other parts are no push of their own
	x.respell(r)
	return r
}

// fit splits a response into parts that the client can take.
func (s *Session) fit(r *Response, sp *candidate) []*Response {
	if s.config.MaxResponse > 0 && r.Delta {
		most := uint64(len(r.Resources)+len(r.Heartbeats)+len(r.Removed)+len(r.Errors)) + 1
		frame := len(r.AppendFixed(nil)) + sp.base().nonceSize(sp.position, s.counter+most, most)
		if parts := r.split(s.config.MaxResponse - frame); len(parts) > 1 {
			return parts
		}
	}
	return append(s.chunks[:0], r)
}

// nonceSize returns the size of a nonce in bytes, given the greatest numbers that it may have.
func (x *exchange) nonceSize(position cache.Seq, counter, parts uint64) int {
	const marks = len("..-")
	return sizeOf(fieldNonce, len(x.url.Name())+marks+digits(uint64(position))+digits(counter)+digits(parts))
}

// split distributes the contents of a response over as few parts as their order permits. Removals come
// first: what replaces a listener is rejected if it comes before that has gone (ORDER-2). A name or an
// error that is larger than the room has a part of its own.
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
	for _, name := range r.Removed {
		p := into(sizeOf(deltaRemoved, len(name)))
		p.Removed = append(p.Removed, name)
	}
	for _, res := range r.Resources {
		p := into(r.sizeOf(res))
		p.Resources = append(p.Resources, res)
	}
	for _, res := range r.Heartbeats {
		p := into(sizeOf(fieldResources, len(res.Heading())+maxTTL))
		p.Heartbeats = append(p.Heartbeats, res)
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
	return sizeOfResource(res, r.Delta, limited || r.Wrapped)
}

// sizeOfResource returns the greatest size of a resource in a response. limited says that it may have
// a TTL, and has a wrapper.
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
