//go:build linux

package chaos

import (
	"context"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/pkg/v3/proxy"
	"go.uber.org/zap"
)

// network is a link that can be slow, and lose everything: etcd's fault proxy. It
// listens on a Unix socket, because on TCP it would listen on all interfaces. Of
// what it can do, two things must be known. What it swallows in a blackhole is gone
// for good, while TCP would send it again; so a blackhole must end with the
// connections being cut. And it cannot cut connections; so their ends do that.
type network struct {
	proxy  proxy.Server
	path   string
	errors atomic.Int64 // that the proxy has met
}

// startNetwork links a Unix socket to a TCP address.
func startNetwork(t testing.TB, name, to string) *network {
	t.Helper()
	n := &network{path: filepath.Join(t.TempDir(), name)}
	n.proxy = proxy.NewServer(proxy.ServerConfig{
		Logger: zap.NewNop(),
		From:   url.URL{Scheme: "unix", Host: n.path},
		To:     url.URL{Scheme: "tcp", Host: to},
	})
	var work sync.WaitGroup
	done := make(chan struct{})
	// Errors are what this is for; nobody may wait until they are read.
	work.Go(func() {
		for {
			select {
			case err := <-n.proxy.Error():
				if err != nil {
					n.errors.Add(1)
				}
			case <-done:
				return
			}
		}
	})
	t.Cleanup(func() {
		n.proxy.Close() // it waits until both ends have closed every connection
		close(done)
		work.Wait()
	})
	<-n.proxy.Ready()
	return n
}

// lag delays what goes either way by about so much, another amount each second, until ctx
// ends.
func (n *network) lag(ctx context.Context, by, give time.Duration) {
	for ok := true; ok; ok = pause(ctx, time.Second) {
		n.proxy.DelayTx(by, give)
		n.proxy.DelayRx(by, give)
	}
	n.proxy.UndelayTx()
	n.proxy.UndelayRx()
}

// hold keeps back what goes either way, as TCP does while every packet is lost: it
// all arrives afterwards.
func (n *network) hold(on bool) {
	if on {
		n.proxy.PauseTx()
		n.proxy.PauseRx()
	} else {
		n.proxy.UnpauseTx()
		n.proxy.UnpauseRx()
	}
}

// swallow loses what goes either way.
func (n *network) swallow(on bool) {
	if on {
		n.proxy.BlackholeTx()
		n.proxy.BlackholeRx()
	} else {
		n.proxy.UnblackholeTx()
		n.proxy.UnblackholeRx()
	}
}
