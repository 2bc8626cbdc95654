package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/xds-relay/xds-relay/internal/descriptors"
)

// Streams of server-sent events, which do not end by themselves.

const (
	// maxStreams bounds them, so that they leave room on the endpoint for requests that end.
	maxStreams = 64
	// heartbeat is how often one that has nothing to say says so. patience is how long a write may wait for the reader.
	heartbeat = 15 * time.Second
	patience  = 10 * time.Second
)

// streams counts the streams that are open.
type streams struct {
	open atomic.Int32
	most int32
}

func newStreams() *streams {
	return &streams{most: int32(min(maxStreams, descriptors.ForHTTP(descriptors.Limit())/2))}
}

// sse is a stream of server-sent events to one reader.
type sse struct {
	w       http.ResponseWriter
	control *http.ResponseController
	close   func()
}

// stream begins a stream, or answers that there is no room. The caller closes it in the end.
func (s *streams) stream(w http.ResponseWriter) *sse {
	if s.open.Add(1) > s.most {
		s.open.Add(-1)
		w.Header().Set("Connection", "close")
		w.Header().Set("Retry-After", "10")
		http.Error(w, fmt.Sprintf("%d streams of events are open, and no more may be; close one of them, or ask without follow", s.most), http.StatusServiceUnavailable)
		return nil
	}
	e := &sse{w: w, control: http.NewResponseController(w), close: func() { s.open.Add(-1) }}
	_ = e.control.SetReadDeadline(time.Time{}) // that of the request, which has been read
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	return e
}

// say sends an event; the id may be 0, and name empty. It reports whether the reader is still there.
func (e *sse) say(id uint64, name string, v any) bool {
	data, err := json.Marshal(v)
	if err != nil {
		return false
	}
	text := ""
	if id != 0 {
		text = fmt.Sprintf("id: %d\n", id)
	}
	if name != "" {
		text += "event: " + name + "\n"
	}
	return e.write(text + "data: " + string(data) + "\n\n")
}

// beat says that there is nothing to say.
func (e *sse) beat() bool { return e.write(": nothing new\n\n") && e.flush() }

func (e *sse) write(text string) bool {
	_ = e.control.SetWriteDeadline(time.Now().Add(patience))
	_, err := e.w.Write([]byte(text))
	return err == nil
}

func (e *sse) flush() bool { return e.control.Flush() == nil }

// lost is what a reader is told who was too slow.
type lost struct {
	Lost int `json:"lost"`
}

// follow says what next returns, until the reader has gone. next waits for a while at most; what it returns is
// said, and if that is nothing, the stream's heart beats.
func follow[T any](ctx context.Context, e *sse, next func() ([]T, int), id func(T) uint64) {
	alive := e.write(": xds-relay\n\n") && e.flush()
	for alive && ctx.Err() == nil {
		batch, missed := next()
		if len(batch)+missed == 0 {
			alive = e.beat()
			continue
		}
		if missed > 0 {
			alive = e.say(0, "lost", lost{missed})
		}
		for _, v := range batch {
			alive = alive && e.say(id(v), "", v)
		}
		alive = alive && e.flush()
	}
}
