package files

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/envoyproxy/protoc-gen-validate/validate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/xds-relay/xds-relay/cache"
)

// Notes are what a path says that can be served, and that a client would reject or miss: values that validate.rules do
// not allow, clusters of type EDS without an assignment, and routes to clusters that are not there. The relay itself
// judges no content.
func (s *Set) Notes() (notes []string) {
	for _, f := range s.found {
		r := &reviewer{set: s, at: s.Resources[f.typeURL][f.name].At, name: f.name}
		t, err := s.types.Resolver().FindMessageByURL(string(f.typeURL))
		if err != nil {
			continue
		}
		m := t.New()
		if proto.Unmarshal(f.body, m.Interface()) != nil {
			continue // only a binary file can have such, and Load refuses it
		}
		if name := s.Resources[f.typeURL][f.name].EndpointName; name != "" && s.Resources[cache.Endpoint][name].Resource == nil {
			r.note("", "is a cluster of type EDS, and there is no ClusterLoadAssignment %q", name)
		}
		r.message(m, "", 0)
		notes = append(notes, r.notes...)
	}
	return notes
}

// reviewer looks at one resource.
type reviewer struct {
	set   *Set
	at    Place
	name  string
	notes []string
}

func (r *reviewer) note(path, format string, args ...any) {
	what := fmt.Sprintf("%q", r.name)
	if path != "" {
		what += ": " + path
	}
	r.notes = append(r.notes, fmt.Sprintf("%v: %s %s", r.at, what, fmt.Sprintf(format, args...)))
}

// message looks at a message and all that is in it.
func (r *reviewer) message(m protoreflect.Message, path string, depth int) {
	if depth > maxDepth {
		return
	}
	if m.Descriptor().FullName() == "google.protobuf.Any" {
		r.packed(m, path, depth)
		return
	}
	r.routes(m, path)
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		at := strings.TrimPrefix(path+"."+string(f.Name()), ".")
		r.rules(m, f, at)
		if !m.Has(f) || f.Message() == nil {
			continue
		}
		switch v := m.Get(f); {
		case f.IsMap():
			if f.MapValue().Message() == nil {
				continue
			}
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				r.message(v.Message(), fmt.Sprintf("%s[%v]", at, k), depth+1)
				return true
			})
		case f.IsList():
			for i := range v.List().Len() {
				r.message(v.List().Get(i).Message(), fmt.Sprintf("%s[%d]", at, i), depth+1)
			}
		default:
			r.message(v.Message(), at, depth+1)
		}
	}
}

// packed looks into an Any, if its type is known.
func (r *reviewer) packed(m protoreflect.Message, path string, depth int) {
	fields := m.Descriptor().Fields()
	t, err := r.set.types.Resolver().FindMessageByURL(m.Get(fields.ByName("type_url")).String())
	if err != nil {
		return
	}
	inner := t.New()
	if proto.Unmarshal(m.Get(fields.ByName("value")).Bytes(), inner.Interface()) == nil {
		r.message(inner, path, depth+1)
	}
}

// routes looks for clusters that a route leads to.
func (r *reviewer) routes(m protoreflect.Message, path string) {
	const action, weighted = "envoy.config.route.v3.RouteAction", "envoy.config.route.v3.WeightedCluster.ClusterWeight"
	field := protoreflect.Name("cluster")
	switch m.Descriptor().FullName() {
	case action:
	case weighted:
		field = "name"
	default:
		return
	}
	name := m.Get(m.Descriptor().Fields().ByName(field)).String()
	if name != "" && r.set.Resources[cache.Cluster][name].Resource == nil {
		r.note(strings.TrimPrefix(path+"."+string(field), "."), "leads to cluster %q, which is not there", name)
	}
}

// requires reports whether rules want a field to be set.
func requires(of *validate.FieldRules) bool {
	kinds := []interface{ GetRequired() bool }{of.GetMessage(), of.GetDuration(), of.GetTimestamp(), of.GetAny()}
	return slices.ContainsFunc(kinds, func(k interface{ GetRequired() bool }) bool { return k.GetRequired() })
}

// rules looks at a field as its validate.rules say: required, length, range, min_items, defined_only. Others are skipped.
func (r *reviewer) rules(m protoreflect.Message, f protoreflect.FieldDescriptor, path string) {
	options, ok := f.Options().(*descriptorpb.FieldOptions)
	if !ok || !proto.HasExtension(options, validate.E_Rules) {
		return
	}
	rules, ok := proto.GetExtension(options, validate.E_Rules).(*validate.FieldRules)
	if !ok {
		return
	}
	if f.ContainingOneof() != nil && !m.Has(f) {
		return
	}
	switch {
	case requires(rules) && !m.Has(f):
		r.note(path, "is required")
	case f.IsList():
		r.items(m.Get(f).List(), f, rules.GetRepeated(), path)
	case f.IsMap():
		if n, least := m.Get(f).Map().Len(), rules.GetMap().GetMinPairs(); uint64(n) < least {
			r.note(path, "has %d entries, and needs %d", n, least)
		}
	case f.Message() != nil:
		if m.Has(f) {
			r.wrapped(m.Get(f).Message(), rules, path)
		}
	default:
		r.value(m.Get(f), f, rules, path)
	}
}

// items looks at a list.
func (r *reviewer) items(l protoreflect.List, f protoreflect.FieldDescriptor, rules *validate.RepeatedRules, path string) {
	if uint64(l.Len()) < rules.GetMinItems() {
		r.note(path, "has %d items, and needs %d", l.Len(), rules.GetMinItems())
	}
	if rules.GetMaxItems() > 0 && uint64(l.Len()) > rules.GetMaxItems() {
		r.note(path, "has %d items, and may have %d", l.Len(), rules.GetMaxItems())
	}
	if rules.GetItems() == nil || f.Message() != nil {
		return
	}
	for i := range l.Len() {
		r.value(l.Get(i), f, rules.GetItems(), fmt.Sprintf("%s[%d]", path, i))
	}
}

// wrapped looks at a message that stands for a value: a duration, or a wrapper.
func (r *reviewer) wrapped(m protoreflect.Message, rules *validate.FieldRules, path string) {
	fields := m.Descriptor().Fields()
	switch name := m.Descriptor().FullName(); {
	case name == "google.protobuf.Duration":
		d := time.Duration(m.Get(fields.ByName("seconds")).Int())*time.Second + time.Duration(m.Get(fields.ByName("nanos")).Int())
		l := rules.GetDuration()
		within(r, path, d, bounds[time.Duration]{gt: durationOf(l.Gt), gte: durationOf(l.Gte), lt: durationOf(l.Lt), lte: durationOf(l.Lte)})
	case strings.HasPrefix(string(name), "google.protobuf.") && strings.HasSuffix(string(name), "Value") && fields.ByName("value") != nil:
		r.value(m.Get(fields.ByName("value")), fields.ByName("value"), rules, path)
	}
}

// value looks at a scalar.
func (r *reviewer) value(v protoreflect.Value, f protoreflect.FieldDescriptor, rules *validate.FieldRules, path string) {
	switch l := rules.GetType().(type) {
	case *validate.FieldRules_String_:
		r.length(path, utf8.RuneCountInString(v.String()), l.String_.Len, l.String_.MinLen, l.String_.MaxLen, l.String_.GetIgnoreEmpty(), "characters")
		r.length(path, len(v.String()), l.String_.LenBytes, l.String_.MinBytes, l.String_.MaxBytes, l.String_.GetIgnoreEmpty(), "bytes")
	case *validate.FieldRules_Bytes:
		r.length(path, len(v.Bytes()), l.Bytes.Len, l.Bytes.MinLen, l.Bytes.MaxLen, l.Bytes.GetIgnoreEmpty(), "bytes")
	case *validate.FieldRules_Enum:
		if l.Enum.GetDefinedOnly() && f.Enum().Values().ByNumber(v.Enum()) == nil {
			r.note(path, "is %d, which is no value of %s", v.Enum(), f.Enum().Name())
		}
	case *validate.FieldRules_Uint32:
		within(r, path, uint32(v.Uint()), bounds[uint32]{l.Uint32.Gt, l.Uint32.Gte, l.Uint32.Lt, l.Uint32.Lte})
	case *validate.FieldRules_Uint64:
		within(r, path, v.Uint(), bounds[uint64]{l.Uint64.Gt, l.Uint64.Gte, l.Uint64.Lt, l.Uint64.Lte})
	case *validate.FieldRules_Int32:
		within(r, path, int32(v.Int()), bounds[int32]{l.Int32.Gt, l.Int32.Gte, l.Int32.Lt, l.Int32.Lte})
	case *validate.FieldRules_Int64:
		within(r, path, v.Int(), bounds[int64]{l.Int64.Gt, l.Int64.Gte, l.Int64.Lt, l.Int64.Lte})
	case *validate.FieldRules_Float:
		within(r, path, float32(v.Float()), bounds[float32]{l.Float.Gt, l.Float.Gte, l.Float.Lt, l.Float.Lte})
	case *validate.FieldRules_Double:
		within(r, path, v.Float(), bounds[float64]{l.Double.Gt, l.Double.Gte, l.Double.Lt, l.Double.Lte})
	}
}

// length looks at how long a string is.
func (r *reviewer) length(path string, n int, exact, least, most *uint64, mayBeEmpty bool, unit string) {
	switch size := uint64(n); {
	case mayBeEmpty && n == 0:
	case exact != nil && size != *exact:
		r.note(path, "has %d %s, and must have %d", n, unit, *exact)
	case least != nil && size < *least:
		r.note(path, "has %d %s, and needs %d", n, unit, *least)
	case most != nil && size > *most:
		r.note(path, "has %d %s, and may have %d", n, unit, *most)
	}
}

// bounds are those of a value; nil: there is none.
type bounds[T number] struct{ gt, gte, lt, lte *T }

type number interface {
	~int32 | ~int64 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// within looks at a value.
func within[T number](r *reviewer, path string, v T, b bounds[T]) {
	switch {
	case b.gt != nil && v <= *b.gt:
		r.note(path, "is %v, and must be more than %v", v, *b.gt)
	case b.gte != nil && v < *b.gte:
		r.note(path, "is %v, and must be at least %v", v, *b.gte)
	case b.lt != nil && v >= *b.lt:
		r.note(path, "is %v, and must be less than %v", v, *b.lt)
	case b.lte != nil && v > *b.lte:
		r.note(path, "is %v, and must be at most %v", v, *b.lte)
	}
}

func durationOf(d interface{ AsDuration() time.Duration }) *time.Duration {
	if d == nil || !d.(proto.Message).ProtoReflect().IsValid() {
		return nil
	}
	of := d.AsDuration()
	return &of
}
