package xdstest

import (
	"context"
	"fmt"
	"net"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// fetch makes a unary call, and hears the answer when it comes.
func (c *Client) fetch(cmd Command) error {
	path := strings.Replace(method(cmd.TypeURL, true, cmd.V2()), "/Stream", "/Fetch", 1)
	if cmd.TypeURL == "" || path == "" {
		return fmt.Errorf("there is no Fetch method for %s", ShortName(cmd.TypeURL))
	}
	if from, ok := cmd.Options["from"]; ok {
		c.mu.Lock()
		c.from = net.ParseIP(from)
		c.mu.Unlock()
	}
	dialogue := NewDialogue(c.actor, Command{Variant: "sotw", Options: cmd.Options}, c.transcript)
	cmd.Verb = "req"
	req, err := dialogue.Request(cmd)
	if err != nil {
		return err
	}
	go func() {
		resp := new(discoveryv3.DiscoveryResponse)
		if err := c.conn.Invoke(context.Background(), path, req, resp); err != nil {
			c.put(nil, Event{Actor: c.actor, Text: Fetched(Ending(err))})
			return
		}
		text, fault := dialogue.Hear(resp)
		c.put(fault, Event{Actor: c.actor, Text: Fetched(text), Message: resp})
	}()
	return nil
}

// Fetched is how the answer of a call is told from what is heard on a stream.
func Fetched(text string) string { return "fetched " + strings.TrimPrefix(text, "resp ") }
