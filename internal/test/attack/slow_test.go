//go:build linux

package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
)

// The attacks by clients that are slow, deaf or gone.

// drip gives a byte each 10 ms.
type drip struct{ ctx context.Context }

func (d drip) Read(p []byte) (int, error) {
	pause(d.ctx, 10*time.Millisecond)
	p[0] = 0
	return 1, d.ctx.Err()
}

// dripping sends messages of a size a byte at a time, 20 on each connection.
func dripping(messages, size int) func(context.Context, *target) (string, error) {
	return func(ctx context.Context, at *target) (string, error) {
		var sent atomic.Int64
		var ends sync.Map
		var all sync.WaitGroup
		var t *http.Transport
		head := envelope(nil, false)
		head[1], head[2], head[3], head[4] = byte(size>>24), byte(size>>16), byte(size>>8), byte(size)
		for i := range messages {
			if i%20 == 0 {
				t = transport(at)
			}
			t := t
			all.Go(func() {
				err := post(ctx, at, t, body{io.MultiReader(bytes.NewReader(head), drip{ctx}), &sent})
				if err != nil && ctx.Err() == nil {
					ends.Store(err.Error(), true)
				}
			})
		}
		all.Wait()
		return fmt.Sprintf("sent %d bytes; %s", sent.Load(), firstOf(&ends)), nil
	}
}

// hello is the first request of a client, in its wire form.
func hello(names ...string) ([]byte, error) {
	r := subscribe(cache.Endpoint, names...)
	r.Node = &core.Node{Id: "attacker"}
	return proto.Marshal(r)
}

// deaf has so many streams that follow beat on each connection, and windows that are never opened.
func deaf(conns, streams int, window uint32) func(context.Context, *target) (string, error) {
	return func(ctx context.Context, at *target) (string, error) {
		message, err := hello(beat)
		if err != nil {
			return "", err
		}
		for range conns {
			r, err := dialRaw(ctx, at, http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
			if err != nil {
				return "", err
			}
			for range streams {
				id, err := r.open(deltaMethod)
				if err == nil {
					err = r.data(id, envelope(message, false))
				}
				if err != nil {
					return "", err
				}
			}
		}
		<-ctx.Done()
		return fmt.Sprintf("%d streams", conns*streams), nil
	}
}

// vanish has so many clients that follow beat, and are gone without a word: from then on their system drops
// whatever comes for them, and nobody acknowledges or resets anything.
func vanish(clients int) func(context.Context, *target) (string, error) {
	return func(ctx context.Context, at *target) (string, error) {
		message, err := hello(beat)
		if err != nil {
			return "", err
		}
		for range clients {
			r, err := dialRaw(ctx, at)
			if err != nil {
				return "", err
			}
			id, err := r.open(deltaMethod)
			if err == nil {
				err = r.data(id, envelope(message, false))
			}
			if err == nil {
				err = goDead(r.Conn)
			}
			if err != nil {
				return "", err
			}
		}
		<-ctx.Done()
		return fmt.Sprintf("%d clients", clients), nil
	}
}

// goDead has the system drop what comes on a connection.
func goDead(c net.Conn) error {
	s, ok := c.(syscall.Conn)
	if !ok {
		return errors.New("it is no plain connection")
	}
	fd, err := s.SyscallConn()
	if err != nil {
		return err
	}
	drop := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	set := err
	if err := fd.Control(func(fd uintptr) {
		set = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop})
	}); err != nil {
		return err
	}
	return set
}

// noneLeft: the relay has noticed that they are gone, by keepalive.
func noneLeft(w *world) error {
	begin := time.Now()
	came, n := false, 0.0
	for time.Since(begin) < 55*time.Second {
		m, err := w.relay.Scrape()
		if err != nil {
			return err
		}
		n = m.Sum("xds_relay_clients")
		if came = came || n > 1; came && n == 1 {
			w.t.Logf("the relay noticed after %v", time.Since(begin).Round(time.Second))
			return nil
		}
		pause(context.Background(), 100*time.Millisecond)
	}
	return fmt.Errorf("%v clients are left", n)
}

// whole sends requests of a size again and again, of each client on a connection of its own.
func whole(clients, size int) func(context.Context, *target) (string, error) {
	return func(ctx context.Context, at *target) (string, error) {
		var times atomic.Int64
		const length = 4000
		message := names("n", size/length, length)
		said := crowd(ctx, at, clients, func(c *client, i int, told func(error)) {
			for ctx.Err() == nil {
				_, err := c.first(ctx, fmt.Sprint("attacker", i), subscribe(cache.Endpoint, message...))
				told(err)
				times.Add(1)
				pause(ctx, 100*time.Millisecond)
			}
		})
		return fmt.Sprintf("%d times; %s", times.Load(), said), nil
	}
}

// churn subscribes to names and gives up those of before, as fast as it may.
func churn(n int) func(context.Context, *target) (string, error) {
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
		var had []string
		times := 0
		for ; ctx.Err() == nil; times++ {
			r := &discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "attacker"}, TypeUrl: string(cache.Endpoint), ResourceNamesUnsubscribe: had}
			had = names(fmt.Sprint("c", times%1000), n, 20)
			r.ResourceNamesSubscribe = had
			if s.Send(r) != nil {
				return fmt.Sprintf("ended: %v", <-ended), nil
			}
		}
		return fmt.Sprintf("%d times %d names", times, n), nil
	}
}
