// Package proxy reaches a control plane through the HTTP proxy that the environment names, as grpc-go does while
// it dials by itself, which it does not here.
//
// It never looks a name of a control plane up: the proxy does. Limitation: proxies are spoken to without TLS.
package proxy

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"
)

// Proxy is one, and what it is to be asked for.
type Proxy struct {
	// Host is its host:port, and To that of the control plane.
	Host, To string

	user *url.Userinfo
}

// For is the proxy that a target is reached through by HTTPS_PROXY and NO_PROXY of the environment, or their forms
// in lower case; nil: it is reached directly, as loopback and Unix sockets always are.
func For(target string) (*Proxy, error) {
	to := target
	if scheme, rest, ok := strings.Cut(target, "://"); ok {
		if scheme != "dns" {
			return nil, nil
		}
		_, to, _ = strings.Cut(rest, "/")
	}
	if strings.HasPrefix(to, "unix:") || strings.HasPrefix(to, "unix-abstract:") {
		return nil, nil
	}
	u, err := httpproxy.FromEnvironment().ProxyFunc()(&url.URL{Scheme: "https", Host: to})
	switch {
	case err == nil && u == nil:
		return nil, nil
	case err != nil || strings.Trim(u.Path, "/") != "": // neither is shown: there may be a password in it
		return nil, errors.New("HTTPS_PROXY is not the URL of a proxy; write http://host:port, or name the control plane in NO_PROXY")
	case u.Scheme != "http":
		return nil, fmt.Errorf("HTTPS_PROXY names a proxy by %s://, and only http:// can be used; change it, or name the control plane in NO_PROXY", u.Scheme)
	}
	p := &Proxy{Host: u.Host, To: to, user: u.User}
	if u.Port() == "" {
		p.Host = net.JoinHostPort(u.Hostname(), "80")
	}
	return p, nil
}

// Dial connects to an address.
type Dial func(ctx context.Context, address string) (net.Conn, error)

// Through returns the target and the dialer that gRPC is to be given for a target: those of the caller, or others that lead
// through the proxy of the environment, which the log names then.
func Through(target string, dial Dial, log *slog.Logger) (string, Dial) {
	p, err := For(target)
	switch {
	case err != nil:
		return target, func(context.Context, string) (net.Conn, error) { return nil, err }
	case p == nil:
		return target, dial
	}
	log.Info("the control plane is reached through the proxy of HTTPS_PROXY", "proxy", p.Host)
	return "passthrough:///" + p.To, func(ctx context.Context, _ string) (net.Conn, error) { return p.Dial(ctx, dial) }
}

// Dial connects to the control plane (RFC 9110, 9.3.6), and with dial to the proxy. It takes as long as ctx has time, also
// if that is cancelled.
func (p *Proxy) Dial(ctx context.Context, dial Dial) (net.Conn, error) {
	conn, err := dial(ctx, p.Host)
	if err != nil {
		return nil, fmt.Errorf("the proxy of HTTPS_PROXY, %s: %w", p.Host, err)
	}
	deadline, _ := ctx.Deadline()
	err = errors.Join(conn.SetDeadline(deadline), p.connect(conn), conn.SetDeadline(time.Time{}))
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("the proxy of HTTPS_PROXY, %s, does not connect to %s: %w", p.Host, p.To, err)
	}
	return conn, nil
}

// connect asks for a tunnel.
func (p *Proxy) connect(conn net.Conn) error {
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Host: p.To}, Host: p.To, Header: http.Header{"User-Agent": {"xds-relay"}}}
	if p.user != nil {
		password, _ := p.user.Password()
		request.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(p.user.Username()+":"+password)))
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

// byByte is read byte by byte, so that a buffered reader takes nothing of what comes after what it was asked for: the
// connection is to stay a *net.TCPConn.
type byByte struct{ net.Conn }

func (b byByte) Read(p []byte) (int, error) { return b.Conn.Read(p[:min(1, len(p))]) }
