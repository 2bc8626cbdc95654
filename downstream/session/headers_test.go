package session

import (
	"fmt"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
)

// TestSent: of the headers that a client sends, the relay keeps those that it forwards, and the
// name of a credential (NODE-13).
func TestSent(t *testing.T) {
	c := &Config{ForwardHeaders: []string{"x-b", "x-a"}}
	for _, tt := range []struct {
		sent     map[string][]string
		want     string
		withheld string
	}{
		{nil, "", ""},
		{map[string][]string{"cookie": {"c"}, ":authority": {"relay"}}, "", ""},
		{map[string][]string{"x-a": {"1", "2"}, "x-b": {"", "3"}}, "x-b= x-b=3 x-a=1 x-a=2", ""},
		{map[string][]string{"x-a": {}}, "", ""},
		{map[string][]string{"authorization": {"s"}, "x-a": {"1"}}, "x-a=1", "authorization"},
		{map[string][]string{"x-vault-token": {"s"}, "x-consul-token": {"s"}}, "", "x-consul-token"},
		{map[string][]string{"x-" + strings.Repeat("y", 100) + "-token": {"s"}}, "", ""},
	} {
		p := Peer{Withheld: "before"}
		p.Sent(tt.sent, c)
		var got []string
		for _, h := range p.Headers {
			got = append(got, h.Name+"="+string(h.Value))
		}
		if strings.Join(got, " ") != tt.want || p.Withheld != tt.withheld {
			t.Errorf("%v: %q, withheld %q; want %q, %q", tt.sent, got, p.Withheld, tt.want, tt.withheld)
		}
	}
}

// refusing is a relay in which there is no room.
type refusing struct{}

func (refusing) Key(Peer, *core.Node) (string, *End) { return "", nil }
func (refusing) Join(Peer, *core.Node, cache.TypeURL) (Membership, *End) {
	return Membership{}, &End{Overcrowded, "full"}
}

// TestHeadersThatCannotGoUp: headers that no stream could carry are refused before a group is
// made for them, and the error does not show them (NODE-13).
func TestHeadersThatCannotGoUp(t *testing.T) {
	const name = "authorization"
	whole := strings.Repeat("s", maxForwarded-len(name))
	for _, tt := range []struct {
		values []string
		want   string
	}{
		{[]string{whole}, ""},
		{[]string{whole + "s"}, "8193 bytes, more than 8192"},
		{[]string{whole[:4000], whole[4000:]}, "8205 bytes, more than 8192"},
		{[]string{"canary\xff"}, "not printable ASCII"},
	} {
		c := &Config{ForwardHeaders: []string{name}, MaxName: 1000, MaxNames: 1000}
		var p Peer
		p.Sent(map[string][]string{name: tt.values}, c)
		s := New(c, Stream{Delta: true}, p, refusing{}, NewClusterDeliveries(), func() {})
		_, end := s.DeltaRequest(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Cluster)}, time.Time{})
		switch {
		case tt.want == "" && end.Reason != Overcrowded: // it came as far as the group
			t.Errorf("%d bytes: %v", len(tt.values[0]), end)
		case tt.want != "" && (end == nil || end.Reason != BadRequest || !strings.Contains(end.Message, tt.want)):
			t.Errorf("%d values: %v, want %q", len(tt.values), end, tt.want)
		case strings.Contains(fmt.Sprint(end), "canary"):
			t.Errorf("the refusal shows the value: %v", end)
		}
	}
}
