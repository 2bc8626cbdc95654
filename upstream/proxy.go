package upstream

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"
)

// Proxy is where HTTPS_PROXY and NO_PROXY of the environment, or their forms in lower case, want a target to be
// reached through, and what the proxy is to be asked for; nil: the target is reached directly, as loopback and Unix
// sockets always are. grpc-go decides by the same rules, but only while it dials by itself.
func Proxy(target string) (proxy *url.URL, to string, err error) {
	to = target
	if scheme, rest, ok := strings.Cut(target, "://"); ok {
		if scheme != "dns" {
			return nil, "", nil
		}
		_, to, _ = strings.Cut(rest, "/")
	}
	if strings.HasPrefix(to, "unix:") || strings.HasPrefix(to, "unix-abstract:") {
		return nil, "", nil
	}
	proxy, err = httpproxy.FromEnvironment().ProxyFunc()(&url.URL{Scheme: "https", Host: to})
	switch {
	case err != nil: // which may show a password
		return nil, "", errors.New("HTTPS_PROXY is not the URL of a proxy; write http://host:port, or name the control plane in NO_PROXY")
	case proxy != nil && proxy.Scheme != "http":
		return nil, "", fmt.Errorf("HTTPS_PROXY names a proxy by %s://, and only http:// can be used; change it, or name the control plane in NO_PROXY", proxy.Scheme)
	}
	return proxy, to, nil
}

// proxied has an endpoint that dials by itself do so through the proxy of the environment, if there is one for it.
func (e *Endpoint) proxied() {
	proxy, to, err := Proxy(e.Target)
	switch {
	case err != nil:
		e.Dial = func(context.Context, string) (net.Conn, error) { return nil, err }
	case proxy != nil:
		e.Target = "passthrough:///" + to // the proxy looks the name up
		e.Dial = func(ctx context.Context, _ string) (net.Conn, error) { return DialThrough(ctx, proxy, to) }
		e.Log.Info("the control plane is reached through the proxy of HTTPS_PROXY", "upstream", e.Name, "proxy", proxy.Host)
	}
}

// DialThrough connects to host:port through a proxy (RFC 9110, 9.3.6).
func DialThrough(ctx context.Context, proxy *url.URL, to string) (net.Conn, error) {
	address := proxy.Host
	if proxy.Port() == "" {
		address = net.JoinHostPort(proxy.Hostname(), "80")
	}
	conn, err := dialTCP(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("the proxy of HTTPS_PROXY, %s: %w", proxy.Host, err)
	}
	undo := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err = connect(conn, proxy, to)
	if !undo() {
		err = ctx.Err() // the deadline may have been set
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("the proxy of HTTPS_PROXY, %s, does not connect to %s: %w", proxy.Host, to, err)
	}
	return conn, nil
}

// connect asks a proxy for a tunnel.
func connect(conn net.Conn, proxy *url.URL, to string) error {
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Host: to}, Host: to, Header: http.Header{"User-Agent": {"xds-relay"}}}
	if user := proxy.User; user != nil {
		password, _ := user.Password()
		request.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := request.Write(conn); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(byByte{conn}), request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusProxyAuthRequired:
		return errors.New("it wants to know who asks; write HTTPS_PROXY=http://user:password@host:port")
	}
	return fmt.Errorf("%s; see whether its rules allow that, or name the control plane in NO_PROXY", response.Status)
}

// byByte is read byte by byte, so that a buffered reader takes nothing of what comes after what it was asked for.
type byByte struct{ net.Conn }

func (b byByte) Read(p []byte) (int, error) { return b.Conn.Read(p[:min(1, len(p))]) }
