package csds

import (
	"slices"
	"strings"

	"github.com/cncf/xds/go/udpa/annotations"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
)

// bodies show resources without what may be secret in them (CSDS-5), each once for an answer.
type bodies struct {
	off    bool
	secret func(cache.TypeURL) bool
	shown  map[*cache.Resource][]byte
}

// of returns the Any to show for a resource; nil: none is shown.
func (b *bodies) of(r *cache.Resource) []byte {
	if b.off || r == nil || len(r.Body()) == 0 {
		return nil
	}
	shown, known := b.shown[r]
	if !known {
		shown = b.clean(r.Body())
		b.shown[r] = shown
	}
	return shown
}

// clean takes an Any with its tag and length.
func (b *bodies) clean(field []byte) []byte {
	_, _, n := protowire.ConsumeTag(field)
	if n < 0 {
		return nil
	}
	content, n := protowire.ConsumeBytes(field[n:])
	body := new(anypb.Any)
	if n < 0 || proto.Unmarshal(content, body) != nil || !b.cleanAny(body, maxNested) {
		return nil
	}
	shown, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(body)
	if err != nil {
		return nil
	}
	return shown
}

// maxNested is how deep one Any may be in another to be shown.
const maxNested = 16

// untyped are types of which nobody can say what is in them, and a Secret of the API's former version.
var untyped = []string{"envoy.api.v2.auth.Secret", "xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct", "google.protobuf.Struct"}

// cleanAny clears what may be secret in an Any; false: it must not be shown at all.
func (b *bodies) cleanAny(a *anypb.Any, depth int) bool {
	name := a.GetTypeUrl()[strings.LastIndexByte(a.GetTypeUrl(), '/')+1:]
	if depth == 0 || b.secret(cache.TypeURL("type.googleapis.com/"+name)) || slices.Contains(untyped, name) {
		return false
	}
	m, err := a.UnmarshalNew()
	if err != nil || !b.cleanItem(m.ProtoReflect(), depth-1) {
		return false
	}
	a.Value, err = proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(m)
	return err == nil
}

// cleanMessage clears fields that are marked sensitive, inline data, and what nobody knows.
func (b *bodies) cleanMessage(m protoreflect.Message, depth int) {
	m.SetUnknown(nil)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case sensitive(f):
			m.Clear(f)
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(k protoreflect.MapKey, item protoreflect.Value) bool {
				if !b.cleanItem(item.Message(), depth) {
					v.Map().Clear(k)
				}
				return true
			})
		case f.IsList() && f.Message() != nil:
			b.cleanList(v.List(), depth)
		case !f.IsList() && !f.IsMap() && f.Message() != nil:
			if !b.cleanItem(v.Message(), depth) {
				m.Clear(f)
			}
		}
		return true
	})
}

func (b *bodies) cleanList(l protoreflect.List, depth int) {
	kept := 0
	for i := range l.Len() {
		if b.cleanItem(l.Get(i).Message(), depth) {
			l.Set(kept, l.Get(i))
			kept++
		}
	}
	l.Truncate(kept)
}

// cleanItem cleans a message, or an Any; false: it must not be shown.
func (b *bodies) cleanItem(m protoreflect.Message, depth int) bool {
	if a, ok := m.Interface().(*anypb.Any); ok {
		return b.cleanAny(a, depth)
	}
	b.cleanMessage(m, depth)
	return true
}

// sensitive reports whether a field may hold a secret: it is marked so, or is inline data.
func sensitive(f protoreflect.FieldDescriptor) bool {
	if of := f.Parent().Name(); of == "DataSource" || of == "DataSourceServerPreferredAddressConfig" {
		return f.Name() == "inline_bytes" || f.Name() == "inline_string"
	}
	marked, _ := proto.GetExtension(f.Options(), annotations.E_Sensitive).(bool)
	return marked
}
