package e2e

import (
	"bytes"
	"testing"

	gcptypes "github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/xds-relay/xds-relay/cache"
)

// unknownType is one that no code here or in the relay has heard of.
const unknownType cache.TypeURL = "type.googleapis.com/example.never.seen.v7.Thing"

// raw is a resource of the given bytes, whatever they mean: all of them are unknown
// fields of an empty message.
func raw(body []byte) gcptypes.Resource {
	m := &emptypb.Empty{}
	m.ProtoReflect().SetUnknown(body)
	return m
}

// A type that nothing has heard of travels byte for byte, over every hop and in
// every variant, by name and by wildcard (VALID-2, VALID-6, TRANSLATE-1).
func TestUnknownTypeTravelsUntouched(t *testing.T) {
	t.Parallel()
	// Not canonical: fields out of order, twice, of high numbers and of all kinds.
	var body []byte
	body = protowire.AppendTag(body, 12345, protowire.BytesType)
	body = protowire.AppendBytes(body, []byte{0xff, 0x00, 0xfe})
	body = protowire.AppendTag(body, 1, protowire.BytesType)
	body = protowire.AppendString(body, "one")
	body = protowire.AppendTag(body, 1, protowire.BytesType)
	body = protowire.AppendString(body, "two")
	body = protowire.AppendTag(body, 3, protowire.VarintType)
	body = append(body, 0x80, 0x80, 0x00) // zero, in three bytes
	body = protowire.AppendTag(body, 2, protowire.Fixed64Type)
	body = protowire.AppendFixed64(body, 7)

	w := newLinear(t, unknownType, cache.Cluster)
	w.Set(unknownType, "thing", raw(body))
	w.Set(cache.Cluster, "odd", raw(append(bytes.Clone(body), 0x0a, 0x03, 'o', 'd', 'd'))) // a known type with unknown content
	cp := startControlPlane(t, w.Mux())
	near := startRelay(t, cp.addr)
	far := startRelay(t, near.addr, "instance=far")
	for _, r := range []*relayed{near, far} {
		named, all, sotw := openDelta(t, r.addr, "named"), openDelta(t, r.addr, "all"), openSotw(t, r.addr, "sotw")
		sotw.foreign = true
		named.Subscribe(unknownType, "thing")
		all.Wildcard(unknownType)
		all.Wildcard(cache.Cluster)
		sotw.Watch(unknownType, "thing")
		same := func(u cache.TypeURL, name string, got func(cache.TypeURL, string) (held, bool)) error {
			want := body
			if u == cache.Cluster {
				want = append(bytes.Clone(body), 0x0a, 0x03, 'o', 'd', 'd')
			}
			h, ok := got(u, name)
			return first(is("there is "+name, ok, true), is("bytes of "+name, string(h.body), string(want)))
		}
		eventually(t, patience, func() error {
			return first(same(unknownType, "thing", named.Get), same(unknownType, "thing", all.Get),
				same(unknownType, "one", sotw.Get), same(cache.Cluster, "odd", all.Get))
		})
		if err := first(named.Sound(), all.Sound()); err != nil {
			t.Error(err)
		}
	}
}
