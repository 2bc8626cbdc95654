package readable

import (
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
)

// maxNested is how deep one Any may be in another to be shown.
const maxNested = 16

// untyped are types of which nobody can say what is in them.
var untyped = []protoreflect.FullName{"xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct", "google.protobuf.Struct"}

// Clean returns a google.protobuf.Any in wire form without what may be secret in it, and without what the Set does not
// know; nil: nothing of it may be shown. hidden says which messages are secret, besides Secrets. If there is nothing to
// leave out, it returns what it was given.
func (s *Set) Clean(body []byte, hidden func(message protoreflect.FullName) bool) []byte {
	a := new(anypb.Any)
	c := cleaner{set: s, hidden: hidden}
	if proto.Unmarshal(body, a) != nil || !c.any(a.ProtoReflect(), maxNested) {
		return nil
	}
	if !c.changed {
		return body
	}
	clean, err := marshal(a)
	if err != nil {
		return nil
	}
	return clean
}

// JSON returns such an Any as protojson has it; nil: it has no form in JSON.
func (s *Set) JSON(body []byte) []byte {
	a := new(anypb.Any)
	if proto.Unmarshal(body, a) != nil {
		return nil
	}
	text, err := protojson.MarshalOptions{Resolver: types{s}, AllowPartial: true}.Marshal(a)
	if err != nil {
		return nil
	}
	return text
}

func marshal(m proto.Message) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(m)
}

// cleaner clears what may be secret in messages.
type cleaner struct {
	set     *Set
	hidden  func(protoreflect.FullName) bool
	changed bool // something was cleared
}

// any cleans an Any; false: it must not be shown at all.
func (c *cleaner) any(a protoreflect.Message, depth int) bool {
	of := a.Descriptor().Fields()
	url, value := a.Get(of.ByNumber(1)).String(), of.ByNumber(2)
	if name := nameOf(url); secret(name) || c.hidden(name) || slices.Contains(untyped, name) {
		return false
	}
	d := c.set.find(url)
	if d == nil || depth == 0 {
		return false
	}
	before := c.changed
	c.changed = false
	defer func() { c.changed = c.changed || before }()
	m := dynamicpb.NewMessage(d)
	if proto.Unmarshal(a.Get(value).Bytes(), m) != nil || !c.item(m, depth-1) {
		return false
	}
	if !c.changed {
		return true
	}
	clean, err := marshal(m)
	if err == nil {
		a.Set(value, protoreflect.ValueOfBytes(clean))
	}
	return err == nil
}

// item cleans a message, or an Any; false: it must not be shown.
func (c *cleaner) item(m protoreflect.Message, depth int) bool {
	if m.Descriptor().FullName() == "google.protobuf.Any" {
		return c.any(m, depth)
	}
	c.message(m, depth)
	return true
}

// message clears fields that are marked sensitive, inline data, and what nobody knows.
func (c *cleaner) message(m protoreflect.Message, depth int) {
	if len(m.GetUnknown()) > 0 {
		m.SetUnknown(nil)
		c.changed = true
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case sensitive(f):
			m.Clear(f)
			c.changed = true
		case f.IsMap():
			c.entries(f, v.Map(), depth)
		case f.Message() == nil:
		case f.IsList():
			c.list(v.List(), depth)
		case !c.item(v.Message(), depth):
			m.Clear(f)
			c.changed = true
		}
		return true
	})
}

func (c *cleaner) entries(f protoreflect.FieldDescriptor, all protoreflect.Map, depth int) {
	if f.MapValue().Message() == nil {
		return
	}
	all.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		if !c.item(v.Message(), depth) {
			all.Clear(k)
			c.changed = true
		}
		return true
	})
}

func (c *cleaner) list(l protoreflect.List, depth int) {
	kept := 0
	for i := range l.Len() {
		if c.item(l.Get(i).Message(), depth) {
			l.Set(kept, l.Get(i))
			kept++
		}
	}
	if kept < l.Len() {
		l.Truncate(kept)
		c.changed = true
	}
}
