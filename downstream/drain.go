package downstream

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/xds-relay/xds-relay/downstream/session"
)

// SetDraining refuses new streams and fetches with UNAVAILABLE, or takes them in again. It ends none, and does not
// change the answer to health checks: see SendAway and SetReady.
func (s *Server) SetDraining(draining bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = draining
}

// SendAway ends the open streams in random order, spread over a time, as Close does (ERR-14), while the Server goes on.
// Their connections are told to take no further streams, because a client would come back on the same one. It returns
// when all of them were told to end, or when ctx ends.
func (s *Server) SendAway(ctx context.Context, spread time.Duration) {
	s.sendOff(ctx, spread, drained())
}

// leaving says why nothing new is taken in while the Server ends or is drained. It is called with mu held, so that no
// stream comes after those that sendOff knows.
func (s *Server) leaving() *session.End {
	switch {
	case s.stopping:
		return shuttingDown()
	case s.draining:
		return drained()
	}
	return nil
}

// sendOff ends the open streams, and calls that go through, for a reason, in random order and spread over a time, until ctx ends.
func (s *Server) sendOff(ctx context.Context, spread time.Duration, why *session.End) {
	var streams []departing
	for _, st := range s.open() {
		streams = append(streams, departing{st.grpc.Context(), st})
	}
	for _, p := range s.passed() {
		streams = append(streams, departing{p.ctx, p})
	}
	rand.Shuffle(len(streams), func(i, j int) { streams[i], streams[j] = streams[j], streams[i] })
	begin := time.Now()
	for i, st := range streams {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(begin.Add(spread * time.Duration(i) / time.Duration(len(streams))))):
		}
		sendAway(st.ctx, why)
		st.end(why)
	}
}

// departing is a stream, or a call that goes through, that is to end.
type departing struct {
	ctx context.Context //nolint:containedctx // it says which stream gRPC carries
	served
}

func shuttingDown() *session.End {
	return &session.End{Reason: session.ShuttingDown, Message: "xds-relay: shutting down; connect again, to another replica if there is one"}
}

func drained() *session.End {
	return &session.End{Reason: session.Drained, Message: "xds-relay: an operator drains this relay; connect to another replica"}
}
