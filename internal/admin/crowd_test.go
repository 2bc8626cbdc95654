package admin

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// crowded serves a handler on a listener that may have two connections.
func crowded(t *testing.T, h http.HandlerFunc) (address string, c *crowd) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c = newCrowd(l, 2)
	s := &http.Server{Handler: h, ConnState: c.changed, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(c) // it ends with the test
	}()
	t.Cleanup(func() {
		s.Close()
		<-done
	})
	return l.Addr().String(), c
}

// TestCrowdMakesRoom: connections that nobody asks on shut out no probe, and those that are kept
// after an answer do not either.
func TestCrowdMakesRoom(t *testing.T) {
	address, c := crowded(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "live") })
	for range 3 {
		silent, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
	}
	for range 4 {
		keeps := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
		defer keeps.CloseIdleConnections()
		resp, err := keeps.Get("http://" + address)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "live" {
			t.Errorf("the answer is %q, %v", body, err)
		}
		resp.Body.Close()
		c.mu.Lock()
		if n := len(c.since); n > 2 {
			t.Errorf("%d connections are open", n)
		}
		c.mu.Unlock()
	}
}

// TestCrowdWaits: a connection with a request is never closed for another one; who comes waits.
func TestCrowdWaits(t *testing.T) {
	begun, proceed := make(chan bool, 4), make(chan struct{})
	address, _ := crowded(t, func(http.ResponseWriter, *http.Request) {
		begun <- true
		<-proceed
	})
	var asking sync.WaitGroup
	ask := func() {
		asking.Go(func() {
			resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + address)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
		})
	}
	ask()
	ask()
	<-begun
	<-begun
	ask()
	ask()
	select {
	case <-begun:
		t.Error("there are three requests on two connections")
	case <-time.After(3 * aMoment):
	}
	close(proceed)
	asking.Wait()
}

// TestNoDescriptorLeft: the log does not blame the address of the listener.
func TestNoDescriptorLeft(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log safe
	s := Serve(&starved{Listener: l}, &Face{Handler: http.NotFoundHandler()}, slog.New(slog.NewTextHandler(&log, nil)))
	resp, err := http.Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	s.Close()
	if text := log.String(); !strings.Contains(text, "no file descriptor is left; raise LimitNOFILE") {
		t.Errorf("the log is %q", text)
	}
}

// starved is a listener that finds no descriptor at first.
type starved struct {
	net.Listener
	once sync.Once
}

func (s *starved) Accept() (c net.Conn, err error) {
	s.once.Do(func() {
		err = &net.OpError{Op: "accept", Net: "tcp", Addr: s.Addr(), Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	})
	if err != nil {
		return nil, err
	}
	return s.Listener.Accept()
}

// safe is a log that several goroutines write.
type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safe) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
