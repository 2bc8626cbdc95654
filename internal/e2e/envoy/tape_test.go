package envoy

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/e2e/realenvoy"
)

// tape is what was said on the streams of a server, in order. A test that fails shows
// the end of it.
type tape struct {
	mu      sync.Mutex
	begin   time.Time
	said    []said
	streams int
}

// said is one message.
type said struct {
	at       time.Duration
	stream   int
	response bool
	url      cache.TypeURL
	// Of a response: what it adds and removes. Of a request: what it subscribes to, or
	// names, and unsubscribes from.
	names, less []string
	known       int // initial_resource_versions
	nonce       string
	nack        string
}

func newTape(t testing.TB, name string) *tape {
	tp := &tape{begin: time.Now()}
	t.Cleanup(func() {
		if t.Failed() || os.Getenv(realenvoy.LogEnv) != "" {
			tp.mu.Lock()
			defer tp.mu.Unlock()
			var b strings.Builder
			for _, s := range tp.said[max(0, len(tp.said)-60):] {
				fmt.Fprintln(&b, s)
			}
			t.Logf("%s, the last of %d messages:\n%s", name, len(tp.said), b.String())
		}
	})
	return tp
}

func (s said) String() string {
	from := ">"
	if s.response {
		from = "<"
	}
	line := fmt.Sprintf("%8.3fs #%d %s %s nonce=%q", s.at.Seconds(), s.stream, from, s.url.Short(), s.nonce)
	for _, name := range s.names {
		line += " +" + name
	}
	for _, name := range s.less {
		line += " -" + name
	}
	if s.known > 0 {
		line += fmt.Sprintf(" (knows %d)", s.known)
	}
	if s.nack != "" {
		line += " NACK " + s.nack
	}
	return line
}

// opens numbers a stream.
func (tp *tape) opens() int {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.streams++
	return tp.streams
}

// opened is the number of streams there have been.
func (tp *tape) opened() int {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	return tp.streams
}

// take records a message of the discovery protocol.
func (tp *tape) take(stream int, m proto.Message) {
	s := said{stream: stream}
	switch m := m.(type) {
	case *discovery.DeltaDiscoveryRequest:
		s.url, s.names, s.less, s.nonce = cache.TypeURL(m.GetTypeUrl()), m.GetResourceNamesSubscribe(), m.GetResourceNamesUnsubscribe(), m.GetResponseNonce()
		s.nack, s.known = m.GetErrorDetail().GetMessage(), len(m.GetInitialResourceVersions())
	case *discovery.DiscoveryRequest:
		s.url, s.names, s.nonce, s.nack = cache.TypeURL(m.GetTypeUrl()), m.GetResourceNames(), m.GetResponseNonce(), m.GetErrorDetail().GetMessage()
	case *discovery.DeltaDiscoveryResponse:
		s.response, s.url, s.less, s.nonce = true, cache.TypeURL(m.GetTypeUrl()), m.GetRemovedResources(), m.GetNonce()
		for _, r := range m.GetResources() {
			s.names = append(s.names, r.GetName())
		}
	case *discovery.DiscoveryResponse:
		s.response, s.url, s.nonce = true, cache.TypeURL(m.GetTypeUrl()), m.GetNonce()
		for _, r := range m.GetResources() {
			s.names = append(s.names, nameIn(r))
		}
	}
	tp.mu.Lock()
	defer tp.mu.Unlock()
	s.at = time.Since(tp.begin)
	tp.said = append(tp.said, s)
}

// since is what was said after a mark, which is a number of messages.
func (tp *tape) since(mark int) []said {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	return slices.Clone(tp.said[mark:])
}

// mark is how much was said so far.
func (tp *tape) mark() int {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	return len(tp.said)
}
