package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// TestLate: a client is late that owes an ACK for long, or has not been sent what is old; one that has rejected is not.
func TestLate(t *testing.T) {
	f := followIn(t, "east", "a", "*")
	is := func(what string, ago time.Duration, want string) {
		t.Helper()
		got := ""
		for _, l := range f.s.Late(f.now.Add(-ago)) {
			got = fmt.Sprintf("%d behind in %s", l.Behind, l.Group)
			if !l.Owes.IsZero() {
				got += fmt.Sprintf(", owes since %d", l.Owes.Unix())
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	later := func(s int) { f.now = f.now.Add(time.Duration(s) * time.Second) }
	f.sends()
	later(100)
	is("nothing is there", time.Second, "")
	f.changes(false, "1", nil, "a")
	f.changes(true, "1", nil, "m")
	later(5)
	x := f.s.states[0].base()
	x.sub.Read(func(v fanout.View) { f.s.take(x, v.Marks()) }) // and something else holds it back
	is("not sent", 4*time.Second, "2 behind in east")
	is("not for long", 6*time.Second, "")
	f.sends()
	is("sent", 4*time.Second, "")
	later(5)
	is("it does not answer", 4*time.Second, "2 behind in east, owes since 1105")
	f.answers("no")
	later(5)
	is("rejected", time.Second, "")
	if !f.s.Rejects(cache.Cluster) || f.s.Rejects(cache.Listener) || f.s.GroupOf(cache.Cluster) != "east" || f.s.GroupOf(cache.Listener) != "" {
		t.Error("it does not reject clusters, or others")
	}
	f.changes(false, "2", nil, "a")
	f.changes(true, "2", nil, "m")
	f.sends()
	f.answers("")
	later(5)
	is("accepted", time.Second, "")
	if f.s.Rejects(cache.Cluster) {
		t.Error("it rejects what it has accepted")
	}
}

// BenchmarkLate is what a look at a client costs that is in step. The relay looks at each every few seconds.
func BenchmarkLate(b *testing.B) {
	f := follow(&testing.T{}, "a", "*")
	f.changes(false, "1", nil, "a")
	f.changes(true, "1", nil, "m")
	f.sends()
	f.answers("")
	b.ReportAllocs()
	for range b.N {
		if len(f.s.Late(f.now)) > 0 {
			b.Fatal("it is late")
		}
	}
}
