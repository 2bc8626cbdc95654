package upstream

import (
	"fmt"
	"strings"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
)

// Response is a response made ready for the Hub without any lock: its resources
// encoded once, its structural faults found (ERR-10, ERR-11). Nothing is judged by
// its content (VALID-1).
type Response struct {
	typeURL    cache.TypeURL
	nonce      string
	identifier string
	update     cache.Update
	// bodyless resources are heartbeats, negatives or malformed; which of these
	// depends on what the Hub holds.
	bodyless []*discovery.Resource
	faults   []string
	adds     bool // it brings names that the Hub had not
}

// redirect is the type of a body that points elsewhere, allowed in a response of
// any type (ERR-10, NAME-14).
const redirect = "type.googleapis.com/xds.core.v3.ResourceLocator"

// Decode makes a response ready.
func Decode(resp *discovery.DeltaDiscoveryResponse, f cache.Fingerprint) *Response {
	d := &Response{
		typeURL:    cache.TypeURL(resp.GetTypeUrl()),
		nonce:      resp.GetNonce(),
		identifier: resp.GetControlPlane().GetIdentifier(),
	}
	removed := make(map[string]bool, len(resp.GetRemovedResources()))
	for _, name := range resp.GetRemovedResources() {
		removed[name] = true
	}
	for _, name := range resp.GetRemovedResourceNames() {
		removed[name.GetName()] = true
	}

	first := make(map[string]*discovery.Resource, len(resp.GetResources()))
	bad := make(map[string]bool)
	for i, r := range resp.GetResources() {
		name, ok := cache.NameOf(r)
		switch {
		case !ok && name == "":
			d.fault("resource %d has no name", i)
		case !ok:
			d.fault("resource %d has both name and resource_name", i)
		case removed[name]:
			bad[name] = true
			d.fault("%q is both updated and removed", name)
		case first[name] != nil && proto.Equal(first[name], r):
			d.fault("%q is listed twice", name)
		case first[name] != nil:
			bad[name] = true
			d.fault("%q is listed twice with different content", name)
		case r.GetResource() != nil && r.GetResource().GetTypeUrl() != resp.GetTypeUrl() && r.GetResource().GetTypeUrl() != redirect:
			bad[name] = true
			d.fault("%q has type %q in a response of type %q", name, r.GetResource().GetTypeUrl(), resp.GetTypeUrl())
		default:
			first[name] = r
		}
	}
	seen := make(map[string]bool, len(first))
	for _, r := range resp.GetResources() {
		name, ok := cache.NameOf(r)
		if !ok || bad[name] || seen[name] || first[name] == nil {
			continue
		}
		seen[name] = true
		if r.GetResource() == nil {
			d.bodyless = append(d.bodyless, r)
			continue
		}
		d.update.Set = append(d.update.Set, cache.Received{
			Resource: cache.NewResource(d.typeURL, r, f),
			Upstream: r.GetVersion(),
			TTL:      r.GetTtl().AsDuration(),
		})
	}
	drop := func(name string) { // each once, in the order of the wire (ORDER-1)
		if removed[name] && !bad[name] {
			d.update.Removed = append(d.update.Removed, name)
		}
		delete(removed, name)
	}
	for _, name := range resp.GetRemovedResources() {
		drop(name)
	}
	for _, name := range resp.GetRemovedResourceNames() {
		drop(name.GetName())
	}
	for _, e := range resp.GetResourceErrors() {
		d.update.Errors = append(d.update.Errors, cache.Error{Name: e.GetResourceName().GetName(), Status: e.GetErrorDetail()})
	}
	return d
}

func (d *Response) fault(format string, args ...any) {
	d.faults = append(d.faults, fmt.Sprintf(format, args...))
}

// maxNack bounds the message of a NACK (NACK-7).
const maxNack = 4 << 10

// nack is the message that tells upstream what was wrong, or "" (NACK-7).
func (d *Response) nack() string {
	if len(d.faults) == 0 {
		return ""
	}
	m := "xds-relay: " + strings.Join(d.faults, "; ")
	if len(m) > maxNack {
		m = strings.ToValidUTF8(m[:maxNack-3], "") + "..."
	}
	return m
}
