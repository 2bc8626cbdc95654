package peer

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// Tap is a gRPC proxy that records what is said through it. Each stream has a connection
// of its own to where it leads, so that the tap never waits to reconnect: a stream that
// cannot be carried on ends, and its client comes back when it likes. Messages pass as they
// are.
type Tap struct {
	*Tape
	Addr string
	to   string
	dial credentials.TransportCredentials
}

// TapOptions are the credentials that a tap has, as a server and as a client; nil:
// plaintext.
type TapOptions struct {
	Serve, Dial credentials.TransportCredentials
}

// maxMessage bounds what passes a tap.
const maxMessage = 64 << 20

// StartTap records what is said to an address until the test ends.
func StartTap(t testing.TB, name, to string, o TapOptions) *Tap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	plain := insecure.NewCredentials()
	tp := &Tap{Tape: NewTape(t, name), Addr: l.Addr().String(), to: to, dial: cmp.Or(o.Dial, plain)}
	s := grpc.NewServer(grpc.Creds(cmp.Or(o.Serve, plain)), grpc.ForceServerCodec(asTheyAre{}), grpc.MaxRecvMsgSize(maxMessage),
		grpc.UnknownServiceHandler(tp.serve))
	var serves sync.WaitGroup
	serves.Go(func() { _ = s.Serve(l) }) // it ends with Stop
	t.Cleanup(func() {
		s.Stop()
		serves.Wait()
	})
	return tp
}

func (tp *Tap) serve(_ any, client grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(client)
	conn, err := grpc.NewClient("passthrough:///"+tp.to, grpc.WithTransportCredentials(tp.dial),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(asTheyAre{}), grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(client.Context())
	defer cancel()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md.Copy())
	}
	server, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	request, response := messages(method)
	id := 0
	if request != nil {
		id = tp.Opens()
	}
	go func() { // until this function returns
		if pass(client.RecvMsg, server.SendMsg, func(b []byte) { tp.hears(id, request, b) }) == nil {
			_ = server.CloseSend()
		}
	}()
	err = pass(server.RecvMsg, client.SendMsg, func(b []byte) { tp.hears(id, response, b) })
	if err != nil && request != nil {
		tp.add(Said{Stream: id, End: err.Error()})
	}
	return err
}

// pass hands on what comes until the sender has said all, which is no error.
func pass(recv, send func(any) error, see func([]byte)) error {
	for {
		var b []byte
		if err := recv(&b); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		see(b)
		if err := send(&b); err != nil {
			return err
		}
	}
}

// messages are the types of a method; nil if it is none of the discovery protocol.
func messages(method string) (request, response proto.Message) {
	switch name := method[strings.LastIndexByte(method, '/')+1:]; {
	case !strings.HasPrefix(method, "/envoy.service."):
		return nil, nil
	case strings.HasPrefix(name, "Delta"):
		return &discovery.DeltaDiscoveryRequest{}, &discovery.DeltaDiscoveryResponse{}
	default:
		return &discovery.DiscoveryRequest{}, &discovery.DiscoveryResponse{}
	}
}

func (tp *Tap) hears(stream int, kind proto.Message, b []byte) {
	if kind == nil {
		return
	}
	m := kind.ProtoReflect().New().Interface()
	if proto.Unmarshal(b, m) == nil {
		tp.Take(stream, m)
	}
}

// asTheyAre hands bytes on.
type asTheyAre struct{}

func (asTheyAre) Name() string { return "proto" }

func (asTheyAre) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (asTheyAre) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = slices.Clone(b)
	return nil
}
