package peer

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
)

// Proxy is an HTTP proxy for whoever says user:secret, which leads to one place, whatever it is asked for.
type Proxy struct {
	Addr string

	mu    sync.Mutex
	asked []string
}

// NewProxy returns one that runs until the test ends.
func NewProxy(t testing.TB, to string) *Proxy {
	p := &Proxy{}
	var work sync.WaitGroup
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.asked = append(p.asked, r.Method+" "+r.Host)
		p.mu.Unlock()
		if r.Header.Get("Proxy-Authorization") != "Basic dXNlcjpzZWNyZXQ=" {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		up, err := net.Dial("tcp", to)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		down, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			up.Close()
			return
		}
		_, _ = io.WriteString(down, "HTTP/1.1 200 Connection established\r\n\r\n") // what is lost, reading tells
		work.Go(func() {
			_, _ = io.Copy(up, buffered) // the same
			up.Close()
		})
		_, _ = io.Copy(down, up) // the same
		down.Close()
	}))
	t.Cleanup(func() {
		s.Close()
		work.Wait()
	})
	p.Addr = s.Listener.Addr().String()
	return p
}

// Asked are what it was asked for.
func (p *Proxy) Asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}
