package relay

import (
	"bytes"
	"context"
	"errors"
	"hash/maphash"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/loadreport"
	"github.com/xds-relay/xds-relay/internal/passthrough"
)

// reporter is a client's call whose reports are added up. It is a downstream.ThroughCall: what would go to the control
// plane goes into the sum, and what would come from there is the group's answer.
type reporter struct {
	group  *loadGroup
	peer   session.Peer
	node   []byte          // as the client has said it, in wire form
	all    bool            // it understands send_all_clusters
	ctx    context.Context //nolint:containedctx // it lasts as long as the call
	stop   context.CancelCauseFunc
	client *loadreport.Client // guarded by the group's mutex

	said  uint64 // the sender's: the hash of the node in the last report that has one
	told  []byte // the receiver's: the answer that it was sent, in wire form
	reads atomic.Pointer[mayRead]
}

// mayRead is which Clusters a client may read, by rules.
type mayRead struct {
	rules *Rules
	may   func(cluster string) bool
}

func newReporter(ctx context.Context, g *loadGroup, o downstream.Opening, all bool) *reporter {
	r := &reporter{group: g, peer: o.Client, node: o.Node, all: all, said: hashOf(o.Node)}
	r.ctx, r.stop = context.WithCancelCause(ctx)
	return r
}

var hashSeed = maphash.MakeSeed()

func hashOf(node []byte) uint64 { return maphash.Bytes(hashSeed, node) }

// may says which Clusters the client may read; nil: all (NODE-15).
func (r *reporter) may() func(string) bool {
	rules := r.group.of.passage.groups.rules.now.Load()
	if rules == nil {
		return nil
	}
	if known := r.reads.Load(); known != nil && known.rules == rules {
		return known.may
	}
	now := &mayRead{rules, func(string) bool { return false }}
	if node, err := passthrough.ReadNode(r.node); err == nil {
		if reads, _, end := rules.Reads(r.peer, node, cache.Cluster); end == nil {
			now.may = reads.Allows
		}
	}
	r.reads.Store(now)
	return now.may
}

// SendMsg adds a report to the sum.
func (r *reporter) SendMsg(m any) error {
	message := m.(*passthrough.Message)
	defer message.Free()
	report := message.Bytes()
	if err := r.stays(report); err != nil {
		r.stop(err)
		return err
	}
	stats, err := loadreport.Decode(report)
	if err != nil {
		end := &session.End{Reason: session.BadRequest, Message: "xds-relay: " + err.Error()}
		r.stop(end)
		return end
	}
	may := r.may()
	r.group.mu.Lock()
	defer r.group.mu.Unlock()
	if r.group.reporters[r] { // else it has left, and nobody would take back what it has in progress
		r.client.Report(stats, may, time.Now())
	}
	return nil
}

// stays says why a report ends the call: its node belongs to another group (NODE-2). Envoy says its node each time.
func (r *reporter) stays(report []byte) error {
	wire, err := passthrough.NodeIn(report)
	if wire == nil || hashOf(wire) == r.said {
		return err
	}
	r.said = hashOf(wire)
	node, err := passthrough.ReadNode(wire)
	if err != nil {
		return err
	}
	if at, end := r.group.of.placeOf(r.peer, node); end != nil {
		return end
	} else if at.name != r.group.name {
		return &session.End{Reason: session.NodeChanged, Message: "xds-relay: the node of a load report has changed so that the client belongs to another group; call again"}
	}
	return nil
}

// RecvMsg waits for an answer that the client does not have.
func (r *reporter) RecvMsg(m any) error {
	for {
		g := r.group
		g.mu.Lock()
		answer, changed := g.answer, g.changed
		g.mu.Unlock()
		if answer != nil {
			if wire := r.answer(answer); r.told == nil || !bytes.Equal(wire, r.told) {
				r.told = wire
				*m.(*passthrough.Message) = *passthrough.MessageOf(wire)
				return nil
			}
		}
		select {
		case <-changed:
		case <-r.ctx.Done():
			return r.why()
		}
	}
}

// answer is an answer as this client gets it: all of it, but names in place of send_all_clusters if it does not understand
// that, and no names that it may not read (LRS-4).
func (r *reporter) answer(a *loadAnswer) []byte {
	may := r.may()
	names := a.GetClusters()
	if a.GetSendAllClusters() {
		if r.all {
			return a.wire
		}
		names = a.names
	} else if may == nil {
		return a.wire
	}
	own := proto.CloneOf(a.LoadStatsResponse)
	own.SendAllClusters = false
	own.Clusters = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return may != nil && !may(name) })
	wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(own)
	if err != nil {
		return a.wire // what came over the wire can be encoded
	}
	return append([]byte{}, wire...) // never nil, as told may be
}

// why is how the call has ended.
func (r *reporter) why() error {
	cause, end := context.Cause(r.ctx), (*session.End)(nil)
	if _, ok := status.FromError(cause); ok || errors.Is(cause, io.EOF) || errors.As(cause, &end) {
		return cause
	}
	return status.FromContextError(r.ctx.Err()).Err()
}

// CloseSend ends the call.
func (r *reporter) CloseSend() error {
	r.stop(io.EOF)
	return nil
}

// Header has none of a control plane's: there may be no call yet.
func (r *reporter) Header() (metadata.MD, error) { return nil, nil }

// Trailer has none either.
func (r *reporter) Trailer() metadata.MD { return nil }

// Context is the call's.
func (r *reporter) Context() context.Context { return r.ctx }

// Leave implements downstream.ThroughCall.
func (r *reporter) Leave() {
	r.stop(nil)
	r.group.leave(r)
}
