package downstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/xds-relay/xds-relay/downstream/session"
)

// bodies are the requests of clients that poll while they are read. As those over gRPC they have a bound together
// (VALID-8); but here a request for which there is no room is refused, since its client polls again.
type bodies struct {
	server *Server

	mu   sync.Mutex
	used int
	by   map[string]int // of each holder
}

const (
	// smallBody is the size up to which a request is not counted.
	smallBody = 20 << 10
	// bodyWithin is how long a request may take, and a second more for each MiB that has come.
	bodyWithin = 10 * time.Second
)

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// body is a request that was read.
type body struct {
	*bytes.Buffer
	holder string
	took   int // of the bound
}

// read reads a request.
func (b *bodies) read(w http.ResponseWriter, req *http.Request, holder string) (*body, *refusal) {
	limit := int64(b.server.config.MaxRequest)
	if limit > 0 {
		req.Body = http.MaxBytesReader(w, req.Body, limit)
	}
	if limit > 0 && req.ContentLength > limit {
		return nil, refused(tooLarge(int(min(req.ContentLength, maxInt32)), int(limit)))
	}
	in := &body{buffers.Get().(*bytes.Buffer), holder, 0}
	in.Reset()
	controller, begin := http.NewResponseController(w), time.Now()
	for {
		_ = controller.SetReadDeadline(begin.Add(bodyWithin + time.Duration(in.Len()>>20)*time.Second)) // an error means that the client is gone
		n, err := io.CopyN(in, req.Body, smallBody)
		if n == smallBody && !b.take(in, smallBody) {
			b.drop(in)
			return nil, &refusal{code: http.StatusServiceUnavailable, message: "xds-relay: the requests of clients that poll take as much memory as they may; see downstream.max_inflight_bytes"}
		}
		switch {
		case errors.Is(err, io.EOF):
			_ = controller.SetReadDeadline(time.Time{})
			return in, nil
		case err != nil:
			b.drop(in)
			return nil, unread(err, limit)
		}
	}
}

const maxInt32 = 1<<31 - 1

// unread says why a request was not read.
func unread(err error, limit int64) *refusal {
	if tooMuch := (*http.MaxBytesError)(nil); errors.As(err, &tooMuch) {
		return &refusal{code: http.StatusRequestEntityTooLarge, message: fmt.Sprintf("xds-relay: the request exceeds the limit of %d bytes; raise downstream.max_request_bytes", limit)}
	}
	if late := net.Error(nil); errors.As(err, &late) && late.Timeout() {
		return refused(&session.End{Reason: session.HalfSent, Message: fmt.Sprintf("a request is not complete %v after it began, and a second for each MiB; send it again", bodyWithin)})
	}
	return &refusal{code: http.StatusBadRequest, message: "xds-relay: the request could not be read: " + err.Error()}
}

// take reports whether a request may take n bytes more: all together as much as MaxInflight, and one holder half of it.
func (b *bodies) take(in *body, n int) bool {
	most := b.server.config.MaxInflight
	if most == 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > most || b.by[in.holder]+n > most/2 {
		return false
	}
	if b.by == nil {
		b.by = make(map[string]int)
	}
	b.used += n
	b.by[in.holder] += n
	in.took += n
	return true
}

// drop gives back what a request has taken.
func (b *bodies) drop(in *body) {
	if in.took > 0 {
		b.mu.Lock()
		b.used -= in.took
		if b.by[in.holder] -= in.took; b.by[in.holder] == 0 {
			delete(b.by, in.holder)
		}
		b.mu.Unlock()
		return // so large a buffer is not kept
	}
	buffers.Put(in.Buffer)
}

// give gives back the request of a poll. Its caller does not look at it any more.
func (b *bodies) give(q *poll) {
	if q.body != nil {
		b.drop(q.body)
		q.body = nil
	}
}
