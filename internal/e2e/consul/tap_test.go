package consul

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// tap stands before a control plane, hands everything on after a delay either way,
// and keeps a log of what was said: "> CDS +a ack=1" to the control plane, "< CDS
// nonce=2 +a -b" from it, each with its stream and time.
type tap struct {
	addr  string
	delay time.Duration
	begin time.Time

	mu      sync.Mutex
	streams int
	lines   []string
}

func startTap(t testing.TB, to string, delay time.Duration) *tap {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+to, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", loopback(port(t)))
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{addr: l.Addr().String(), delay: delay, begin: time.Now()}
	s := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.MaxRecvMsgSize(maxMessage),
		grpc.UnknownServiceHandler(func(_ any, down grpc.ServerStream) error { return p.stream(conn, down) }))
	var work sync.WaitGroup
	work.Go(func() { _ = s.Serve(l) }) // it ends when it is stopped
	t.Cleanup(func() {
		s.Stop()
		work.Wait()
		conn.Close()
		if t.Failed() {
			t.Logf("the wire before the control plane, at the end:\n%s", strings.Join(last(p.Log(), 80), "\n"))
		}
	})
	return p
}

const maxMessage = 64 << 20

func last(lines []string, n int) []string { return lines[max(0, len(lines)-n):] }

// Log is what was said so far.
func (p *tap) Log() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lines)
}

func (p *tap) log(stream int, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, fmt.Sprintf("%9.4f #%d %s", time.Since(p.begin).Seconds(), stream, what))
}

// stream hands one call on.
func (p *tap) stream(conn *grpc.ClientConn, down grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(down)
	p.mu.Lock()
	p.streams++
	id := p.streams
	p.mu.Unlock()
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md.Copy())
	}
	up, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	// Nobody waits for it: it receives until this handler has returned.
	go func() {
		_ = p.pump(ctx, down.RecvMsg, up.SendMsg, func(b []byte) { p.log(id, "> "+spellRequest(method, b)) })
		_ = up.CloseSend() // the other direction says what there is to say
	}()
	err = p.pump(ctx, up.RecvMsg, down.SendMsg, func(b []byte) { p.log(id, "< "+spellResponse(method, b)) })
	if errors.Is(err, io.EOF) {
		err = nil
	}
	p.log(id, fmt.Sprintf("< end: %v", err))
	return err
}

// pump hands on what comes, after the delay and in order.
func (p *tap) pump(ctx context.Context, recv, send func(any) error, see func([]byte)) error {
	type late struct {
		at  time.Time
		b   []byte
		err error
	}
	queue := make(chan late, 1000)
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() {
		defer close(queue)
		for {
			var b []byte
			err := recv(&b)
			if err == nil {
				see(b)
			}
			select {
			case queue <- late{time.Now().Add(p.delay), b, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	})
	for l := range queue {
		if !pause(ctx, time.Until(l.at)) {
			return ctx.Err()
		}
		if l.err != nil {
			return l.err
		}
		if err := send(&l.b); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// raw hands bytes on as they are.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (raw) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = slices.Clone(b)
	return nil
}

func spellRequest(method string, b []byte) string {
	r := new(discovery.DeltaDiscoveryRequest)
	if !strings.HasSuffix(method, "/DeltaAggregatedResources") || proto.Unmarshal(b, r) != nil {
		return method
	}
	words := []string{short(r.GetTypeUrl())}
	for _, name := range r.GetResourceNamesSubscribe() {
		words = append(words, "+"+shortName(name))
	}
	for _, name := range r.GetResourceNamesUnsubscribe() {
		words = append(words, "-"+shortName(name))
	}
	if n := len(r.GetInitialResourceVersions()); n > 0 {
		words = append(words, fmt.Sprintf("init=%d", n))
	}
	if r.GetNode().GetId() != "" {
		words = append(words, "node="+r.GetNode().GetId())
	}
	switch {
	case r.GetErrorDetail() != nil:
		words = append(words, "nack="+r.GetResponseNonce(), r.GetErrorDetail().GetMessage())
	case r.GetResponseNonce() != "":
		words = append(words, "ack="+r.GetResponseNonce())
	}
	return strings.Join(words, " ")
}

func spellResponse(method string, b []byte) string {
	r := new(discovery.DeltaDiscoveryResponse)
	if !strings.HasSuffix(method, "/DeltaAggregatedResources") || proto.Unmarshal(b, r) != nil {
		return method
	}
	return spell(r) + " nonce=" + r.GetNonce()
}

// spell is a response as type, +name for what came, -name for what went.
func spell(r *discovery.DeltaDiscoveryResponse) string {
	var names []string
	for _, res := range r.GetResources() {
		names = append(names, "+"+shortName(res.GetName()))
	}
	for _, name := range r.GetRemovedResources() {
		names = append(names, "-"+shortName(name))
	}
	slices.Sort(names)
	return strings.TrimSpace(short(r.GetTypeUrl()) + " " + strings.Join(names, " "))
}

// typeURLs are the types that Consul speaks of.
var typeURLs = map[string]string{
	"LDS": "type.googleapis.com/envoy.config.listener.v3.Listener",
	"CDS": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
	"RDS": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
	"EDS": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
}

func short(typeURL string) string {
	for name, url := range typeURLs {
		if url == typeURL {
			return name
		}
	}
	return typeURL
}

// shortName is a name without the mesh's own domain, and a listener's without its address.
func shortName(name string) string {
	name, _, _ = strings.Cut(name, ".default.dc1.internal.")
	if service, rest, ok := strings.Cut(name, ":127.0.0.1:"); ok && rest != "" {
		name = service
	}
	return name
}
