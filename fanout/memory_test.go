package fanout

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// TestBytesPerName guards what it costs that a client has subscribed to a name which
// others have, too: 12 bytes with the client, 8 with the name, and what lists that grow
// keep in reserve.
func TestBytesPerName(t *testing.T) {
	const clients, names, most = 500, 2000, 24
	all := make([]string, names)
	for i := range all {
		all[i] = fmt.Sprint("assignment-", i)
	}
	hub := NewHub(Config{Linger: time.Second})
	subscribe := func() *Subscription {
		s := hub.Subscribe(cache.Endpoint, NewSubscriber(func() {}))
		s.Delta(all, nil, time.Time{})
		return s
	}
	keep := []*Subscription{subscribe()} // the names themselves
	before := liveHeap()
	for range clients {
		keep = append(keep, subscribe())
	}
	got := float64(liveHeap()-before) / (clients * names)
	if got > most {
		t.Errorf("%.1f bytes for each client and name, at most %d are allowed", got, most)
	} else {
		t.Logf("%.1f bytes for each client and name", got)
	}
	runtime.KeepAlive(keep)
}

func liveHeap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what the first one finalizes
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
