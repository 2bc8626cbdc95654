package session

import (
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// TestBareRequests: a bare request says the same as the decoded message.
func TestBareRequests(t *testing.T) {
	const url = string(cache.Cluster)
	for name, test := range map[string]struct {
		request proto.Message
		bare    bool
	}{
		"a Delta ACK":             {&discovery.DeltaDiscoveryRequest{TypeUrl: url, ResponseNonce: "n"}, true},
		"a SotW ACK":              {&discovery.DiscoveryRequest{TypeUrl: url, ResponseNonce: "n", VersionInfo: "v"}, true},
		"without a nonce":         {&discovery.DeltaDiscoveryRequest{TypeUrl: url}, false},
		"without a type":          {&discovery.DeltaDiscoveryRequest{ResponseNonce: "n"}, false},
		"a NACK":                  {&discovery.DeltaDiscoveryRequest{TypeUrl: url, ResponseNonce: "n", ErrorDetail: &statuspb.Status{Code: 3}}, false},
		"a subscribe":             {&discovery.DeltaDiscoveryRequest{TypeUrl: url, ResponseNonce: "n", ResourceNamesSubscribe: []string{"a"}}, false},
		"versions":                {&discovery.DeltaDiscoveryRequest{TypeUrl: url, ResponseNonce: "n", InitialResourceVersions: map[string]string{"a": "1"}}, false},
		"names":                   {&discovery.DiscoveryRequest{TypeUrl: url, ResponseNonce: "n", ResourceNames: []string{"a"}}, false},
		"longer than any of ours": {&discovery.DeltaDiscoveryRequest{TypeUrl: url, ResponseNonce: strings.Repeat("n", maxBare)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := proto.Marshal(test.request)
			if err != nil {
				t.Fatal(err)
			}
			_, delta := test.request.(*discovery.DeltaDiscoveryRequest)
			var b Bare
			if got := b.Read(raw, delta); got != test.bare {
				t.Fatalf("bare is %v, want %v", got, test.bare)
			}
			if !test.bare {
				return
			}
			clear(raw) // gRPC uses the buffer for something else
			if m, end := b.Message(delta); end != nil || !proto.Equal(m, test.request) {
				t.Errorf("it says %v (%v), want %v", m, end, test.request)
			}
		})
	}
}

// FuzzBareRequests: if a request is bare, ack and the message that is made of it agree on
// what it says, or it is no message.
func FuzzBareRequests(f *testing.F) {
	for _, m := range []proto.Message{
		&discovery.DeltaDiscoveryRequest{TypeUrl: "t", ResponseNonce: "n"},
		&discovery.DiscoveryRequest{TypeUrl: "t", ResponseNonce: "n", VersionInfo: "v"},
	} {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, true)
		f.Add(raw, false)
	}
	f.Fuzz(func(t *testing.T, raw []byte, delta bool) {
		var b Bare
		if !b.Read(raw, delta) {
			return
		}
		m, end := b.Message(delta)
		if end != nil {
			return
		}
		said, ok := m.(interface {
			GetTypeUrl() string
			GetResponseNonce() string
		})
		if !ok || said.GetTypeUrl() != string(b.TypeURL) || said.GetResponseNonce() != string(b.Nonce) {
			t.Errorf("%x: type %q, nonce %q; as a message %v", raw, b.TypeURL, b.Nonce, m)
		}
	})
}

// TestBareFirstRequestBringsItsVersion: a SotW client that comes back says what it has,
// with a nonce of another stream (DOWN-SOTW-4).
func TestBareFirstRequestBringsItsVersion(t *testing.T) {
	c := &Config{AckTimeout: time.Minute, MaxName: 100, MaxNames: 100}
	s := New(c, Stream{}, Peer{}, oneGroup{fanout.NewHub(fanout.Config{Linger: time.Second})}, NewClusterDeliveries(), func() {})
	raw, err := proto.Marshal(&discovery.DiscoveryRequest{TypeUrl: string(cache.Cluster), ResponseNonce: "old", VersionInfo: "v"})
	var b Bare
	if err != nil || !b.Read(raw, false) {
		t.Fatal("it is not bare", err)
	}
	if _, ok := s.Ack(&b, epoch); ok {
		t.Fatal("it is taken for an ACK")
	}
	m, end := b.Message(false)
	if end != nil {
		t.Fatal(end)
	}
	if _, end := s.SotWRequest(m.(*discovery.DiscoveryRequest), epoch); end != nil {
		t.Fatal(end)
	}
	if w := s.find(cache.Cluster).(*sotwState); w.came != "v" {
		t.Errorf("it came with %q, want v", w.came)
	}
}
