package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/relay"
)

// Options say what to show, and where.
type Options struct {
	For     time.Duration // 0: until the context ends
	Clients int           // half of them speak Delta, half SotW
	Rate    float64       // changes a second at the control plane; 0: only those of the story

	// Listen and ControlPlane are where the relay and the control plane listen, host:port;
	// empty: on loopback, on a port that the system picks.
	Listen, ControlPlane string

	Out   io.Writer
	TTY   bool       // one screen, updated in place; else a line for each event
	Color bool       // on a TTY only
	Width func() int // of the terminal; nil, or a result of 0: unknown

	// Admin, if set, starts an admin listener for the relay.
	Admin func(*relay.Relay) (url string, stop func(), err error)
	// Relay says who observes the relay; the rest is the demo's.
	Relay relay.Options
}

// Bounds of what one machine shows in a readable way.
const (
	maxClients = 10_000
	maxRate    = 1000
)

func (o Options) check() error {
	switch {
	case o.Clients < 1 || o.Clients > maxClients:
		return fmt.Errorf("demo: %d clients: choose from 1 to %d", o.Clients, maxClients)
	case !(o.Rate >= 0 && o.Rate <= maxRate):
		return fmt.Errorf("demo: %v changes a second: choose from 0 to %d", o.Rate, maxRate)
	case o.For < 0:
		return fmt.Errorf("demo: a length of %v: choose a positive one, or 0 for a demo that Ctrl-C ends", o.For)
	}
	return nil
}

// Run plays the demo until its time is over, or ctx ends, which is no error. When
// it returns, everything that it started has ended.
func Run(ctx context.Context, o Options) error {
	_, err := run(ctx, o)
	return err
}

// demo is a demo that runs.
type demo struct {
	options Options
	begin   time.Time
	cp      *controlPlane
	stats   *stats
	clients []*client
	view    *view

	// Set once, before anything is shown.
	cpAddr, relayAddr, admin string

	// world is held to change what the control plane has, and who should get
	// it: whoever holds it sees neither change.
	world sync.Mutex
}

// quickly are the settings in which the relay differs from its defaults: an outage
// of seconds is to be over in seconds.
var quickly = []string{"upstream.backoff.initial=200ms", "upstream.backoff.max=1s"}

// run is Run, and leaves the demo for a test to look at.
func run(ctx context.Context, o Options) (d *demo, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	d = &demo{options: o, begin: time.Now(), stats: &stats{}, cp: newControlPlane()}
	d.cp.addr = o.ControlPlane
	if err := d.cp.Start(ctx); err != nil {
		return nil, err
	}
	defer d.cp.Stop()
	d.cpAddr = d.cp.addr

	r, err := d.startRelay()
	if err != nil {
		return nil, err
	}
	defer r.Close(0)
	if o.Admin != nil {
		url, stop, err := o.Admin(r)
		if err != nil {
			return nil, fmt.Errorf("demo: admin listener: %w", err)
		}
		defer stop()
		d.admin = url
	}
	defer d.stopClients()
	if err := d.startClients(); err != nil {
		return nil, err
	}

	d.view = newView(o, d.state)
	d.view.Start()
	story := ctx
	if o.For > 0 {
		var cancel context.CancelFunc
		story, cancel = context.WithDeadline(ctx, d.begin.Add(o.For))
		defer cancel()
	}
	err = d.play(story)
	if err == nil {
		err = d.settle(ctx)
	}
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil
	}
	d.view.Stop()
	if err != nil {
		return d, err
	}
	d.view.Print(d.summary())
	return d, nil
}

// startRelay puts the relay together as serve does.
func (d *demo) startRelay() (*relay.Relay, error) {
	// It has the memory of a relay with an admin listener, wherever Admin listens.
	c, err := config.Load("", append([]string{"upstream.address=" + d.cpAddr, "instance=demo", "admin.listen=" + loopback}, quickly...))
	if err != nil {
		return nil, fmt.Errorf("demo: relay: %w", err)
	}
	l, err := net.Listen("tcp", cmp.Or(d.options.Listen, loopback))
	if err != nil {
		return nil, fmt.Errorf("demo: relay: %w", err)
	}
	r, err := relay.New(c, d.options.Relay)
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("demo: relay: %w", err)
	}
	d.relayAddr = l.Addr().String()
	r.Serve(countedListener{l, &d.stats.bytes})
	return r, nil
}

func (d *demo) startClients() error {
	half := len(services) / 2
	for i := range d.options.Clients {
		var c *client
		if n := i/2 + 1; i%2 == 0 {
			c = newClient(fmt.Sprintf("delta-%d", n), false, services, d.stats)
		} else {
			// A gRPC application calls some of the services, and each others.
			var calls []string
			for j := range half {
				calls = append(calls, services[(i/2+j)%len(services)])
			}
			c = newClient(fmt.Sprintf("sotw-%d", n), true, calls, d.stats)
		}
		d.clients = append(d.clients, c)
		if err := c.Start(d.relayAddr); err != nil {
			return fmt.Errorf("demo: %s: %w", c.name, err)
		}
	}
	return nil
}

func (d *demo) stopClients() {
	for _, c := range d.clients {
		c.Leave()
	}
	for _, c := range d.clients {
		c.Stop()
	}
}

// connected is the number of clients that have a stream.
func (d *demo) connected() (n int) {
	for _, c := range d.clients {
		if c.Connected() {
			n++
		}
	}
	return n
}

// complete is the number of clients that have all they use, as it is now.
func (d *demo) complete() (n int) {
	for _, c := range d.clients {
		if c.Missing(d.cp) == 0 {
			n++
		}
	}
	return n
}

// state is what the view shows.
func (d *demo) state() state {
	n := len(d.clients)
	return state{
		elapsed: time.Since(d.begin), of: d.options.For,
		cpAddr: d.cpAddr, relayAddr: d.relayAddr, admin: d.admin,
		up: d.cp.up.Load(), streams: int64(d.cp.Streams()),
		delta: n - n/2, sotw: n / 2, connected: d.connected(), lost: d.stats.lost.Load(),
		responses: d.cp.responses.Load(), deliveries: d.stats.deliveries.Load(),
		upBytes: d.cp.bytes.Load(), downBytes: d.stats.bytes.Load(),
		travel: d.stats.Travel(),
	}
}

// summary is what stays when the demo is over.
func (d *demo) summary() []string {
	s := d.state()
	return []string{
		fmt.Sprintf("%s, each to every client that uses it: last %s, worst %s.",
			plural(int64(s.travel.changes), "change"), span(s.travel.last), span(s.travel.worst)),
		fmt.Sprintf("Control plane: %s, %s. Clients: %s, %s.",
			plural(s.responses, "response"), size(s.upBytes), plural(s.deliveries, "response"), size(s.downBytes)),
		fmt.Sprintf("%d of %d clients hold what the control plane has now; client streams lost: %s.",
			d.complete(), len(d.clients), count(s.lost)),
	}
}
