package relay

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/origin"
	"github.com/xds-relay/xds-relay/internal/origin/rest"
	"github.com/xds-relay/xds-relay/internal/proxy"
	"github.com/xds-relay/xds-relay/internal/readable"
)

// FromREST is how a control plane is asked over REST, except for the way to it.
func FromREST(c *config.Config, e config.Fallback) (rest.Options, error) {
	fingerprint, err := Fingerprint(c)
	if err != nil {
		return rest.Options{}, err
	}
	u := &c.Upstream.REST
	messages, err := readable.LoadFiles(u.Descriptors)
	if err != nil {
		return rest.Options{}, fmt.Errorf("upstream.rest.descriptors: %w", err)
	}
	url, _ := config.RESTURL(e.Address)
	return rest.Options{
		Options: origin.Options{Name: e.Address, Session: DownstreamConfig(c)},
		URL:     url, Headers: OwnHeaders(e), Poll: u.Poll, Timeout: u.Timeout, Wait: u.Wait, Waits: c.Upstream.MaxConnections / 2, Remove: u.Absent == config.AbsentRemove,
		MaxBytes: int(c.Upstream.MaxReceiveBytes), Messages: messages, Fingerprint: fingerprint,
	}, nil
}

// feedFromREST makes the control plane of an entry that is asked over REST.
func (r *Relay) feedFromREST(c *config.Config, e config.Entry, creds credentials.TransportCredentials) (feed, error) {
	o, err := FromREST(c, e.Fallback)
	if err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	o.Random = r.options.Random
	o.Transport = RESTTransport(creds, r.options.Dial, c.Upstream.MaxConnections)
	return rest.New(o), nil
}

// RESTTransport carries requests to a control plane, through the proxy of the environment if there is one. dial may be nil.
func RESTTransport(creds credentials.TransportCredentials, dial proxy.Dial, maxConnections int) *http.Transport {
	if dial == nil {
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	connect := func(ctx context.Context, _, address string) (net.Conn, error) {
		raw, err := dialREST(ctx, address, dial)
		if err != nil {
			return nil, err
		}
		conn, _, err := creds.ClientHandshake(ctx, address, raw)
		if err != nil {
			raw.Close()
			return nil, err
		}
		return conn, nil
	}
	const idle, maxHeaders = 90 * time.Second, 64 << 10
	return &http.Transport{
		DialContext: connect, DialTLSContext: connect, IdleConnTimeout: idle, MaxResponseHeaderBytes: maxHeaders,
		MaxConnsPerHost: maxConnections, MaxIdleConnsPerHost: maxConnections,
	}
}

func dialREST(ctx context.Context, address string, dial proxy.Dial) (net.Conn, error) {
	switch p, err := proxy.For(address); {
	case err != nil:
		return nil, err
	case p != nil:
		return p.Dial(ctx, dial)
	}
	return dial(ctx, address)
}
