package envoy

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// tap is a gRPC proxy that records what is said through it. Each stream has a connection
// of its own to where it leads, so that the tap never waits to reconnect: a stream that
// cannot be carried on ends, and its client comes back when it likes.
type tap struct {
	*tape
	addr string
	to   string
}

// startTap records what is said to an address.
func startTap(t testing.TB, name, to string) *tap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tp := &tap{tape: newTape(t, name), addr: l.Addr().String(), to: to}
	s := grpc.NewServer(grpc.UnknownServiceHandler(tp.serve))
	var serves sync.WaitGroup
	serves.Go(func() { _ = s.Serve(l) }) // it ends with Stop
	t.Cleanup(func() {
		s.Stop()
		serves.Wait()
	})
	return tp
}

func (tp *tap) serve(_ any, client grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(client)
	conn, err := grpc.NewClient("passthrough:///"+tp.to, grpc.WithTransportCredentials(insecure.NewCredentials()))
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
	id := tp.opens()
	delta := strings.Contains(method, "/Delta")
	go func() { // until this function returns
		for {
			m := newRequest(delta)
			if client.RecvMsg(m) != nil {
				_ = server.CloseSend()
				return
			}
			tp.take(id, m)
			if server.SendMsg(m) != nil {
				return
			}
		}
	}()
	for {
		m := newResponse(delta)
		if err := server.RecvMsg(m); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		tp.take(id, m)
		if err := client.SendMsg(m); err != nil {
			return err
		}
	}
}

func newRequest(delta bool) proto.Message {
	if delta {
		return &discovery.DeltaDiscoveryRequest{}
	}
	return &discovery.DiscoveryRequest{}
}

func newResponse(delta bool) proto.Message {
	if delta {
		return &discovery.DeltaDiscoveryResponse{}
	}
	return &discovery.DiscoveryResponse{}
}

// link is a TCP proxy that can be cut, and can freeze, as a machine does that hangs:
// connections stay, and are made, but nothing comes through.
type link struct {
	addr string
	to   string

	mu     sync.Mutex
	thawed chan struct{} // closed while it is not frozen
	conns  map[net.Conn]bool
	closed bool
}

func startLink(t testing.TB, to string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{addr: l.Addr().String(), to: to, thawed: make(chan struct{}), conns: make(map[net.Conn]bool)}
	close(k.thawed)
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() { k.carry(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		k.Thaw()
		k.mu.Lock()
		k.closed = true
		for c := range k.conns {
			c.Close()
		}
		k.mu.Unlock()
		work.Wait()
	})
	return k
}

// Freeze lets nothing through.
func (k *link) Freeze() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.thawed = make(chan struct{})
}

// Thaw lets everything through again, and what has waited.
func (k *link) Thaw() {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.thawed:
	default:
		close(k.thawed)
	}
}

// Cut closes the connections that there are.
func (k *link) Cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.conns {
		c.Close()
	}
}

func (k *link) passes() {
	k.mu.Lock()
	thawed := k.thawed
	k.mu.Unlock()
	<-thawed
}

// keep remembers a connection until it is let go.
func (k *link) keep(c net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		c.Close()
		return false
	}
	k.conns[c] = true
	return true
}

func (k *link) letGo(c net.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.conns, c)
	c.Close()
}

func (k *link) carry(client net.Conn) {
	if !k.keep(client) {
		return
	}
	defer k.letGo(client)
	k.passes()
	server, err := net.Dial("tcp", k.to)
	if err != nil || !k.keep(server) {
		return
	}
	defer k.letGo(server)
	var back sync.WaitGroup
	back.Go(func() { k.pump(client, server) })
	k.pump(server, client)
	back.Wait()
}

// pump carries what comes from one side to the other, and ends both when one ends.
func (k *link) pump(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		k.passes()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	to.Close()
	from.Close()
}
