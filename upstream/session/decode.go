package session

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
)

// Response is a response made ready for the Hub without any lock: its resources encoded once, its
// structural faults found (ERR-10, ERR-11). Nothing is judged by its content (VALID-1).
type Response struct {
	TypeURL    cache.TypeURL
	Nonce      string
	identifier string
	Update     cache.Update
	// Bodyless resources are heartbeats, negative answers or malformed. Which of these they are
	// depends on what the Hub holds.
	Bodyless []*discovery.Resource
	// Routine means, once the response is Applied, that it has brought new content and nothing that
	// Tick would look at: Deadline is not earlier than before.
	Routine bool
	faults  []string
	adds    bool     // it brings names that the Hub had not
	globs   []string // that it answers, and of which more may follow
	repeats bool     // it repeats what the server was shown (RECON-13)

	// sotw: it came on a SotW stream, and has one version for all.
	sotw    bool
	Version string
}

// redirect is the type of a body that points elsewhere, allowed in a response of
// any type (ERR-10, NAME-14).
const redirect = "type.googleapis.com/xds.core.v3.ResourceLocator"

// Decode makes a response ready, a Delta or a SotW one.
func Decode(resp proto.Message, f cache.Fingerprint) *Response {
	either := resp.(interface {
		GetTypeUrl() string
		GetNonce() string
		GetControlPlane() *core.ControlPlane
		GetResourceErrors() []*discovery.ResourceError
	})
	d := &Response{TypeURL: cache.TypeURL(either.GetTypeUrl()), Nonce: either.GetNonce(), identifier: either.GetControlPlane().GetIdentifier()}
	switch resp := resp.(type) {
	case *discovery.DeltaDiscoveryResponse:
		d.decodeDelta(resp, f)
	case *discovery.DiscoveryResponse:
		d.decodeSotW(resp, f)
	}
	for _, e := range either.GetResourceErrors() {
		d.Update.Errors = append(d.Update.Errors, cache.Error{Name: cache.Canonical(e.GetResourceName().GetName()), Status: e.GetErrorDetail()})
	}
	return d
}

func (d *Response) decodeDelta(resp *discovery.DeltaDiscoveryResponse, f cache.Fingerprint) {
	names := cache.Canonicals(resp.GetRemovedResources())
	for _, name := range resp.GetRemovedResourceNames() {
		names = append(names, cache.Canonical(name.GetName()))
	}
	removed := make(map[string]bool, len(names))
	for _, name := range names {
		removed[name] = true
	}
	bad := d.take(resp.GetResources(), removed, f)
	for _, name := range names { // each once, in the order of the wire (ORDER-1)
		if removed[name] && !bad[name] {
			d.Update.Removed = append(d.Update.Removed, name)
		}
		delete(removed, name)
	}
}

// decodeSotW gives each resource the wrapper that a Delta response would have had.
func (d *Response) decodeSotW(resp *discovery.DiscoveryResponse, f cache.Fingerprint) {
	d.sotw, d.Version = true, resp.GetVersionInfo()
	resources := make([]*discovery.Resource, 0, len(resp.GetResources()))
	for i, body := range resp.GetResources() {
		r, err := unwrap(body)
		if err != nil {
			d.Update.Unreadable = true
			d.fault("resource %d %v", i, err)
			continue
		}
		r.Version = d.Version // for people: it is never shown upstream (TRANSLATE-9)
		resources = append(resources, r)
	}
	d.take(resources, nil, f)
}

// wrapped is the type of a SotW resource that comes with its wrapper.
const wrapped = "type.googleapis.com/envoy.service.discovery.v3.Resource"

// unwrap is the resource of a SotW response, under the name that its wrapper has, or
// else its body (TRANSLATE-2, TRANSLATE-3).
func unwrap(body *anypb.Any) (*discovery.Resource, error) {
	if body.GetTypeUrl() == wrapped {
		r := new(discovery.Resource)
		if err := proto.Unmarshal(body.GetValue(), r); err != nil {
			return nil, errors.New("has a wrapper that cannot be read")
		}
		return r, nil
	}
	name, ok := cache.BodyName(cache.TypeURL(body.GetTypeUrl()), body.GetValue())
	if !ok {
		return nil, errors.New("has no name that can be read from its body")
	}
	return &discovery.Resource{Name: name, Resource: body}, nil
}

// take makes resources ready. It returns the names whose state is to stay as it is.
func (d *Response) take(resources []*discovery.Resource, removed map[string]bool, f cache.Fingerprint) (bad map[string]bool) {
	first := make(map[string]*discovery.Resource, len(resources))
	bad = make(map[string]bool)
	for i, r := range resources {
		name, ok := cache.NameOf(r)
		switch {
		case !ok && name == "":
			d.Update.Unreadable = true
			d.fault("resource %d has no name", i)
		case !ok:
			d.malformed(cache.Canonical(r.GetName()), cache.Canonical(r.GetResourceName().GetName()))
			d.fault("resource %d has both name and resource_name", i)
		case removed[name]:
			bad[name] = true
			d.fault("%q is both updated and removed", name)
		case cache.IsGlob(name):
			d.fault("%q is a glob, and no resource has such a name", name)
		case first[name] != nil && proto.Equal(first[name], r):
			d.fault("%q is listed twice", name)
		case first[name] != nil:
			bad[name] = true
			d.fault("%q is listed twice with different content", name)
		case d.foreign(r):
			bad[name] = true
			d.fault("%q has type %q in a response of type %q", name, r.GetResource().GetTypeUrl(), string(d.TypeURL))
		default:
			first[name] = r
		}
	}
	for _, r := range resources {
		switch name, ok := cache.NameOf(r); {
		case ok && bad[name]:
			d.malformed(cache.Canonicals(r.GetAliases())...)
			if glob := cache.GlobOf(name); glob != "" {
				d.malformed(glob)
			}
		case !ok || first[name] != r:
		case r.GetResource() == nil:
			d.Bodyless = append(d.Bodyless, r)
		default:
			d.Update.Set = append(d.Update.Set, cache.Received{
				Resource: cache.NewResource(d.TypeURL, r, f),
				Upstream: r.GetVersion(),
				TTL:      r.GetTtl().AsDuration(),
			})
		}
	}
	d.malformed(slices.Collect(maps.Keys(bad))...)
	return bad
}

// foreign reports whether a resource has a body that a response of this type may not have.
func (d *Response) foreign(r *discovery.Resource) bool {
	if r.GetResource() == nil {
		return false
	}
	t := r.GetResource().GetTypeUrl()
	return t != string(d.TypeURL) && t != redirect
}

// malformed notes names whose state stays as it is, since what is said of them cannot be used.
func (d *Response) malformed(names ...string) {
	d.Update.Kept = append(d.Update.Kept, names...)
	d.Update.Malformed = append(d.Update.Malformed, names...)
}

func (d *Response) fault(format string, args ...any) {
	d.faults = append(d.faults, fmt.Sprintf(format, args...))
}

// announces reports whether the response brings a resource, usable or not.
func (d *Response) announces() bool {
	return d.Update.Unreadable || len(d.Update.Set)+len(d.Update.Malformed) > 0
}

// onlySets: the response announces resources that are good for as long as they are not
// replaced, and says nothing else.
func (d *Response) onlySets() bool {
	u := &d.Update
	return len(d.faults)+len(d.Bodyless)+len(u.Removed)+len(u.Errors)+len(u.Kept) == 0 &&
		!slices.ContainsFunc(u.Set, func(r cache.Received) bool { return r.TTL != 0 })
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

// size is what the resources take, in bytes of their wire form.
func (d *Response) size() (bytes int) {
	for _, r := range d.Update.Set {
		bytes += r.Size()
	}
	return bytes
}
