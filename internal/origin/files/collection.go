package files

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	xds "github.com/cncf/xds/go/xds/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
)

// collected is what the type of a list collection ends in: ListenerCollection has Listeners.
const collected = "Collection"

// whole reads a file: a DiscoveryResponse, or in its place a Resource with a list collection (FS-11), which it returns.
// In text they have no field in common. In binary they are told by what they hold.
func (d *decoded) whole(into *discovery.DiscoveryResponse, unmarshal func(proto.Message) error) (*discovery.Resource, error) {
	err := unmarshal(into)
	if err == nil && !d.doubtful(into) {
		return nil, nil
	}
	r := new(discovery.Resource)
	switch other := unmarshal(r); {
	case other == nil:
		return r, nil
	case further(other, err):
		return nil, other
	}
	return nil, err
}

// doubtful reports whether what was read in binary may as well be a Resource: it holds one list collection without a name.
func (d *decoded) doubtful(r *discovery.DiscoveryResponse) bool {
	return d.format == asBinary && len(r.GetResources()) == 1 && d.entriesOf(r.GetResources()[0]) != nil
}

// further reports whether a mistake is further on in a file than another. One without a place is at the end.
func further(a, b error) bool {
	var at, than *mistake
	switch {
	case b == nil || !errors.As(b, &than):
		return false
	case !errors.As(a, &at):
		return true
	}
	return cmp.Or(at.line-than.line, at.column-than.column) > 0
}

// entriesOf is the field with the entries of a list collection; nil: it is none.
func (d *decoded) entriesOf(body *anypb.Any) protoreflect.FieldDescriptor {
	t, err := d.types.Resolver().FindMessageByURL(body.GetTypeUrl())
	if err != nil || !strings.HasSuffix(body.GetTypeUrl(), collected) {
		return nil
	}
	f := t.Descriptor().Fields().ByNumber(1)
	if f == nil || f.Message() == nil || f.Message().FullName() != (*xds.CollectionEntry)(nil).ProtoReflect().Descriptor().FullName() {
		return nil
	}
	return f
}

// expand puts the inline entries of a list collection in its place.
func (d *decoded) expand(r *discovery.Resource) error {
	body := r.GetResource()
	f := d.entriesOf(body)
	all, whole := entries(body.GetValue())
	switch {
	case f == nil:
		return fmt.Errorf("%s: is a Resource without a list collection; write a DiscoveryResponse with resources", d.path)
	case !f.IsList():
		return fmt.Errorf("%s: is a %s, which has room for one entry only; write a DiscoveryResponse with resources", d.path, f.Parent().Name())
	case !whole:
		return fmt.Errorf("%s: is no %s, or is cut short", d.path, f.Parent().Name())
	}
	if err := servable(r); err != nil {
		return fmt.Errorf("%s: %w", d.path, err)
	}
	d.typeURL = cache.TypeURL(strings.TrimSuffix(body.GetTypeUrl(), collected))
	d.list = string(f.Name())
	for i, e := range all {
		in := e.GetInlineEntry()
		if in == nil {
			return fmt.Errorf("%v: is no inline_entry, and nothing follows a locator; write the resource itself, or remove it", d.place(i))
		}
		if own := d.contradicts(in); own != "" {
			return fmt.Errorf("%v: has the name %q, and its resource the name %q; give both the same, or the entry none", d.place(i), in.GetName(), own)
		}
		wrapped, err := anypb.New(&discovery.Resource{Name: in.GetName(), Resource: in.GetResource()})
		if err != nil {
			return fmt.Errorf("%v: %w", d.place(i), err)
		}
		d.resources = append(d.resources, wrapped)
	}
	return nil
}

// entries reads a list collection of any type: all have their entries in field 1. It is read by hand, since the generated
// code of one takes megabytes.
func entries(body []byte) (all []*xds.CollectionEntry, ok bool) {
	for len(body) > 0 {
		number, typ, n := protowire.ConsumeTag(body)
		if n < 0 {
			return nil, false
		}
		if body = body[n:]; number == 1 && typ == protowire.BytesType {
			entry, n := protowire.ConsumeBytes(body)
			e := new(xds.CollectionEntry)
			if n < 0 || proto.Unmarshal(entry, e) != nil {
				return nil, false
			}
			all, body = append(all, e), body[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(number, typ, body); n < 0 {
			return nil, false
		}
		body = body[n:]
	}
	return all, true
}

// contradicts returns the name that the body of an entry has, if the entry has another: clients would know what they were
// sent by one, and what was removed by the other. Only of types that the relay knows is it known where the name stands.
func (d *decoded) contradicts(in *xds.CollectionEntry_InlineEntry) string {
	own, ok := cache.BodyName(d.typeURL, in.GetResource().GetValue())
	known := ok && d.typeURL.Short() != cache.OtherShort
	if known && in.GetName() != "" && in.GetName() != own {
		return own
	}
	return ""
}
