package downstream

import (
	"testing"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
)

// TestFollowingNothingCostsNothing: where nobody traces, a response allocates nothing for it.
func TestFollowingNothingCostsNothing(t *testing.T) {
	f := (&Server{}).follow(nil)
	r := &session.Response{Type: cache.Cluster, Source: cache.NewSource(epoch, nil)}
	if n := testing.AllocsPerRun(100, func() {
		f.asks(session.Note{Kind: session.InitialRequest}, nil, epoch)
		p := f.begins(r, 1, epoch)
		f.sent(r, p, 1, epoch)
		f.judged(session.Note{Kind: session.AckRequest})
		f.untold(nil)
		f.over(nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// witness counts what a follower reports.
type witness struct {
	count int
	ends  map[PushEnd]int
	tracer
}

// tracer does nothing.
type tracer struct{ Tracer }

func (o *witness) Pushed(*Push)                { o.count++ }
func (o *witness) Judged(_ *Push, j Judgement) { o.ends[j.End]++ }

// TestEachPushIsJudgedOnce: each push ends once, whatever clients answer.
func TestEachPushIsJudgedOnce(t *testing.T) {
	o := &witness{ends: make(map[PushEnd]int)}
	f := (&Server{config: ServerConfig{Tracer: o}}).follow(&stream{})
	push := func(typ cache.TypeURL, nonce string) {
		r := &session.Response{Type: typ, Nonce: nonce, Source: cache.NewSource(epoch, "trace")}
		f.sent(r, f.begins(r, 1, epoch), 1, epoch)
	}
	for _, nonce := range []string{"1", "2", "3"} {
		push(cache.Cluster, nonce)
		push(cache.Listener, nonce)
	}
	f.judged(session.Note{Kind: session.AckRequest, Type: cache.Cluster, Nonce: "2"})
	f.judged(session.Note{Kind: session.AckRequest, Type: cache.Cluster, Nonce: "1"}) // it is settled
	f.judged(session.Note{Kind: session.NackRequest, Type: cache.Listener, Nonce: "1", Rejected: &session.Rejection{}})
	f.judged(session.Note{Kind: session.SubscribeRequest, Type: cache.Listener, Nonce: "2"})
	if len(f.pushes) != 3 || o.ends[PushAcked] != 1 || o.ends[PushNacked] != 1 || o.ends[PushReplaced] != 1 {
		t.Errorf("%d wait, judged are %v", len(f.pushes), o.ends)
	}
	for range 2 * maxFollowed {
		push(cache.Endpoint, "e")
	}
	if len(f.pushes) != maxFollowed {
		t.Errorf("%d wait, more than %d", len(f.pushes), maxFollowed)
	}
	f.over(nil)
	total := 0
	for _, n := range o.ends {
		total += n
	}
	if total != o.count || o.ends[PushGone] != maxFollowed {
		t.Errorf("%d pushed, judged are %v", o.count, o.ends)
	}
}
