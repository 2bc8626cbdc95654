package relay

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/xds-relay/xds-relay/internal/certs"
)

// TestFailuresAreSampledByWhatIsSaidOfThem: of two failures of one reason that the log tells in other words, each is
// logged, and again only after a while.
func TestFailuresAreSampledByWhatIsSaidOfThem(t *testing.T) {
	var lines bytes.Buffer
	h := newHandshakes(slog.New(slog.NewTextHandler(&lines, nil)), nil)
	client, raw := net.Pipe()
	defer client.Close()
	defer raw.Close()
	f := certs.Failure{Reason: certs.HandshakeProtocol, Remote: true}
	for range 3 {
		h.tell(raw, f, "it speaks TLS", errors.New("a"))
		h.tell(raw, f, "it does not speak HTTP/2", errors.New("b"))
	}
	for _, text := range []string{"it speaks TLS", "it does not speak HTTP/2"} {
		if n := strings.Count(lines.String(), text); n != 1 {
			t.Errorf("%q is logged %d times:\n%s", text, n, &lines)
		}
	}
}
