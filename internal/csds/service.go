package csds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec of all that is no answer
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/config"
)

// MaxRequest bounds a request, in bytes.
const MaxRequest = 64 << 10

// calls is how many may be answered at once. An open stream is one.
const calls = 8

// Service answers requests. Its methods may be called from any goroutine.
type Service struct {
	relay     Relay
	shows     func() config.CSDS
	room      chan struct{}
	composing composing
	// What an answer may take (maxMemory, maxWire).
	memory, wire int
}

// New returns a Service of a relay, which shows what shows says at each request.
func New(r Relay, shows func() config.CSDS) *Service {
	return &Service{r, shows, make(chan struct{}, calls), make(composing, 1), maxMemory, maxWire}
}

// Enter counts a call, until leave is called. It refuses what the configuration does not show, and calls beyond those
// that may be answered at once. The error is a gRPC status.
func (s *Service) Enter() (leave func(), err error) {
	if s.shows() == config.CSDSOff {
		return nil, status.Error(codes.Unimplemented, "CSDS is off; set admin.csds to status, or to bodies")
	}
	select {
	case s.room <- struct{}{}:
		return func() { <-s.room }, nil
	default:
		return nil, status.Errorf(codes.ResourceExhausted, "%d CSDS calls are open, and no more are answered at once; close those that are not needed, or ask again", calls)
	}
}

// answer composes the answer to a request, in a form.
func (s *Service) answer(ctx context.Context, req *request, f form) (*answer, error) {
	wanted, err := nodes(req.matchers)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if err := s.composing.enter(ctx); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	defer s.composing.leave()
	a := newAnswer(f, s.memory, s.wire)
	b, err := s.bodies(s.shows() == config.CSDSBodies && !req.excludes, f)
	switch {
	case err != nil:
	case len(req.matchers) > 0:
		err = a.clientViews(ctx, s.relay, wanted, b)
	default:
		err = a.ownView(s.relay, b)
	}
	switch {
	case errors.Is(err, errTooLarge):
		return nil, status.Error(codes.ResourceExhausted, s.narrower(b.set != nil))
	case err != nil:
		return nil, status.FromContextError(err).Err()
	}
	return a, nil
}

// narrower says what to do about an answer that is too large.
func (s *Service) narrower(bodies bool) string {
	text := fmt.Sprintf("the answer takes more than %d MiB of memory or is longer than %d MiB; narrow node_matchers, so that fewer clients match", s.memory>>20, s.wire>>20)
	if bodies {
		text += ", or set exclude_resource_contents (or admin.csds: status), which leaves out the bodies"
	}
	return text
}

// secrets reports of a type whether nothing may be shown of it. All groups treat it the same.
func (s *Service) secrets() func(t cache.TypeURL) bool {
	for _, hub := range s.relay.Groups() {
		return func(t cache.TypeURL) bool { return hub.Properties(t).Secret }
	}
	return func(cache.TypeURL) bool { return true }
}

// Name is the service's, in gRPC.
const Name = "envoy.service.status.v3.ClientStatusDiscoveryService"

// Register offers the service on a gRPC server, which must have the Codec. The caller counts calls with Enter.
func (s *Service) Register(to grpc.ServiceRegistrar) {
	to.RegisterService(&grpc.ServiceDesc{
		ServiceName: Name,
		Metadata:    "envoy/service/status/v3/csds.proto",
		Methods:     []grpc.MethodDesc{{MethodName: "FetchClientStatus", Handler: s.fetch}},
		Streams:     []grpc.StreamDesc{{StreamName: "StreamClientStatus", Handler: s.stream, ServerStreams: true, ClientStreams: true}},
	}, nil)
}

func (s *Service) fetch(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	req := new(request)
	if err := decode(req); err != nil {
		return nil, err
	}
	return s.answer(ctx, req, new(wire))
}

// idle is how long a stream may be open without a request.
const idle = time.Minute

type renewal struct{}

// Renewing restarts a stream's time with each request: renew is called with how long it is to be.
func Renewing(ctx context.Context, renew func(time.Duration)) context.Context {
	return context.WithValue(ctx, renewal{}, renew)
}

func (s *Service) stream(_ any, stream grpc.ServerStream) error {
	renew, ok := stream.Context().Value(renewal{}).(func(time.Duration))
	if !ok {
		renew = func(time.Duration) {}
	}
	for {
		renew(idle)
		begin, req := time.Now(), new(request)
		switch err := stream.RecvMsg(req); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && time.Since(begin) >= idle:
			return status.Errorf(codes.DeadlineExceeded, "no request for %v; open a stream when there is one", idle)
		case err != nil:
			return err
		}
		renew(idle) // for the answer
		a, err := s.answer(stream.Context(), req, new(wire))
		if err != nil {
			return err
		}
		if err := stream.SendMsg(a); err != nil {
			return err
		}
	}
}

// Codec is that of a gRPC server on which a Service is registered.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2("proto")} }

// codec reads requests and writes answers, and leaves other messages to the codec of protobuf.
type codec struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if a, ok := v.(*answer); ok {
		return a.buffers(), nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*request); ok {
		return r.fromWire(data.Materialize())
	}
	return c.CodecV2.Unmarshal(data, v)
}
