package relay

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/readable"
)

// ListenREST opens the address of downstream.rest.listen; nil: there is none.
func (r *Relay) ListenREST() (net.Listener, error) {
	address := r.Config().Downstream.REST.Listen
	if address == "" {
		return nil, nil
	}
	l, err := Listen(address)
	if err != nil {
		return nil, fmt.Errorf("downstream.rest.listen: %w", err)
	}
	return l, nil
}

// ServeREST accepts clients that poll on a listener until Close; it returns at once. Their answers know the messages of
// Envoy's API, and of upstream.files.descriptors as these are now.
func (r *Relay) ServeREST(l net.Listener) error {
	messages, err := known(r.Config())
	if err != nil {
		return err
	}
	r.log.Info("serving", "listener", l.Addr().String(), "protocol", "rest")
	r.work.Go(func() {
		if err := r.server.ServeREST(l, r.polled.Load, messages); err != nil {
			r.log.Error("listener failed", "listener", l.Addr().String(), "err", err)
		}
	})
	return nil
}

// known are the messages that have a form in JSON.
func known(c *config.Config) (*readable.Set, error) {
	var more [][]byte
	for _, path := range c.Upstream.Files.Descriptors {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("upstream.files.descriptors: %w", err)
		}
		more = append(more, data)
	}
	return readable.LoadWith(more...)
}

// overHTTP is a configuration for HTTP/2 and HTTP/1.1. gRPC makes its own out of the same.
func overHTTP(base *tls.Config) *tls.Config {
	protocols := []string{"h2", "http/1.1"}
	c := base.Clone()
	c.NextProtos = protocols
	of := base.GetConfigForClient
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := of(hello)
		if c != nil {
			c.NextProtos = protocols
		}
		return c, err
	}
	return c
}
