package relay

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	downsession "github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/certs"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/descriptors"
	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/internal/health"
	"github.com/xds-relay/xds-relay/internal/hop"
	"github.com/xds-relay/xds-relay/internal/memory"
	"github.com/xds-relay/xds-relay/upstream"
	"github.com/xds-relay/xds-relay/upstream/session"
)

// Options are what a relay needs beside its configuration.
type Options struct {
	// Log is where it writes; nil: nowhere.
	Log *slog.Logger
	// Upstream and Downstream observe the two sides, for metrics; nil: nobody does.
	Upstream   upstream.Observer
	Downstream downstream.Observer
	Snapshot   SnapshotObserver
	// Certificates hears of handshakes that fail and of certificate files that change;
	// nil: nobody is. Follow says how such files are followed; zero: as certs.Defaults.
	Certificates CertificateObserver
	Follow       certs.Options
	// Files hears of files that are served and have changed; nil: nobody does.
	Files FilesObserver
	// Rules hears of changes of authz.rules_file; nil: nobody does.
	Rules RulesObserver
	// Received hears how many bytes come from control planes; nil: nobody does.
	Received ReceivedObserver
	// Loads hears of sums of load reports; nil: nobody does.
	Loads LoadObserver
	// Convergence hears how long changes take to the last client; nil: it is not measured.
	Convergence ConvergenceObserver
	// Events is what operators are told, and Watch shows what clients and the relay say to each other; nil: nobody looks.
	Events *events.Ring
	Watch  *events.Watch
	// UpstreamTracer and DownstreamTracer follow updates to clients; nil: nobody traces.
	UpstreamTracer   upstream.Tracer
	DownstreamTracer downstream.Tracer
	// Version of the relay, for the snapshot's header.
	Version string
	// Hop is the relay's id on the way of a stream through relays (NODE-11); empty: it is
	// made, as hop.NewID does.
	Hop string
	// NoTrials: types that a control plane has never answered go up at once; for tests (UP-21).
	NoTrials bool
	// Dial, if set, replaces the network towards the control plane.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Random yields numbers in [0, 1) for jitter; nil: math/rand.
	Random func() float64
}

// Relay is a relay that runs. Its methods may be called from any goroutine.
type Relay struct {
	options Options
	log     *slog.Logger
	groups  *groups
	server  *downstream.Server
	clients *swappable // the credentials towards them
	ready   *readiness
	alive   *health.Watchdog
	memory  *memory.Watch
	trim    *trim
	keeper  *keeper // nil: there is no snapshot
	passage *passage

	// What Reconfigure replaces, under its mutex.
	mu     sync.Mutex
	config *config.Config
	ways   []way // in order of preference
	closed bool

	endDrain context.CancelFunc // nil: no clients are sent away

	certs      *certs.Follower
	serving    atomic.Pointer[certs.Followed] // what clients are shown; nil: they are served in plaintext
	polled     atomic.Pointer[tls.Config]     // the same for clients that poll
	handshakes *handshakes

	cancel context.CancelFunc
	work   sync.WaitGroup
}

// New starts a relay that listens nowhere yet: call Serve for each listener, and
// Close in the end. The configuration must be valid.
func New(c *config.Config, o Options) (*Relay, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Hop = cmp.Or(o.Hop, hop.NewID(c.InstanceName()))
	r := &Relay{options: o, config: c, log: o.Log, handshakes: newHandshakes(o.Log.With("component", "downstream"), o.Certificates)}
	r.followCertificates(o)
	serverCreds, err := r.serverCredentials(c.Downstream.TLS)
	if err != nil {
		return nil, err
	}
	fingerprint, err := Fingerprint(c)
	if err != nil {
		return nil, err
	}
	key, err := snapshotKey(c.Cache.Snapshot)
	if err != nil {
		return nil, err
	}
	rules, err := LoadRules(c)
	if err != nil {
		return nil, err
	}
	if r.ways, err = r.controlPlanes(c); err != nil { // the last that can fail, since it starts something
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.clients = cancel, newSwappable(serverCreds)
	convergence, measures := measureConvergence(o.Convergence)
	r.groups = &groups{
		Grouping: NewGrouping(c).Under(key),
		rules:    &authorizer{log: o.Log.With("component", "authz"), observer: o.Rules, events: o.Events, poll: o.Follow.NoNotify},
		events:   o.Events,
		hub:      HubConfig(c),
		options: upstream.ClientOptions{
			Log: o.Log.With("component", "upstream"), Observer: o.Upstream, Tracer: o.UpstreamTracer, Random: o.Random, Events: o.Events,
		},
		live:   c,
		log:    o.Log,
		run:    func(f func(context.Context)) { r.work.Go(func() { f(ctx) }) },
		byName: make(map[string]*group), advised: make(map[string]bool),
	}
	r.groups.hub.Convergence = convergence
	r.groups.configured(c, fingerprint, conns(r.ways))
	var answers *session.Answers
	if !o.NoTrials {
		answers = session.NewAnswers()
	}
	for _, s := range r.groups.sources {
		s.upstream.Hop, s.upstream.Answers = o.Hop, answers
	}
	r.warnOfRoom(c)
	r.memory, r.trim = memory.New(o.Log), newTrim()
	r.server = downstream.NewServer(r.serverConfig(c))
	r.passage = newPassage(r.groups, forCalls(c, r.ways), o)
	r.server.PassThrough(services(c), r.passage)
	r.groups.run(r.passage.run)
	r.groups.rules.use(rules, c, r.groups.run, r.server.Rejudge)
	if r.keeper = newKeeper(c, key, r.groups, answers, o); r.keeper != nil {
		r.keeper.load(fingerprint)
		r.groups.run(r.keeper.run)
	}
	r.ready = r.watchReadiness(TypeURLs(c.Downstream.ReadyTypes))
	r.groups.run(r.certs.Run)
	if convergence != nil {
		r.groups.run(measures)
	}
	r.alive = r.watchdog()
	r.groups.run(r.alive.Run)
	r.groups.run(r.server.WatchStale)
	o.Log.Info("groups", "profile", c.Groups.Profile, "key", r.groups.describe(), "secrets", c.Groups.EffectiveSecrets(), "send_identity", c.Groups.SendIdentity, "node_mode", c.EffectiveNodeMode())
	return r, nil
}

// serverConfig is the configuration of the server side.
func (r *Relay) serverConfig(c *config.Config) downstream.ServerConfig {
	sessions, room := DownstreamConfig(c), RoomFor(c, descriptors.Limit())
	sessions.Random, sessions.Hop = r.options.Random, r.options.Hop
	return downstream.ServerConfig{
		Config:       sessions,
		Groups:       r.groups,
		Credentials:  r.clients,
		MaxRequest:   int(c.Downstream.MaxRequestBytes),
		MaxStreams:   uint32(c.Downstream.MaxStreamsPerConnection),
		FirstMessage: c.Downstream.FirstMessageTimeout,
		MaxInflight:  int(c.Downstream.EffectiveMaxInflight()),
		Offers:       downstream.Offers{AcceptGzip: c.Downstream.AcceptGzip, Gzip: c.Downstream.Gzip, V2: c.Downstream.V2Transport},
		RequestRate:  c.Downstream.RequestRate,
		RequestBurst: c.Downstream.RequestBurst,
		StallTimeout: c.Downstream.StallTimeout,
		REST: downstream.RESTConfig{
			Hold: c.Downstream.REST.Hold, InterestTTL: c.Downstream.REST.InterestTTL,
			MaxPollers: c.Downstream.REST.MaxPollers, ProtoNames: c.Downstream.REST.ProtoNames,
		},
		Connection: downstream.ConnectionBounds{MaxAge: c.Downstream.MaxConnectionAge, MinPing: c.Downstream.KeepaliveMin},

		MaxStreamsOfAll: c.Downstream.MaxStreams,
		MaxNamesOfAll:   c.Downstream.MaxNames,
		Pressed:         r.pressed,
		MaxConnections:  room.Most,
		MoreConnections: room.Hint,

		Log:      r.log.With("component", "downstream"),
		Observer: r.options.Downstream,
		Tracer:   r.options.DownstreamTracer,

		Events: r.options.Events, Watch: r.options.Watch, StaleAfter: c.Admin.StaleAfter,
	}
}

// pressed is asked for each stream that a client opens.
func (r *Relay) pressed() bool {
	r.trim.came()
	return r.memory.Pressed()
}

// Config is the configuration in force. Nobody may change it.
func (r *Relay) Config() *config.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.config
}

// Listen opens the addresses of downstream.listen.
func (r *Relay) Listen() ([]net.Listener, error) {
	var listeners []net.Listener
	for _, address := range r.Config().Downstream.Listen {
		l, err := Listen(address)
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
			return nil, fmt.Errorf("downstream.listen: %w", err)
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

// Listen opens a TCP address ("host:port") or a Unix socket ("unix:///path"),
// which replaces a dead one of that name and is for the owner's group only. An abstract one
// ("unix-abstract:name") is no file.
func Listen(address string) (net.Listener, error) {
	network, address, err := config.SplitListen(address)
	if err != nil {
		return nil, err
	}
	file := network == "unix" && !strings.HasPrefix(address, "@")
	if file {
		if err := os.MkdirAll(filepath.Dir(address), 0o750); err != nil {
			return nil, err
		}
		if c, err := net.Dial("unix", address); err == nil {
			c.Close()
			return nil, fmt.Errorf("%s is in use by a running process", address)
		} else if info, missing := os.Lstat(address); missing == nil && info.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("%s is there already, and is no socket", address)
		} else if errors.Is(err, syscall.ECONNREFUSED) { // another error may be of a live one
			os.Remove(address)
		}
	}
	l, err := net.Listen(network, address)
	if err == nil && file {
		err = os.Chmod(address, 0o660)
	}
	return l, err
}

// Serve accepts clients on a listener until Close; it returns at once.
func (r *Relay) Serve(l net.Listener) {
	r.ready.listening()
	r.log.Info("serving", "listener", l.Addr().String()) // whoever has read it finds the relay ready
	r.work.Go(func() {
		if err := r.server.Serve(l); err != nil {
			r.log.Error("listener failed", "listener", l.Addr().String(), "err", err)
		}
	})
}

// Close ends all streams with UNAVAILABLE, spread over a time so that clients do
// not come back all at once (ERR-14), and stops everything. It returns when all is
// still.
func (r *Relay) Close(spread time.Duration) {
	r.ready.stop()
	r.groups.keep()
	r.server.Close(spread) // until then, the remaining clients get all changes
	r.passage.loads.close()
	r.trim.close()
	if r.keeper != nil {
		r.keeper.save(true) // the interest of clients that have left
	}
	r.cancel()
	r.mu.Lock()
	r.closed = true
	last := r.ways
	r.mu.Unlock()
	for _, w := range last {
		w.close()
	}
	r.work.Wait()
	if r.keeper != nil {
		r.keeper.close()
	}
}

// ReadRules reads authz.rules_file again, at once, and reports whether other rules are in force since. A file with
// mistakes changes nothing, and the log says so.
func (r *Relay) ReadRules() bool { return r.groups.rules.read(r.server.Rejudge) }

// Ready reports whether the relay can serve, and if not, why (ERR-14).
func (r *Relay) Ready() (ready bool, why string) {
	if ready, why = health.Verdict(r.ready.state()); ready {
		why = "ready"
	}
	return ready, why
}

// Readiness is what Ready comes of, condition by condition.
func (r *Relay) Readiness() []health.Check { return r.ready.state() }

// Started reports whether it was ready at least once.
func (r *Relay) Started() bool { return r.ready.was() }

// Clients describes the open client streams.
func (r *Relay) Clients() []downstream.Client { return r.server.Clients() }

// Client describes an open client stream.
func (r *Relay) Client(stream uint64) (downstream.Client, bool) { return r.server.Client(stream) }

// ClientNames describes the resources of a type that a client has or asks for.
func (r *Relay) ClientNames(stream uint64, t cache.TypeURL, after string, most int) ([]downsession.ClientName, bool) {
	return r.server.ClientNames(stream, t, after, most)
}

// Streams are the numbers of the open client streams, oldest first.
func (r *Relay) Streams() []uint64 { return r.server.Streams() }

// View looks at an open client stream whose client's node is wanted.
func (r *Relay) View(stream uint64, wanted func(*core.Node) bool, into *downstream.View) bool {
	return r.server.View(stream, wanted, into)
}

// Health says over gRPC whether the relay can serve, by the rule of Ready.
func (r *Relay) Health() healthpb.HealthServer { return r.server.Health() }

// Holders returns which versions of a resource a group's clients have.
func (r *Relay) Holders(hub *fanout.Hub, t cache.TypeURL, name string) []downstream.Holder {
	return r.server.Holders(hub, t, name)
}

// ClientLacks describes the resources of a type that a client has not accepted as they are.
func (r *Relay) ClientLacks(stream uint64, t cache.TypeURL) []downsession.ClientName {
	return r.server.ClientLacks(stream, t)
}

// ClientName describes one resource of a type, as a client has it.
func (r *Relay) ClientName(stream uint64, t cache.TypeURL, name string) (downsession.ClientName, bool) {
	return r.server.ClientName(stream, t, name)
}

// Disconnect ends a client's stream, so that the client connects again.
func (r *Relay) Disconnect(stream uint64) bool { return r.server.Disconnect(stream) }

// Resync has a client sent again all that it asks for.
func (r *Relay) Resync(stream uint64) bool { return r.server.Resync(stream) }

// Check says what does not hold, of the streams of clients, that has to hold at any time.
func (r *Relay) Check() []string { return r.server.Check() }

// Summary counts the open client streams, for metrics.
func (r *Relay) Summary() downstream.Summary { return r.server.Summary() }

// Methods lists the gRPC methods that clients can call, as service/method.
func (r *Relay) Methods() []string { return r.server.Methods() }

// Calls counts the open calls of each service that goes through to the control plane.
func (r *Relay) Calls() map[string]int { return r.server.Calls() }

// Count is the number of open client streams, and of clients that poll.
func (r *Relay) Count() int { return r.server.Count() }

// Groups are the names and Hubs of the groups that exist now.
func (r *Relay) Groups() map[string]*fanout.Hub { return r.groups.hubs() }

// Upstream is the state of the groups' streams to their control planes.
func (r *Relay) Upstream() map[string]session.State {
	states := make(map[string]session.State)
	for name, c := range r.groups.clients() {
		states[name] = c.State()
	}
	return states
}

// ControlPlanes are the names of the control planes, those of each source in order of preference.
func (r *Relay) ControlPlanes() (names []string) {
	for _, e := range r.Config().Upstream.AllEntries() {
		names = append(names, e.Name)
	}
	return names
}

// Silent counts, for each type, the groups for which the control plane, though alive,
// says nothing of the type.
func (r *Relay) Silent() map[cache.TypeURL]int {
	silent := make(map[cache.TypeURL]int)
	for _, c := range r.groups.clients() {
		for _, t := range c.Silent() {
			silent[t]++
		}
	}
	return silent
}

// followCertificates makes what keeps certificates up to date. It starts with the relay.
func (r *Relay) followCertificates(o Options) {
	follow := o.Follow
	follow.Log, follow.Observer, follow.Events = o.Log.With("component", "certificates"), r.handshakes.observer, o.Events
	follow.Changed = func() { r.ready.certificatesChanged() }
	r.certs = certs.NewFollower(follow)
}

// Certificates are the files in use that have an end: certificates and authorities.
func (r *Relay) Certificates() []certs.State { return r.certs.States() }
