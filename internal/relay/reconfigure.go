package relay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xds-relay/xds-relay/internal/certs"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/upstream"
)

// The configuration changes while clients are connected. Each part gets its own value of
// the new one, and takes it on its own goroutine or under its own lock; no part waits for
// another.

// Reconfigure puts another configuration in force, which must be valid, and the same as the
// one in force in all keys that need a restart (see [config.Config.Keeping]). No client's
// stream ends, nor a connection to a control plane whose settings are the same. On an error
// nothing has happened.
func (r *Relay) Reconfigure(c *config.Config) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errors.New("the relay is shutting down")
	}
	rules, err := LoadRules(c)
	if err != nil {
		return err
	}
	ways, err := r.controlPlanes(c)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(c.Downstream.TLS, r.config.Downstream.TLS) {
		creds, err := r.serverCredentials(c.Downstream.TLS)
		if err != nil {
			closeUnless(ways, r.ways)
			return err
		}
		r.clients.swap(creds)
		r.ready.certificatesChanged()
	}
	r.warnOfRoom(c)
	r.server.Reconfigure(r.serverConfig(c))
	r.server.PassThrough(services(c), r.passage)
	done := r.groups.reconfigure(c, conns(ways))
	if c.Authz != r.config.Authz {
		r.groups.rules.use(rules, c, r.groups.run, r.server.Rejudge)
		r.server.Rejudge()
	}
	gone := r.ways
	r.config, r.ways = c, ways
	for i, e := range c.Upstream.AllEntries() {
		ways[i].conn.SetSection(e.Section)
		ways[i].calls.SetSection(e.Section)
		ways[i].rename(e.Section)
	}
	r.groups.run(func(context.Context) {
		for _, d := range done {
			<-d // or the group has ended
		}
		r.passage.offer(forCalls(c, ways))
		closeUnless(gone, ways)
	})
	return nil
}

// reconfigure hands groups what they are made of from now on, those that are there, too.
// Each channel is closed when a group has let go of connections that are not among conns.
func (g *groups) reconfigure(c *config.Config, conns []*upstream.Conn) (done []<-chan struct{}) {
	hub := HubConfig(c)
	hub.Unasked, hub.History = g.hub.Unasked, g.hub.History
	hub.Convergence = g.hub.Convergence
	hub.Unasked.Resize(int(c.Cache.MaxUnaskedBytes))
	hub.History.Resize(historyBytes(c))
	g.relays.Store(&c.Downstream.Relays)
	g.mu.Lock()
	g.live, g.hub = c, hub
	g.configured(c, g.sources[0].upstream.Fingerprint, conns)
	var all []*group // those that are made after this are told by start
	for _, gr := range g.byName {
		all = append(all, gr)
	}
	g.mu.Unlock()
	for _, gr := range all {
		gr.hub.Reconfigure(hub)
		s := g.sourceOf(gr)
		done = append(done, gr.client.Reconfigure(s.upstream, s.conns))
	}
	return done
}

// --- the ways to the control planes ---

// way is the Conn to a control plane, and what it was made from.
type way struct {
	conn  *upstream.Conn
	calls *upstream.Conn  // for calls of other services (LRS-2)
	files *certs.Followed // its certificates; nil: it has none
	feed  feed            // nil: the control plane speaks gRPC
	made  reach
}

func (w way) close() {
	w.conn.Close()
	w.calls.Close()
	if w.feed != nil {
		w.feed.Close()
	}
	if w.files != nil {
		w.files.Close()
	}
}

// rename calls its certificates by their place in the list.
func (w way) rename(section string) {
	if w.files == nil {
		return
	}
	if files := w.made.entry.TLS.Files(section, w.made.entry.Address); !files.Equal(w.files.Files()) {
		_ = w.files.Switch(files) // if they cannot be read just now, they keep their name
	}
}

// reach is all of a configuration that a Conn is made from. One in which any of it has
// changed is replaced: an entry's connections are made again, and its streams opened again.
type reach struct {
	name                             string
	entry                            config.Fallback
	fromFiles                        config.Files        // zero, if it is not from files
	rest                             config.RESTUpstream // zero, if it is not over REST
	maxReceive                       config.Bytes
	keepalive, missing, unavailable  time.Duration
	healthCheck                      config.HealthCheck
	maxConnections, maxStreamsOnEach int
}

func reachOf(c *config.Config, e config.Entry) reach {
	e.Insecure, e.Mode, e.ForwardHeaders, e.LastResort = false, "", false, nil // they are no matter of the connection
	u := &c.Upstream
	var from config.Files
	if _, files := config.FilesPath(e.Address); files {
		from = u.Files
	}
	var polled config.RESTUpstream
	if rest, _ := e.OverREST(); rest {
		polled = u.REST
	}
	return reach{
		name: e.Name, entry: e.Fallback, fromFiles: from, rest: polled, maxReceive: u.MaxReceiveBytes,
		keepalive: u.Keepalive, missing: c.Timers.DNETimeout, unavailable: c.Timers.UnavailableAfter,
		healthCheck: u.HealthCheck, maxConnections: u.MaxConnections, maxStreamsOnEach: u.MaxStreamsPerConnection,
	}
}

// conns are the Conns of ways.
func conns(ways []way) (conns []*upstream.Conn) {
	for _, w := range ways {
		conns = append(conns, w.conn)
	}
	return conns
}

// closeUnless closes the Conns of some ways that are not among others.
func closeUnless(ways, others []way) {
	kept := make(map[*upstream.Conn]bool)
	for _, w := range others {
		kept[w.conn] = true
	}
	for _, w := range ways {
		if !kept[w.conn] {
			w.close()
		}
	}
}

// controlPlanes are the ways to the control planes. Those that exist and have not changed
// are kept; the others are not connected yet.
func (r *Relay) controlPlanes(c *config.Config) (ways []way, err error) {
	o, there := r.options, r.ways
	for _, e := range c.Upstream.AllEntries() {
		made := reachOf(c, e)
		if known := slices.IndexFunc(there, func(w way) bool { return reflect.DeepEqual(w.made, made) }); known >= 0 {
			ways = append(ways, there[known])
			continue
		}
		creds, security, files, err := r.clientCredentials(e)
		if err != nil {
			closeUnless(ways, there)
			return nil, fmt.Errorf("upstream %s: %w", e.Address, err)
		}
		endpoint := upstream.Endpoint{
			Name:           e.Name,
			Target:         target(e.Address, o.Dial != nil),
			Credentials:    counted(creds, e.Name, o.Received),
			Security:       security,
			Section:        e.Section,
			MaxReceive:     int(c.Upstream.MaxReceiveBytes),
			Keepalive:      c.Upstream.Keepalive,
			Missing:        c.Timers.DNETimeout,
			MaxConnections: c.Upstream.MaxConnections,
			MaxStreams:     c.Upstream.MaxStreamsPerConnection,
			RoomWithin:     c.Timers.UnavailableAfter * 4 / 5, // before clients are told that nobody answers
			Headers:        OwnHeaders(e.Fallback),
			Dial:           o.Dial,
			Log:            o.Log.With("component", "upstream"),
			Observer:       o.Upstream,
			Events:         o.Events,
		}
		w := way{files: files, made: made}
		if e.InProcess() {
			if w.feed, err = r.newFeed(c, e, endpoint.Credentials); err != nil {
				if files != nil {
					files.Close()
				}
				closeUnless(ways, there)
				return nil, fmt.Errorf("%s.%w", e.Section, err)
			}
			endpoint.Target, endpoint.Dial, endpoint.MaxReceive = target(e.Address, true), w.feed.Dial, math.MaxInt32 // what it reads is bounded
			endpoint.Credentials, endpoint.Headers = insecure.NewCredentials(), nil                                   // these are for what it reads from
		}
		w.conn = upstream.NewConn(endpoint)
		w.calls = w.conn.Apart()
		ways = append(ways, w)
	}
	return ways, nil
}

// target is the gRPC target of an address; a dialer of ours gets it as it is.
func target(address string, dialed bool) string {
	if dialed {
		return "passthrough:///" + address
	}
	return address
}

// swappable are credentials that can be replaced while a server uses them: connections
// that begin after that are secured by the new ones.
type swappable struct {
	now atomic.Pointer[credentials.TransportCredentials]
}

func newSwappable(c credentials.TransportCredentials) *swappable {
	s := &swappable{}
	s.swap(c)
	return s
}

func (s *swappable) swap(c credentials.TransportCredentials)   { s.now.Store(&c) }
func (s *swappable) current() credentials.TransportCredentials { return *s.now.Load() }
func (s *swappable) Info() credentials.ProtocolInfo            { return s.current().Info() }
func (s *swappable) Clone() credentials.TransportCredentials   { return s }
func (s *swappable) OverrideServerName(string) error           { return nil } // a client's affair
func (s *swappable) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return s.current().ServerHandshake(raw)
}

// ClientHandshake is for clients, and these credentials are a server's.
func (s *swappable) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return s.current().ClientHandshake(ctx, authority, raw)
}
