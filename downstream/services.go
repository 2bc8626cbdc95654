package downstream

import (
	"context"
	"slices"

	"google.golang.org/grpc"

	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/service"
)

// Methods lists the methods that clients can call, as service/method; of a service that goes through, service/*.
func (s *Server) Methods() (methods []string) {
	for service, info := range s.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			methods = append(methods, service+"/"+m.Name)
		}
	}
	for service := range s.Calls() { // whatever methods it has
		methods = append(methods, service+"/*")
	}
	slices.Sort(methods)
	return methods
}

// registerServices offers the services in the table of protocol.md §0, and no others.
func (s *Server) registerServices() {
	for _, of := range service.All() {
		s.offer(of, false)
	}
	if !s.config.V2 {
		return
	}
	for _, of := range service.V2() {
		s.offer(of, true)
	}
}

// offer registers the methods of a service. A unary method fetches.
func (s *Server) offer(of service.Service, v2 bool) {
	desc := of.ServiceDesc
	desc.Streams, desc.Methods = slices.Clone(desc.Streams), slices.Clone(desc.Methods)
	for i := range desc.Streams {
		kind := session.Stream{Delta: service.IsDelta(desc.Streams[i]), Type: of.Type, V2: v2}
		desc.Streams[i].Handler = func(_ any, stream grpc.ServerStream) error { return s.serve(stream, kind) }
	}
	kind := session.Stream{Type: of.Type, V2: v2}
	for i := range desc.Methods {
		desc.Methods[i].Handler = func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			c, err := s.startCall(ctx, fetching)
			if err != nil {
				return nil, err
			}
			defer c.close()
			in := &inbox{v2: v2, limit: s.config.MaxRequest, from: c.from}
			if in.refused = s.refusesCompression(ctx); in.refused == nil {
				if err := c.received(decode(in)); err != nil {
					return nil, err
				}
			}
			return s.fetch(c, kind, in)
		}
	}
	s.grpc.RegisterService(&desc, nil)
}
