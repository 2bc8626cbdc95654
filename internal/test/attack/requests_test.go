//go:build linux

package attack

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// The attacks by what a client asks.

// client is an attacker's connection by gRPC.
type client struct {
	*grpc.ClientConn
}

func dial(at *target) (*client, error) {
	creds, err := at.creds()
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("passthrough:///"+at.Addr, grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	return &client{conn}, err
}

type deltaStream = grpc.BidiStreamingClient[discovery.DeltaDiscoveryRequest, discovery.DeltaDiscoveryResponse]

// ask opens a stream and sends requests, with a node of a name; what comes is acknowledged until the stream ends. The
// reason goes to ended.
func (c *client) ask(ctx context.Context, node string, requests ...*discovery.DeltaDiscoveryRequest) (s deltaStream, ended <-chan error, err error) {
	s, err = discovery.NewAggregatedDiscoveryServiceClient(c).DeltaAggregatedResources(ctx)
	if err != nil {
		return nil, nil, err
	}
	end := make(chan error, 1)
	for i, r := range requests {
		if i == 0 {
			r.Node = &core.Node{Id: node}
		}
		if err := s.Send(r); err != nil {
			break // the receiver is told why
		}
	}
	go func() {
		for {
			r, err := s.Recv()
			if err != nil {
				end <- err
				return
			}
			_ = s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}) // the receiver is told why not
		}
	}()
	return s, end, nil
}

// first opens a stream, sends a request, and returns what comes first.
func (c *client) first(ctx context.Context, node string, r *discovery.DeltaDiscoveryRequest) (*discovery.DeltaDiscoveryResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := discovery.NewAggregatedDiscoveryServiceClient(c).DeltaAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	r.Node = &core.Node{Id: node}
	_ = s.Send(r) // the receiver is told why not
	return s.Recv()
}

// asks is first on a connection of its own, within 10 s.
func (w *world) asks(node string, at *target, r *discovery.DeltaDiscoveryRequest) (*discovery.DeltaDiscoveryResponse, error) {
	c, err := dial(at)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return c.first(ctx, node, r)
}

// subscribe is a request for names of a type.
func subscribe(t cache.TypeURL, names ...string) *discovery.DeltaDiscoveryRequest {
	return &discovery.DeltaDiscoveryRequest{TypeUrl: string(t), ResourceNamesSubscribe: names}
}

// invented is a type that nobody knows.
func invented(i int) cache.TypeURL {
	return cache.TypeURL(fmt.Sprintf("type.googleapis.com/attack.Invented%d", i))
}

// names are so many, each of a length.
func names(prefix string, n, length int) []string {
	list := make([]string, n)
	for i := range list {
		name := fmt.Sprintf("%s-%d-", prefix, i)
		list[i] = name + strings.Repeat("x", max(length-len(name), 0))
	}
	return list
}

// pause waits, or until an attack is over.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// body is that of a request that goes on as a function says.
type body struct {
	io.Reader
	sent *atomic.Int64
}

func (b body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.sent.Add(int64(n))
	return n, err
}

// post sends a message on a stream of its own, within windows, from a reader that may never end.
func post(ctx context.Context, at *target, t *http.Transport, from io.Reader) error {
	scheme := "http"
	if at.CertFile != "" {
		scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, scheme+"://"+at.Addr+deltaMethod, from)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("TE", "trailers")
	resp, err := t.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	if said := resp.Trailer.Get("Grpc-Message"); said != "" {
		return errors.New(said)
	}
	if said := resp.Header.Get("Grpc-Message"); said != "" { // without a body they are headers
		return errors.New(said)
	}
	return err
}

// transport is one whose streams share a connection.
func transport(at *target) *http.Transport {
	connect := func(ctx context.Context, _, _ string) (net.Conn, error) { return dialTCP(ctx, at) }
	t := &http.Transport{DialContext: connect, DialTLSContext: connect, MaxConnsPerHost: 1, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP2(true)
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}

// halfSent sends messages without their last byte: so many, of a size, each connection so many of them.
func halfSent(messages, size, each int) func(context.Context, *target) (string, error) {
	return func(ctx context.Context, at *target) (string, error) {
		var sent atomic.Int64
		var ends sync.Map
		var all sync.WaitGroup
		var t *http.Transport
		head := envelope(make([]byte, size-1), false)
		binary.BigEndian.PutUint32(head[1:], uint32(size))
		for i := range messages {
			if i%each == 0 {
				t = transport(at)
			}
			t := t
			all.Go(func() {
				never, stop := io.Pipe()
				defer stop.Close()
				err := post(ctx, at, t, body{io.MultiReader(bytes.NewReader(head), never), &sent})
				if err != nil && ctx.Err() == nil {
					ends.Store(err.Error(), true)
				}
			})
		}
		all.Wait()
		return fmt.Sprintf("sent %d MiB; %s", sent.Load()>>20, firstOf(&ends)), nil
	}
}

// firstOf is one of the reasons that attackers were told.
func firstOf(ends *sync.Map) string {
	said := "nobody was ended"
	ends.Range(func(k, _ any) bool {
		said = fmt.Sprintf("told: %.200s", k)
		return false
	})
	return said
}

// ways says that a stream comes through relays.
func ways(value string) func(context.Context, *target) (string, error) {
	return func(ctx context.Context, at *target) (string, error) {
		c, err := dial(at)
		if err != nil {
			return "", err
		}
		defer c.Close()
		return c.again(metadata.AppendToOutgoingContext(ctx, "x-xds-relay-via", value), subscribe(cache.Cluster, "a"))
	}
}

// again opens a stream as often as it ends.
func (c *client) again(ctx context.Context, requests ...*discovery.DeltaDiscoveryRequest) (string, error) {
	said, ends := "", 0
	for ctx.Err() == nil {
		_, ended, err := c.ask(ctx, "attacker", requests...)
		if err == nil {
			err = <-ended
		}
		if ctx.Err() == nil {
			said = status.Convert(err).Message()
			ends++
		}
		pause(ctx, 100*time.Millisecond)
	}
	return fmt.Sprintf("ended %d times; %.200s", ends, said), nil
}

// inventedTypes asks for a type that nobody knows, and another one after a while.
func inventedTypes(wait time.Duration) func(context.Context, *target) (string, error) {
	return func(ctx context.Context, at *target) (string, error) {
		c, err := dial(at)
		if err != nil {
			return "", err
		}
		defer c.Close()
		s, ended, err := c.ask(ctx, "attacker")
		if err != nil {
			return "", err
		}
		types := 0
		for ctx.Err() == nil {
			if types%200 == 0 {
				if s, ended, err = c.ask(ctx, "attacker"); err != nil {
					return "", err
				}
			}
			r := subscribe(invented(types), "a")
			r.Node = &core.Node{Id: "attacker"}
			if err := s.Send(r); err != nil {
				return fmt.Sprintf("ended: %v", <-ended), nil
			}
			types++
			pause(ctx, wait)
		}
		return fmt.Sprintf("asked for %d types", types), nil
	}
}

// crowd has so many clients do something until it returns, each on a connection of its own. What they are told goes to told.
func crowd(ctx context.Context, at *target, clients int, do func(c *client, i int, told func(error))) string {
	var ends sync.Map
	var all sync.WaitGroup
	told := func(err error) {
		if err != nil && ctx.Err() == nil {
			ends.Store(status.Convert(err).Message(), true)
		}
	}
	for i := range clients {
		all.Go(func() {
			c, err := dial(at)
			if err != nil {
				return
			}
			defer c.Close()
			do(c, i, told)
		})
	}
	all.Wait()
	return firstOf(&ends)
}

// manyTypes asks for so many on each of so many streams, by names of a length, and again for other names.
func manyTypes(streams, types, length int) func(context.Context, *target) (string, error) {
	return func(ctx context.Context, at *target) (string, error) {
		return crowd(ctx, at, streams, func(c *client, i int, told func(error)) {
			for ctx.Err() == nil {
				var requests []*discovery.DeltaDiscoveryRequest
				for j := range types {
					requests = append(requests, subscribe(invented(j), names(fmt.Sprint("s", i), 1, length)...))
				}
				_, ended, err := c.ask(ctx, fmt.Sprint("attacker", i), requests...)
				if err != nil {
					return
				}
				told(<-ended)
				pause(ctx, 100*time.Millisecond)
			}
		}), nil
	}
}

// manyNames subscribes to so many on each of so many streams, a part in each request.
func manyNames(streams, n, part int) func(context.Context, *target) (string, error) {
	return func(ctx context.Context, at *target) (string, error) {
		return crowd(ctx, at, streams, func(c *client, i int, told func(error)) {
			var requests []*discovery.DeltaDiscoveryRequest
			for j := 0; j < n; j += part {
				requests = append(requests, subscribe(cache.Endpoint, names(fmt.Sprint("s", i, "p", j), min(part, n-j), 40)...))
			}
			_, ended, err := c.ask(ctx, fmt.Sprint("attacker", i), requests...)
			if err != nil {
				return
			}
			told(<-ended)
			<-ctx.Done()
		}), nil
	}
}

// inventedNodes opens so many streams, each with a node of its own, and opens those again that end.
func inventedNodes(n int) func(context.Context, *target) (string, error) {
	return func(ctx context.Context, at *target) (string, error) {
		var ends sync.Map
		var all sync.WaitGroup
		var c *client
		for i := range n {
			if i%100 == 0 {
				var err error
				if c, err = dial(at); err != nil {
					return "", err
				}
				defer c.Close()
			}
			c := c
			all.Go(func() {
				for ctx.Err() == nil {
					_, ended, err := c.ask(ctx, fmt.Sprint("invented-", i), subscribe(cache.Endpoint, "a"))
					if err == nil {
						err = <-ended
					}
					if ctx.Err() == nil {
						ends.Store(status.Convert(err).Message(), true)
					}
					pause(ctx, time.Second)
				}
			})
		}
		all.Wait()
		return firstOf(&ends), nil
	}
}
