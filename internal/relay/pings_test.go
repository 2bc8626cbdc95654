package relay

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// TestClientsPings: a client may ping as often as downstream.keepalive_min says. If it does so more often its
// connection ends, so that pings cost the relay little.
func TestClientsPings(t *testing.T) {
	for _, tt := range []struct {
		name  string
		sets  []string
		every time.Duration
		ends  bool
	}{
		{"every 5 s", nil, 5 * time.Second, false},
		{"every 4 s", nil, 4 * time.Second, true},
		{"every 4 s, which is allowed", []string{"downstream.keepalive_min=4s"}, 4 * time.Second, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, tt.sets, func(w *world) {
				conn, err := w.down.Dial(context.Background(), "")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
					t.Fatal(err)
				}
				pings, answers := http2.NewFramer(conn, nil), http2.NewFramer(conn, conn)
				if err := pings.WriteSettings(); err != nil {
					t.Fatal(err)
				}
				var ended atomic.Bool
				w.clients.Go(func() {
					for {
						switch f, _ := answers.ReadFrame(); f := f.(type) {
						case nil:
							return // the connection is closed
						case *http2.SettingsFrame:
							if !f.IsAck() {
								_ = answers.WriteSettingsAck() // reading tells the error
							}
						case *http2.GoAwayFrame:
							ended.Store(f.ErrCode == http2.ErrCodeEnhanceYourCalm && string(f.DebugData()) == "too_many_pings")
						}
					}
				})
				for range 5 {
					time.Sleep(tt.every)
					_ = pings.WritePing(false, [8]byte{}) // it may have been closed
					synctest.Wait()
				}
				conn.Close()
				if ended.Load() != tt.ends {
					t.Errorf("the connection was ended: %v", ended.Load())
				}
			})
		})
	}
}
