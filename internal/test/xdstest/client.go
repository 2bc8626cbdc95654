package xdstest

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// Client is a fake xDS client with a connection of its own and at most one stream on it, of any variant and service. It says
// only what it is told to; it never acks by itself.
type Client struct {
	*mailbox
	actor      string
	transcript *Transcript // may be nil
	conn       *grpc.ClientConn

	mu     sync.Mutex
	from   net.IP
	stream *clientStream // nil when there is none
	spoken bool          // anything, ever
}

// clientStream is one stream; the Client's mutex guards its Dialogue.
type clientStream struct {
	grpc.ClientStream
	cancel   context.CancelFunc
	dialogue *Dialogue
}

// Dialer makes connections from an address, as Network does.
type Dialer func(ctx context.Context, from net.IP) (net.Conn, error)

// NewClient makes a client that connects when it first speaks. The transcript, which may be nil, says what to print.
func NewClient(actor string, t *Transcript, dial Dialer) (*Client, error) {
	c := &Client{mailbox: newMailbox(), actor: actor, transcript: t, from: net.IPv4(127, 0, 0, 1)}
	dialer := func(ctx context.Context, _ string) (net.Conn, error) {
		c.mu.Lock()
		from := c.from
		c.mu.Unlock()
		return dial(ctx, from)
	}
	var err error
	c.conn, err = grpc.NewClient("passthrough:///relay", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dialer), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newCodec())))
	return c, err
}

// Close ends the stream, unheard, and the connection.
func (c *Client) Close() {
	c.hangUp()
	_ = c.conn.Close() // fails only if it is closed already
}

// Say opens or closes the stream, or sends a request on it. The first thing said opens Delta ADS unless it is open.
func (c *Client) Say(cmd Command) error {
	c.mu.Lock()
	first := !c.spoken
	c.spoken = true
	c.mu.Unlock()
	switch cmd.Verb {
	case "open":
		return c.open(cmd)
	case "fetch":
		return c.fetch(cmd)
	}
	if first {
		if err := c.open(Command{Verb: "open", Variant: "delta"}); err != nil {
			return err
		}
	}
	if cmd.Verb == "close" {
		c.hangUp()
		return nil
	}
	s, m, err := c.request(cmd)
	if err != nil {
		return err
	}
	if err := s.SendMsg(m); err != nil && err != io.EOF { // EOF: the stream has ended, and the listener hears how
		return err
	}
	return nil
}

func (c *Client) request(cmd Command) (*clientStream, any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stream == nil {
		return nil, nil, fmt.Errorf("%s has no open stream: say open first", c.actor)
	}
	if cmd.Verb == "garbage" {
		return c.stream, garbage{}, nil
	}
	m, err := c.stream.dialogue.Request(cmd)
	return c.stream, m, err
}

func (c *Client) open(cmd Command) error {
	c.mu.Lock()
	busy := c.stream != nil
	if from, ok := cmd.Options["from"]; ok {
		c.from = net.ParseIP(from)
	}
	c.mu.Unlock()
	if busy {
		return fmt.Errorf("%s has a stream open: close it first, or use another client", c.actor)
	}
	dialogue := NewDialogue(c.actor, cmd, c.transcript)
	path := method(cmd.TypeURL, dialogue.SotW, dialogue.V2)
	if path == "" {
		return fmt.Errorf("there is no %s method for %s", cmd.Variant, ShortName(cmd.TypeURL))
	}
	pairs, err := cmd.Headers()
	if err != nil {
		return err
	}
	var headers []string
	for _, h := range pairs {
		headers = append(headers, h[0], h[1])
	}
	if via := cmd.Options["via"]; via != "" {
		headers = append(headers, ViaHeader, via)
	}
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(context.Background(), headers...))
	desc := &grpc.StreamDesc{StreamName: path, ServerStreams: true, ClientStreams: true}
	stream, err := c.conn.NewStream(ctx, desc, path)
	if err != nil {
		cancel()
		return fmt.Errorf("%s: open %s: %w", c.actor, path, err)
	}
	s := &clientStream{ClientStream: stream, cancel: cancel, dialogue: dialogue}
	c.mu.Lock()
	c.stream = s
	c.mu.Unlock()
	go c.listen(s)
	return nil
}

// Headers are those that an open command sets, name and value, in their order.
func (c Command) Headers() (pairs [][2]string, err error) {
	list, err := wordList(c.Options["header"])
	for _, kv := range list {
		key, value, ok := strings.Cut(kv, ":")
		if !ok {
			return nil, fmt.Errorf("header is key:value, not %s", kv)
		}
		pairs = append(pairs, [2]string{key, value})
	}
	return pairs, err
}

// hangUp cancels the stream; the listener then finds that it is no longer the one, and says nothing.
func (c *Client) hangUp() {
	c.mu.Lock()
	s := c.stream
	c.stream = nil
	c.mu.Unlock()
	if s != nil {
		s.cancel()
	}
}

// listen hears the relay out.
func (c *Client) listen(s *clientStream) {
	defer s.cancel()
	for {
		var m proto.Message = &discoveryv3.DeltaDiscoveryResponse{}
		if s.dialogue.SotW {
			m = &discoveryv3.DiscoveryResponse{}
		}
		err := s.RecvMsg(m)
		c.mu.Lock()
		if c.stream != s {
			c.mu.Unlock()
			return
		}
		if err != nil {
			c.stream = nil
			c.put(nil, Event{Actor: c.actor, Text: Ending(err)})
			c.mu.Unlock()
			return
		}
		text, fault := s.dialogue.Hear(m)
		c.put(fault, Event{Actor: c.actor, Text: text, Message: m})
		c.mu.Unlock()
	}
}

// Ending prints how a stream ended that a client was on.
func Ending(err error) string {
	if err == io.EOF {
		return "end"
	}
	return "end " + statusOf(err).join(" ")
}
