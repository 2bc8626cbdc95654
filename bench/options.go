//go:build linux

package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/xds-relay/xds-relay/bench/internal/load"
)

// registerOptions offers the options of a workload, with its defaults.
func registerOptions(f *pflag.FlagSet, o *load.Options) {
	f.IntVar(&o.Clients, "clients", o.Clients, "clients, each a stream of its own")
	f.IntVar(&o.PerConn, "streams-per-connection", 1, "streams that share a connection")
	f.Float64Var(&o.ConnectRate, "connect-rate", o.ConnectRate, "clients that connect a second; 0: all at once")
	f.DurationVar(&o.Settle, "settle", o.Settle, "how long nothing happens before memory is read")
	f.Uint64Var(&o.World.Seed, "seed", o.World.Seed, "of everything that is random")
	if o.World.Clusters > 0 {
		f.IntVar(&o.World.Clusters, "clusters", o.World.Clusters, "clusters that there are")
		f.IntVar(&o.World.ClusterBytes, "cluster-bytes", o.World.ClusterBytes, "size of each, about")
	}
	if o.World.Assignments > 0 {
		f.IntVar(&o.World.Assignments, "assignments", o.World.Assignments, "endpoint assignments that there are")
		f.IntVar(&o.World.Endpoints, "endpoints", o.World.Endpoints, "endpoints of each")
		f.IntVar(&o.Names, "names", o.Names, "assignments that each client subscribes to")
	}
	if o.SotW > 0 && o.SotW < o.Clients {
		f.IntVar(&o.SotW, "sotw-clients", o.SotW, "clients, of all, that speak SotW")
	}
	if o.Rate > 0 {
		f.Float64Var(&o.Rate, "rate", o.Rate, "changes a second")
		f.DurationVar(&o.Warmup, "warmup", o.Warmup, "how long things change before it is measured")
		f.DurationVar(&o.Duration, "duration", o.Duration, "how long it is measured")
	}
	if o.Churn > 0 {
		f.Float64Var(&o.Churn, "churn", o.Churn, "further clients that come, and soon go, a second")
	}
}

// tlsFlags are the files of clients that speak TLS.
type tlsFlags struct{ ca, cert, key string }

func (t *tlsFlags) register(f *pflag.FlagSet) {
	f.StringVar(&t.ca, "tls-ca", "", "PEM file with the roots of the server's certificate, which must name the host of its address; then clients speak TLS")
	f.StringVar(&t.cert, "tls-cert", "", "PEM file with the certificate of all clients")
	f.StringVar(&t.key, "tls-key", "", "PEM file with its key")
}

// config is what the flags say; nil: plaintext.
func (t *tlsFlags) config() (*tls.Config, error) {
	if t.ca == "" {
		if t.cert+t.key != "" {
			return nil, errors.New("--tls-cert and --tls-key need --tls-ca")
		}
		return nil, nil
	}
	text, err := os.ReadFile(t.ca)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca: %w", err)
	}
	c := &tls.Config{RootCAs: x509.NewCertPool()}
	if !c.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--tls-ca: %s has no certificate", t.ca)
	}
	if t.cert != "" {
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
