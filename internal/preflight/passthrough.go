package preflight

import (
	"context"
	"errors"
	"io"
	"time"

	lrs "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/header"
	"github.com/xds-relay/xds-relay/internal/relay"
)

// goesThrough says of each service that goes through whether the control plane has it, if that can be found out: only of
// load reports is it known how a call of them begins.
func (k *checker) goesThrough(ctx context.Context, t *target, conn *grpc.ClientConn, headers []header.Header) {
	for _, p := range k.config.EffectivePassthrough() {
		name := t.section + ": " + p.Service
		if p.Service != config.LoadReporting {
			k.note(name, "", "not tried, since the relay does not know its methods")
			continue
		}
		err := k.reportLoad(ctx, conn)
		switch text := header.Hide(status.Convert(err).Message(), headers); status.Code(err) {
		case codes.OK:
			k.ok(name, "it does not refuse load reports")
		case codes.Unimplemented:
			k.note(name, "remove it from passthrough, or give it max_calls: 0; clients that call it are told UNIMPLEMENTED", "the control plane lacks it: %s", text)
		default:
			k.note(name, "see the log of the control plane", "%v: %s", status.Code(err), text)
		}
	}
}

// reportLoad begins to report load as the relay's own node, which has none, and returns why that fails. A server need not
// answer at all.
func (k *checker) reportLoad(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(k.o.Within, cancel)
	defer late.Stop()
	s, err := lrs.NewLoadReportingServiceClient(conn).StreamLoadStats(ctx)
	if err != nil {
		return err
	}
	_ = s.Send(&lrs.LoadStatsRequest{Node: relay.NewGrouping(k.config).StaticNode()}) // Recv has the reason
	if _, err = s.Recv(); errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return err
}
