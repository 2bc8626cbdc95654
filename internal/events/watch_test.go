package events

import (
	"fmt"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// TestWatch: a watcher is shown what its filter takes, loses the oldest if it does not read, and costs nothing when it
// is gone.
func TestWatch(t *testing.T) {
	w := NewWatch()
	if w.Wants(1, "a", cache.Cluster) || (*Watch)(nil).Watched() {
		t.Error("somebody watches")
	}
	all, err := w.Add(Filter{})
	one, err2 := w.Add(Filter{Stream: 7, Type: cache.Cluster})
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	for i := range 1500 {
		w.Show(Message{Stream: 7, Type: cache.Cluster, Nonce: fmt.Sprint(i)})
	}
	w.Show(Message{Stream: 8, Type: cache.Cluster})
	w.Show(Message{Stream: 7, Type: cache.Listener})
	got, lost := one.Next(t.Context(), time.Second)
	if len(got)+lost != 1500 || lost < 500 || len(got) > MostMessages || got[len(got)-1].Nonce != "1499" || got[0].Nonce != fmt.Sprint(lost) {
		t.Errorf("%d messages and %d lost", len(got), lost)
	}
	if got, lost := all.Next(t.Context(), time.Second); len(got)+lost != 1502 {
		t.Errorf("%d messages and %d lost", len(got), lost)
	}
	all.Close()
	if w.Wants(8, "", cache.Cluster) || !w.Wants(7, "", cache.Cluster) {
		t.Error("the filter is not asked")
	}
	one.Close()
	if w.Watched() {
		t.Error("nobody is left")
	}
	for range MostWatchers {
		if _, err := w.Add(Filter{Node: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Add(Filter{}); err == nil {
		t.Error("there is no bound")
	}
}

// BenchmarkUnwatched is what each message costs while nobody watches.
func BenchmarkUnwatched(b *testing.B) {
	w := NewWatch()
	for range b.N {
		if w.Wants(1, "node", cache.Cluster) {
			b.Fatal("somebody watches")
		}
	}
}
