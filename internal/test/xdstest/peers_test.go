package xdstest

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"
)

// TestPeersOverTCP uses the fakes as other packages' tests may: without a transcript, and outside a bubble.
func TestPeersOverTCP(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := NewControlPlane(listener)
	defer p.Stop()
	c, err := NewClient("c1", nil, func(ctx context.Context, _ net.IP) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	say := func(actor, text string) {
		t.Helper()
		var err error
		if actor == "up" {
			err = p.Say(actor, MustParse(actor, text))
		} else {
			err = c.Say(MustParse(actor, text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	hear := func(m interface {
		Next(context.Context) (Event, error)
	}, want string) {
		t.Helper()
		if got, err := m.Next(ctx); err != nil || got.String() != want {
			t.Fatalf("heard %v, %v; want %s", got, err, want)
		}
	}
	say("c1", "sub CDS a b")
	hear(p, "up < open node=c1")
	hear(p, "up < sub CDS a b")
	say("c1", "sub CDS c -a")
	hear(p, "up < sub CDS c -a")
	if got := p.Subscribed("up", "CDS"); !slices.Equal(got, []string{"b", "c"}) || p.Subscribed("aux", "CDS") != nil {
		t.Errorf("subscribed to %v", got)
	}
	say("up", "resp CDS nonce=1 -c")
	hear(c, "c1 < resp CDS -c")
	say("c1", "close")
	hear(p, "up < closed")
	say("c1", "open delta")
	say("c1", "sub CDS")
	hear(p, "up < open node=c1")
	if p.Streams() != 2 || !slices.Equal(p.Open(), []string{"up"}) {
		t.Errorf("%d streams were opened, %v are open", p.Streams(), p.Open())
	}
	say("up", "resp CDS nonce=1 a@1") // its version is not the body's fingerprint
	if event, err := c.Next(ctx); err == nil {
		t.Errorf("heard %v, and no fault", event)
	}
	cancel()
	if _, err := newMailbox().Next(ctx); err == nil {
		t.Error("an empty mailbox gave something")
	}
}

func TestNetworkTellsWhereAPeerIs(t *testing.T) {
	n := NewNetwork()
	defer n.Listener().Close()
	server := make(chan net.Conn, 1)
	go func() {
		conn, _ := n.Listener().Accept()
		server <- conn
	}()
	client, err := n.DialFrom(t.Context(), net.IPv4(192, 0, 2, 1))
	if err != nil {
		t.Fatal(err)
	}
	if got := (<-server).RemoteAddr().String(); got != "192.0.2.1:40000" {
		t.Errorf("the peer is at %s", got)
	}
	n.Down()
	if _, err := client.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlived the network")
	}
	if _, err := n.Dial(t.Context(), "anywhere"); err == nil {
		t.Error("a network that is down was dialled")
	}
}
