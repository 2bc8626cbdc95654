package xdstest

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing/synctest"
	"time"
)

// Factory starts a relay in this process. The config is what a user would give --set. The relay reaches its control plane
// with dial, whatever the address, and serves its clients on the listener. It must start no goroutine that outlives stop.
//
// Between two lines of a transcript no time passes, so whatever the relay delays by default (coalescing, settling) is not heard
// until somebody waits. A factory does well to set such delays to zero before it applies the config.
type Factory func(config []string, dial func(context.Context, string) (net.Conn, error), listen net.Listener) (stop func(), err error)

// live plays over real gRPC on in-memory connections.
type live struct {
	transcript   *Transcript
	upstream     *Network // the relay dials
	downstream   *Network // the relay listens
	controlPlane *ControlPlane
	clients      map[string]*Client
	factory      Factory
	config       []string
	state        string // a directory that outlives the relay, if the transcript wants one
	stop         func()
}

// Live makes players that start a relay and speak gRPC to it.
func Live(factory Factory) NewPlayer {
	return func(t *Transcript) (Player, error) {
		p := &live{transcript: t, factory: factory, upstream: NewNetwork(), downstream: NewNetwork(), clients: map[string]*Client{}, stop: func() {}}
		p.controlPlane = NewControlPlane(p.upstream.Listener())
		p.controlPlane.ShowVia = slices.Contains(t.Show, "via")
		p.controlPlane.ShowFeatures = slices.Contains(t.Show, "features")
		err := p.settings()
		if err == nil {
			err = p.start(p.downstream.Listener())
		}
		if err != nil {
			p.Close()
			return nil, err
		}
		return p, nil
	}
}

// settings puts a directory in the place of the word for one.
func (p *live) settings() (err error) {
	for _, kv := range p.transcript.Config {
		if key, value, _ := strings.Cut(kv, "="); value == StateDir {
			if p.state, err = os.MkdirTemp("", "transcript"); err != nil {
				return err
			}
			kv = key + "=" + p.state
		}
		p.config = append(p.config, kv)
	}
	return nil
}

func (p *live) start(listener net.Listener) (err error) {
	stop, err := p.factory(p.config, p.upstream.Dial, listener)
	if err != nil {
		listener.Close()
		return err
	}
	p.stop = stop
	synctest.Wait()
	return nil
}

// restart ends the relay and starts another one with the same state. Nobody hears the
// end: the clients are gone, and so is every stream of the control plane.
func (p *live) restart() error {
	p.controlPlane.HangUp()
	for actor, c := range p.clients {
		c.Close()
		delete(p.clients, actor)
	}
	p.stop()
	return p.start(p.downstream.Relisten())
}

func (p *live) Say(actor string, c Command) error {
	err := p.say(actor, c)
	synctest.Wait()
	return err
}

func (p *live) say(actor string, c Command) error {
	switch {
	case clientActor.MatchString(actor):
		client, err := p.client(actor)
		if err != nil {
			return err
		}
		return client.Say(c)
	case c.Verb == "restart":
		return p.restart()
	case c.Verb == "down":
		p.controlPlane.HangUp()
		p.upstream.Down()
	case c.Verb == "back":
		p.upstream.Up()
	case upstreamActor.MatchString(actor):
		return p.controlPlane.Say(actor, c)
	default:
		return fmt.Errorf("%s cannot speak", actor)
	}
	return nil
}

func (p *live) client(actor string) (*Client, error) {
	if c := p.clients[actor]; c != nil {
		return c, nil
	}
	c, err := NewClient(actor, p.transcript, p.downstream.DialFrom)
	if err == nil {
		p.clients[actor] = c
	}
	return c, err
}

func (p *live) Heard() ([]Event, error) {
	events, err := p.controlPlane.Heard()
	for _, c := range p.clients {
		heard, fault := c.Heard()
		events = append(events, heard...)
		if fault != nil {
			err = fmt.Errorf("%s: %w", c.actor, fault)
		}
	}
	return events, err
}

func (p *live) Wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (p *live) Close() {
	for _, c := range p.clients {
		c.Close()
	}
	p.stop()
	p.controlPlane.Stop()
	synctest.Wait()
	if p.state != "" {
		_ = os.RemoveAll(p.state) // what stays is in the system's directory for such things
	}
}
