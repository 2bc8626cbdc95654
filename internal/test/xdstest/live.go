package xdstest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing/synctest"
	"time"
)

// Factory starts a relay in this process. The config is what a user would give --set. The relay reaches its control plane
// with dial, whatever the address, and serves its clients on the listener. It must start no goroutine that outlives stop.
//
// Between two lines of a transcript no time passes, so whatever the relay delays by default (coalescing, settling) is not heard
// until somebody waits. A factory does well to set such delays to zero before it applies the config.
type Factory func(config []string, dial func(context.Context, string) (net.Conn, error), listen net.Listener) (Relay, error)

// Relay is a relay that runs.
type Relay interface {
	Stop()
	// ReadRules reads authz.rules_file again.
	ReadRules() bool
}

// none stands for a relay before the first one.
type none struct{}

func (none) Stop()           {}
func (none) ReadRules() bool { return false }

// live plays over real gRPC on in-memory connections.
type live struct {
	transcript *Transcript
	first      *plane
	second     *plane
	downstream *Network // the relay listens
	clients    map[string]*Client
	factory    Factory
	config     []string
	state      string // a directory that outlives the relay, if the transcript wants one
	relay      Relay
}

// plane is a control plane and the network on which the relay dials it.
type plane struct {
	*ControlPlane
	network *Network
}

func newPlane(prefix string, show []string) *plane {
	n := NewNetwork()
	p := &plane{newControlPlane(prefix, n.Listener()), n}
	p.Show = show
	return p
}

// SecondAddress is where the second control plane is; all other addresses lead to the first.
const SecondAddress = "127.0.0.1:15011"

// secondPrefix begins the names of the second control plane's actors.
const secondPrefix = "b."

func (p *live) dial(ctx context.Context, address string) (net.Conn, error) {
	if address == SecondAddress {
		return p.second.network.Dial(ctx, address)
	}
	return p.first.network.Dial(ctx, address)
}

// plane is the control plane of an actor.
func (p *live) plane(actor string) *plane {
	if strings.HasPrefix(actor, secondPrefix) {
		return p.second
	}
	return p.first
}

// Live makes players that start a relay and speak gRPC to it.
func Live(factory Factory) NewPlayer {
	return func(t *Transcript) (Player, error) {
		p := &live{transcript: t, factory: factory, first: newPlane("", t.Show), second: newPlane(secondPrefix, t.Show), downstream: NewNetwork(), clients: map[string]*Client{}, relay: none{}}
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
	if len(p.transcript.Policy) > 0 {
		if p.state, err = os.MkdirTemp("", "transcript"); err != nil {
			return err
		}
		p.config = append(p.config, "authz.rules_file="+p.rules())
		if err := p.write(p.transcript.Policy); err != nil {
			return err
		}
	}
	for _, kv := range p.transcript.Config {
		if key, value, _ := strings.Cut(kv, "="); value == StateDir {
			if p.state == "" {
				if p.state, err = os.MkdirTemp("", "transcript"); err != nil {
					return err
				}
			}
			kv = key + "=" + p.state
		}
		p.config = append(p.config, kv)
	}
	return nil
}

// rules is the file of rules.
func (p *live) rules() string { return filepath.Join(p.state, "rules.yaml") }

func (p *live) write(rules []string) error {
	return os.WriteFile(p.rules(), []byte(PolicyFile(rules)), 0o600)
}

func (p *live) start(listener net.Listener) (err error) {
	relay, err := p.factory(p.config, p.dial, listener)
	if err != nil {
		listener.Close()
		return err
	}
	p.relay = relay
	synctest.Wait()
	return nil
}

// restart ends the relay and starts another one with the same state. Nobody hears the
// end: the clients are gone, and so is every stream of the control plane.
func (p *live) restart() error {
	p.first.HangUp()
	p.second.HangUp()
	for actor, c := range p.clients {
		c.Close()
		delete(p.clients, actor)
	}
	p.relay.Stop()
	p.first.network.Drop() // what it has said to one that hangs is lost
	p.second.network.Drop()
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
	case c.Verb == "rules":
		if err := p.write(p.transcript.Later); err != nil {
			return err
		}
		p.relay.ReadRules()
	case c.Verb == "down":
		p.plane(actor).HangUp()
		p.plane(actor).network.Down()
	case c.Verb == "back":
		p.plane(actor).network.Up()
	case c.Verb == "wake":
		p.plane(actor).network.Wake(synctest.Wait)
	case p.plane(actor).network.Hung():
		return fmt.Errorf("%s hangs, and cannot %s", actor, c.Verb)
	case c.Verb == "hang":
		p.plane(actor).network.Hang()
	case upstreamActor.MatchString(actor):
		return p.plane(actor).Say(actor, c)
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
	events, err := p.first.Heard()
	more, fault := p.second.Heard()
	events, err = append(events, more...), errors.Join(err, fault)
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
	p.relay.Stop()
	p.first.Stop()
	p.second.Stop()
	synctest.Wait()
	if p.state != "" {
		_ = os.RemoveAll(p.state) // what stays is in the system's directory for such things
	}
}
