package csds

import (
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/readable"
)

// form is how an answer is written: in wire form, or as JSON. What it returns is valid until it is called again.
type form interface {
	// node is the client's node, and scope its client_scope.
	node(n *core.Node) []byte
	scope(text string) []byte
	// typ is the type of resources, as they have it, and body one's body.
	typ(t cache.TypeURL) []byte
	body(set *readable.Set, body []byte) []byte
	// generic appends a resource to a list of them.
	generic(list []byte, g *generic) []byte
}

// generic is one resource of an answer (CSDS-2).
type generic struct {
	typ           []byte // as form.typ has it
	name, version string
	body          []byte // as form.body has it; nil: none
	updated       time.Time
	config        configStatus
	client        clientStatus
	failure       *failure
}

// failure is why a resource, or its last version, is not accepted.
type failure struct {
	at      time.Time
	details string
}
