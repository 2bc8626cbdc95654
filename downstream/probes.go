package downstream

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/xds-relay/xds-relay/downstream/session"
)

// probe takes in a request of gRPC's health service, or the reason why it is refused. It holds the name
// of a service.
type probe struct {
	request any
	refused *session.End
	from    receiver
}

// maxProbe bounds it, in bytes.
const maxProbe = 4 << 10

func (p *probe) unmarshal(size int, into func(any) error) error {
	defer p.from.takenIn(size)
	if size > maxProbe {
		p.refused = &session.End{Reason: session.OverLimit, Message: fmt.Sprintf("a health check of %d bytes exceeds the limit of %d", size, maxProbe)}
		return nil
	}
	return into(p.request)
}

// offerHealth offers gRPC's health service, with the bounds that hold for all requests.
func (s *Server) offerHealth() {
	desc := healthpb.Health_ServiceDesc
	desc.Methods, desc.Streams = slices.Clone(desc.Methods), slices.Clone(desc.Streams)
	for i, method := range desc.Methods {
		desc.Methods[i].Handler = func(srv any, ctx context.Context, decode func(any) error, by grpc.UnaryServerInterceptor) (any, error) {
			c, err := s.startProbe(ctx)
			if err != nil {
				return nil, err
			}
			defer c.close()
			return method.Handler(srv, ctx, func(into any) error { return receiveProbe(decode, into, c) }, by)
		}
	}
	for i, stream := range desc.Streams {
		desc.Streams[i].Handler = func(srv any, g grpc.ServerStream) error {
			c, err := s.startProbe(g.Context())
			if err != nil {
				return err
			}
			defer c.close()
			return stream.Handler(srv, probed{g, c})
		}
	}
	s.grpc.RegisterService(&desc, s.health)
}

// Health is the health service, for those who offer it elsewhere. It has no bounds of its own.
func (s *Server) Health() healthpb.HealthServer { return s.health }

// startProbe takes in a call of the health service, or returns why it is refused before its request is read.
func (s *Server) startProbe(ctx context.Context) (*call, error) {
	if end := s.refusesCompression(ctx); end != nil {
		return nil, statusOf(end).Err()
	}
	return s.startCall(ctx, checking)
}

// probed is a stream of the health service.
type probed struct {
	grpc.ServerStream
	call *call
}

// RecvMsg implements grpc.ServerStream.
func (p probed) RecvMsg(into any) error { return receiveProbe(p.ServerStream.RecvMsg, into, p.call) }

func receiveProbe(receive func(any) error, into any, c *call) error {
	p := &probe{request: into, from: c.from}
	if err := c.received(receive(p)); err != nil {
		return err
	}
	if p.refused != nil {
		return statusOf(p.refused).Err()
	}
	return nil
}
