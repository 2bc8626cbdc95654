package xdstest

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// forwarder is the smallest thing that can stand where the relay will: every stream of a client becomes a stream
// upstream, and messages pass through, except that Delta resources get the versions that clients expect.
type forwarder struct {
	conn   *grpc.ClientConn
	config []string
}

func startForwarder(config []string, dial func(context.Context, string) (net.Conn, error), listen net.Listener) (Relay, error) {
	if slices.Contains(config, "broken=true") {
		return nil, errors.New("told to be broken")
	}
	conn, err := grpc.NewClient("passthrough:///up", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial))
	if err != nil {
		return nil, err
	}
	f := &forwarder{conn: conn, config: config}
	server := grpc.NewServer(grpc.UnknownServiceHandler(f.forward))
	go func() { _ = server.Serve(listen) }()
	return forwarding{server, conn}, nil
}

// forwarding is a forwarder that runs.
type forwarding struct {
	server *grpc.Server
	conn   *grpc.ClientConn
}

func (f forwarding) Stop()           { f.server.Stop(); f.conn.Close() }
func (f forwarding) ReadRules() bool { return false }

func (f *forwarder) forward(_ any, down grpc.ServerStream) error {
	path, _ := grpc.MethodFromServerStream(down)
	sotw := strings.Contains(path, "/Stream")
	ctx := down.Context()
	if md, _ := metadata.FromIncomingContext(ctx); len(md.Get("kind")) > 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, StreamKindHeader, md.Get("kind")[0])
	}
	desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	up, err := f.conn.NewStream(ctx, desc, method("", sotw, false))
	if err != nil {
		return err
	}
	go func() {
		for {
			var req proto.Message = &discoveryv3.DeltaDiscoveryRequest{}
			if sotw {
				req = &discoveryv3.DiscoveryRequest{}
			}
			if down.RecvMsg(req) != nil {
				_ = up.CloseSend()
				return
			}
			_ = up.SendMsg(req)
		}
	}()
	for {
		var resp proto.Message = &discoveryv3.DeltaDiscoveryResponse{}
		if sotw {
			resp = &discoveryv3.DiscoveryResponse{}
		}
		if err := up.RecvMsg(resp); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if delta, ok := resp.(*discoveryv3.DeltaDiscoveryResponse); ok {
			for _, r := range delta.GetResources() {
				if r.GetResource() != nil && r.GetVersion() != "wrong" {
					r.Version, _ = fingerprint(r.GetResource(), r.GetAliases())
				}
			}
		}
		if err := down.SendMsg(resp); err != nil {
			return err
		}
	}
}
