package relay

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/test/xdstest"
)

// receipts counts what came from a control plane.
type receipts struct {
	t     *testing.T
	bytes atomic.Int64
}

func (r *receipts) UpstreamReceived(entry string, bytes int) {
	if entry != "127.0.0.1:1" {
		r.t.Errorf("%d bytes came from %s", bytes, entry)
	}
	r.bytes.Add(int64(bytes))
}

// TestReceived: what a control plane sends is counted, to the bytes of its frames.
func TestReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := config.Load("", []string{"upstream.address=127.0.0.1:1", "upstream.coalesce_window=0s", "timers.settle=0s"})
		if err != nil {
			t.Fatal(err)
		}
		seen := &receipts{t: t}
		w := &world{t: t, up: xdstest.NewNetwork(), down: xdstest.NewNetwork()}
		w.plane = xdstest.NewControlPlane(w.up.Listener())
		if w.relay, err = New(c, Options{Dial: w.up.Dial, Received: seen}); err != nil {
			t.Fatal(err)
		}
		w.relay.Serve(w.down.Listener())
		w.open(w.dial(), "c", false)
		time.Sleep(time.Second)
		before := seen.bytes.Load()
		long := strings.Repeat("n", 4000)
		w.respond("CDS %s@1", long)
		time.Sleep(time.Second)
		if got := seen.bytes.Load() - before; got < 4000 || got > 9000 { // the name is in the resource and in its body
			t.Errorf("%d bytes came, for a response with a name of 4,000", got)
		}
		for _, conn := range w.conns {
			conn.Close()
		}
		w.clients.Wait()
		w.relay.Close(0)
		w.plane.Stop()
	})
}
