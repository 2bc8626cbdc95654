package upstream

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/credentials/insecure"
)

// proxyEnvironment sets the variables, of which there may be others here.
func proxyEnvironment(t *testing.T, https, no string) {
	for name, value := range map[string]string{"HTTPS_PROXY": https, "NO_PROXY": no, "https_proxy": "", "no_proxy": "", "REQUEST_METHOD": ""} {
		t.Setenv(name, value)
	}
}

// TestProxyOfTheEnvironment: the variables mean what they mean to grpc-go.
func TestProxyOfTheEnvironment(t *testing.T) {
	for _, tt := range []struct{ https, no, target, proxy, to, err string }{
		{"http://proxy:3128", "", "cp.example:15010", "proxy:3128", "cp.example:15010", ""},
		{"http://proxy:3128", "", "dns:///cp.example:15010", "proxy:3128", "cp.example:15010", ""},
		{"proxy:3128", "", "cp.example:15010", "proxy:3128", "cp.example:15010", ""},
		{"http://proxy:3128", ".example", "cp.example:15010", "", "", ""},
		{"http://proxy:3128", "10.0.0.0/8", "10.1.2.3:15010", "", "", ""},
		{"http://proxy:3128", "", "127.0.0.1:15010", "", "", ""},
		{"http://proxy:3128", "", "localhost:15010", "", "", ""},
		{"http://proxy:3128", "", "unix:///run/cp.sock", "", "", ""},
		{"http://proxy:3128", "", "unix:/run/cp.sock", "", "", ""},
		{"http://proxy:3128", "", "unix-abstract:cp.sock", "", "", ""},
		{"", "", "cp.example:15010", "", "", ""},
		{"socks5://proxy:1080", "", "cp.example:15010", "", "", "by socks5://, and only http:// can be used; change it"},
		{"http://user:secret@[proxy", "", "cp.example:15010", "", "", "HTTPS_PROXY is not the URL of a proxy; write"},
	} {
		proxyEnvironment(t, tt.https, tt.no)
		proxy, to, err := Proxy(tt.target)
		host := ""
		if proxy != nil {
			host = proxy.Host
		}
		if host != tt.proxy || proxy != nil && to != tt.to || (err != nil) != (tt.err != "") {
			t.Errorf("%+v: %v, %s, %v", tt, proxy, to, err)
		}
		if err != nil && (!strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

// proxy is one for whoever says user:secret, and leads to one place, whatever it is asked for.
func proxy(t *testing.T, to string) (address string, asked func() []string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var names []string
	var work sync.WaitGroup
	serve := func(conn net.Conn) {
		defer conn.Close()
		r := bufio.NewReader(conn)
		request, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		mu.Lock()
		names = append(names, request.Method+" "+request.Host)
		mu.Unlock()
		if request.Header.Get("Proxy-Authorization") != "Basic dXNlcjpzZWNyZXQ=" {
			_, _ = io.WriteString(conn, "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n") // as it can
			return
		}
		up, err := net.Dial("tcp", to)
		if err != nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 502 Bad Gateway\r\n\r\n") // the same
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n") // the same
		work.Go(func() {
			_, _ = io.Copy(conn, up) // until one of them is closed
			conn.Close()
		})
		_, _ = io.Copy(up, r) // the same
		up.Close()
	}
	work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() { serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		work.Wait()
	})
	return l.Addr().String(), func() []string {
		mu.Lock()
		defer mu.Unlock()
		return names
	}
}

// TestThroughAProxy: the control plane, which only the proxy can find, is reached through it, and the log names the
// proxy once, without its password. A proxy that refuses is in the error.
func TestThroughAProxy(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l, nil)
	address, asked := proxy(t, l.Addr().String())
	proxyEnvironment(t, "http://user:secret@"+address, "")
	var log lines
	c := reach(t, Endpoint{Name: "cp", Target: "dns:///control-plane.test:15010", Credentials: insecure.NewCredentials(), Log: slog.New(slog.NewTextHandler(&log, nil))})
	open(t, c, 1)
	if got := asked(); len(got) != 1 || got[0] != "CONNECT control-plane.test:15010" {
		t.Errorf("the proxy was asked %q", got)
	}
	if n := log.count("through the proxy of HTTPS_PROXY\" upstream=cp proxy=" + address); n != 1 || log.count("secret") > 0 {
		t.Errorf("it was logged %d times: %v", n, log.all)
	}

	for user, want := range map[string]string{"": "it wants to know who asks; write HTTPS_PROXY=http://user:password@", "user:secret@": "502 Bad Gateway; see whether its rules allow that"} {
		nowhere, _ := proxy(t, "127.0.0.1:1")
		proxyEnvironment(t, "http://"+user+nowhere, "")
		p, to, err := Proxy("control-plane.test:15010")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DialThrough(t.Context(), p, to); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
