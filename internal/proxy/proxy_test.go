package proxy

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// environment sets the variables, of which there may be others here.
func environment(t *testing.T, https, no string) {
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
		{"http://proxy/", "", "cp.example:15010", "proxy:80", "cp.example:15010", ""},
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
		environment(t, tt.https, tt.no)
		p, err := For(tt.target)
		if p == nil {
			p = &Proxy{}
		}
		if p.Host != tt.proxy || p.To != tt.to || (err != nil) != (tt.err != "") {
			t.Errorf("%+v: %+v, %v", tt, p, err)
		}
		if err != nil && (!strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

// TestRefusals: what a proxy that leads nowhere says is in the error, and what to do about it.
func TestRefusals(t *testing.T) {
	nowhere := peer.NewProxy(t, "127.0.0.1:1")
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for url, want := range map[string]string{
		"http://" + nowhere.Addr:             "it wants to know who asks; write HTTPS_PROXY=http://user:password@",
		"http://user:secret@" + nowhere.Addr: "502 Bad Gateway; see whether its rules allow that",
		"http://127.0.0.1:1":                 "the proxy of HTTPS_PROXY, 127.0.0.1:1: dial tcp 127.0.0.1:1: ",
		"http://" + silent.Addr().String():   "does not connect to control-plane.test:15010: ",
	} {
		environment(t, url, "")
		p, err := For("control-plane.test:15010")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, err = p.Dial(ctx, func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		})
		cancel()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want %s", err, want)
		}
		if url == "http://"+silent.Addr().String() && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%v does not say that time was short", err)
		}
	}
}
