package twin

import (
	"strconv"
	"strings"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// largestResponse is what bounds a response over gRPC, in bytes: no less can be configured.
// smallResponse is room for one resource of any type, in the wrapper with a TTL, on the pure cores.
const (
	largestResponse = 512
	smallResponse   = 430
)

// Responses to Delta clients that are too large come in parts (DOWN-DELTA-18). Each part says in its
// nonce how many follow (DOWN-DELTA-3), and together they are one response: its additions go before
// its removals, it waits for an ACK once, and as the first answer to a wildcard it is complete.

// parts are those of a response that were sent so far.
type parts struct {
	left    int // how many follow
	follows bool
	opening bool // it is the first answer to a wildcard in the type's first request
	answer  bool // one of the parts is an answer
	adds    bool
	listed  map[string]bool
	since   time.Time // when changes had begun to wait for an ACK, if they had when it began
}

// parted takes in the next part of a response, or all of it.
func (c *Checker) parted(who string, t *topic, resp *discovery.DeltaDiscoveryResponse, opening bool) *parts {
	nonce := resp.GetNonce()
	_, mark, _ := strings.Cut(nonce, "-")
	left, err := strconv.Atoi(mark)
	p := &t.parts
	switch {
	case err != nil:
		c.fail("DOWN-DELTA-3", "%s: the nonce %q does not say how many parts follow", who, nonce)
	case p.left > 0 && left != p.left-1:
		c.fail("DOWN-DELTA-18", "%s: of a response %d parts are to follow, and then %d", who, p.left, left)
	case left > 0 && !c.settings.Bounded(boundResponse):
		c.fail("DOWN-DELTA-18", "%s: a response is split, and there is room", who)
	case c.settings.Bounded(boundResponse) && proto.Size(resp) > c.maxResponse:
		c.fail("DOWN-DELTA-18", "%s: a response of %d bytes", who, proto.Size(resp))
	}
	if p.follows = p.left > 0; !p.follows {
		*p = parts{opening: opening, listed: map[string]bool{}}
		if len(t.unacked) > 0 {
			p.since = t.since
		}
	}
	p.left = left
	return p
}
