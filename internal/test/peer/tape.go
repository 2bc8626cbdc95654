package peer

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
)

// Tape is what was said on streams of the discovery protocol, in order. A test that fails
// shows the end of it.
type Tape struct {
	mu      sync.Mutex
	begin   time.Time
	said    []Said
	streams int
}

// Said is one message, or the end of a stream.
type Said struct {
	At       time.Duration
	Stream   int
	Response bool
	URL      cache.TypeURL
	// Of a response: what it adds and removes. Of a request: what it subscribes to, or
	// names, and unsubscribes from.
	Names, Less []string
	Known       int // initial_resource_versions
	Node        string
	Nonce       string
	Nack        string
	End         string // why the server's side has ended; everything else is empty
}

// showTape is how many messages a test that fails shows.
const showTape = 80

// NewTape begins a tape.
func NewTape(t testing.TB, name string) *Tape {
	tp := &Tape{begin: time.Now()}
	t.Cleanup(func() {
		if t.Failed() {
			said := tp.Since(0)
			t.Logf("%s, the last of %d messages:\n%s", name, len(said), Spell(said[max(0, len(said)-showTape):]))
		}
	})
	return tp
}

// Opens numbers a stream.
func (tp *Tape) Opens() int {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.streams++
	return tp.streams
}

// Opened is the number of streams there have been.
func (tp *Tape) Opened() int {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	return tp.streams
}

// Mark is how much was said so far.
func (tp *Tape) Mark() int {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	return len(tp.said)
}

// Since is what was said after a mark.
func (tp *Tape) Since(mark int) []Said {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	return slices.Clone(tp.said[mark:])
}

// Take records a message of the discovery protocol.
func (tp *Tape) Take(stream int, m proto.Message) {
	s := Said{Stream: stream}
	switch m := m.(type) {
	case *discovery.DeltaDiscoveryRequest:
		s.URL, s.Names, s.Less, s.Nonce = cache.TypeURL(m.GetTypeUrl()), m.GetResourceNamesSubscribe(), m.GetResourceNamesUnsubscribe(), m.GetResponseNonce()
		s.Known, s.Node, s.Nack = len(m.GetInitialResourceVersions()), m.GetNode().GetId(), m.GetErrorDetail().GetMessage()
	case *discovery.DiscoveryRequest:
		s.URL, s.Names, s.Nonce = cache.TypeURL(m.GetTypeUrl()), m.GetResourceNames(), m.GetResponseNonce()
		s.Node, s.Nack = m.GetNode().GetId(), m.GetErrorDetail().GetMessage()
	case *discovery.DeltaDiscoveryResponse:
		s.Response, s.URL, s.Less, s.Nonce = true, cache.TypeURL(m.GetTypeUrl()), m.GetRemovedResources(), m.GetNonce()
		for _, r := range m.GetResources() {
			s.Names = append(s.Names, r.GetName())
		}
	case *discovery.DiscoveryResponse:
		s.Response, s.URL, s.Nonce = true, cache.TypeURL(m.GetTypeUrl()), m.GetNonce()
		for _, r := range m.GetResources() {
			s.Names = append(s.Names, NameIn(r))
		}
	}
	tp.add(s)
}

func (tp *Tape) add(s Said) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	s.At = time.Since(tp.begin)
	tp.said = append(tp.said, s)
}

// String is a line: ">" is to the server, "<" from it.
func (s Said) String() string {
	if s.End != "" {
		return fmt.Sprintf("%8.3fs #%d < end: %s", s.At.Seconds(), s.Stream, s.End)
	}
	from, nonce := ">", "ack"
	if s.Response {
		from, nonce = "<", "nonce"
	} else if s.Nack != "" {
		nonce = "nack"
	}
	line := fmt.Sprintf("%8.3fs #%d %s %s", s.At.Seconds(), s.Stream, from, s.URL.Short())
	for _, name := range s.Names {
		line += " +" + name
	}
	for _, name := range s.Less {
		line += " -" + name
	}
	if s.Known > 0 {
		line += fmt.Sprintf(" init=%d", s.Known)
	}
	if s.Node != "" {
		line += " node=" + s.Node
	}
	if s.Nonce != "" {
		line += " " + nonce + "=" + s.Nonce
	}
	if s.Nack != "" {
		line += " " + s.Nack
	}
	return line
}

// Spell is a line for each message.
func Spell(said []Said) string {
	var b strings.Builder
	for _, s := range said {
		fmt.Fprintln(&b, s)
	}
	return b.String()
}

// NameIn is the name in the body of a resource, which is the first field of all types.
func NameIn(r *anypb.Any) string {
	if r.GetTypeUrl() == "type.googleapis.com/envoy.service.discovery.v3.Resource" {
		var wrapped discovery.Resource
		if proto.Unmarshal(r.GetValue(), &wrapped) == nil {
			return wrapped.GetName()
		}
	}
	for b := r.GetValue(); len(b) > 0; {
		n, typ, length := protowire.ConsumeField(b)
		if length < 0 {
			break
		}
		if n == 1 && typ == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(b)
			name, _ := protowire.ConsumeString(b[tag:])
			return name
		}
		b = b[length:]
	}
	return ""
}
