package rest

import (
	"context"
	"slices"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/header"
)

// stream is one of the relay's.
type stream struct {
	source  *Source
	memory  *memory
	node    *core.Node
	headers []header.Header
	hub     *fanout.Hub
	end     func(*session.End)
	ctx     context.Context //nolint:containedctx // its pollers end with it
	cancel  context.CancelFunc
	types   int           // that it has joined with; guarded by Source.mu
	wake    chan struct{} // one slot

	pollers map[fanout.Lane]*poller // run's own
}

func newStream(s *Source, m *memory, peer session.Peer, node *core.Node) *stream {
	st := &stream{
		source: s, memory: m, node: shown(node), headers: peer.Headers, end: peer.End,
		hub:  fanout.NewHub(fanout.Config{Name: s.o.Name, Types: s.o.Session.Types}),
		wake: make(chan struct{}, 1), pollers: make(map[fanout.Lane]*poller),
	}
	st.ctx, st.cancel = context.WithCancel(s.ctx)
	st.hub.SetIdentifier(s.o.Name)
	st.hub.Wanted().OnWake(func() { poke(st.wake) })
	return st
}

// takesTTLs is what a client says of itself that knows TTLs, which are refused here (REST-16).
const takesTTLs = "xds.config.supports-resource-ttl"

// shown is the node that the control plane sees.
func shown(node *core.Node) *core.Node {
	n := proto.CloneOf(node)
	if n != nil {
		n.ClientFeatures = slices.DeleteFunc(n.ClientFeatures, func(f string) bool { return f == takesTTLs })
	}
	return n
}

func poke(slot chan struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}

// fails ends the stream.
func (st *stream) fails(why *session.End) {
	st.cancel()
	st.end(why)
}

// run tells the pollers what is wanted that was not before.
func (st *stream) run() {
	for {
		select {
		case <-st.ctx.Done():
			return
		case <-st.wake:
		}
		wants, _ := st.hub.Changes(time.Now(), func(fanout.Lane) (fanout.Carrier, bool) {
			return fanout.Carrier{Origin: cache.Origin{Entry: st.hub.Name()}}, true
		})
		for lane, i := range wants {
			if len(i.Want) > 0 {
				st.poller(lane).wants()
			}
		}
	}
}

func (st *stream) poller(lane fanout.Lane) *poller {
	p := st.pollers[lane]
	if p == nil {
		p = &poller{stream: st, lane: lane, wake: make(chan struct{}, 1)}
		st.pollers[lane] = p
		st.source.work.Go(p.run)
	}
	return p
}
