package readable

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	udpa "github.com/cncf/xds/go/udpa/annotations"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// redacted stands for what is not shown.
const redacted = "[redacted]"

// Redact hides the version of a Secret, with which a guess at a weak one could be checked, but not that there is one.
func Redact(version string) string {
	if version == "" {
		return ""
	}
	return redacted
}

// maxDepth bounds how deep messages lie in one another.
const maxDepth = 100

// ErrUnknown says that the Set does not have the type.
var ErrUnknown = errors.New("readable: the type is not known")

// Show returns a message as JSON, as protojson has it, with the names of fields as in .proto files and in Envoy's own
// dumps. The error is ErrUnknown, or says why the bytes are not such a message.
func (s *Set) Show(typeURL string, value []byte) (json.RawMessage, error) {
	d := s.find(typeURL)
	if d == nil {
		return nil, ErrUnknown
	}
	m := dynamicpb.NewMessage(d)
	if err := proto.Unmarshal(value, m); err != nil {
		return nil, err
	}
	return json.Marshal(s.message(m, 0))
}

// kept are messages that protojson has forms of its own for.
var kept = []protoreflect.FullName{
	"google.protobuf.Duration", "google.protobuf.Timestamp", "google.protobuf.FieldMask", "google.protobuf.BoolValue", "google.protobuf.BytesValue",
	"google.protobuf.DoubleValue", "google.protobuf.FloatValue", "google.protobuf.Int32Value", "google.protobuf.Int64Value", "google.protobuf.StringValue",
	"google.protobuf.UInt32Value", "google.protobuf.UInt64Value",
}

func (s *Set) message(m protoreflect.Message, depth int) any {
	name := m.Descriptor().FullName()
	switch {
	case depth > maxDepth:
		return "[too deep]"
	case secret(name):
		return redacted
	case name == "google.protobuf.Any":
		return s.any(m, depth)
	case name == "google.protobuf.Struct", name == "google.protobuf.Value", name == "google.protobuf.ListValue":
		return free(encoded(m))
	case slices.Contains(kept, name):
		return encoded(m)
	}
	fields := make(map[string]any)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if sensitive(f) {
			fields[string(f.Name())] = redacted
		} else {
			fields[string(f.Name())] = s.field(f, v, depth+1)
		}
		return true
	})
	if n := len(m.GetUnknown()); n > 0 {
		fields["@unknown"] = fmt.Sprintf("%d bytes of fields that this relay does not know", n)
	}
	return fields
}

// secret reports whether a message is a Secret, of either version of the API.
func secret(name protoreflect.FullName) bool {
	return name == "envoy.extensions.transport_sockets.tls.v3.Secret" || name == "envoy.api.v2.auth.Secret"
}

// sensitive reports whether a field may hold a secret: it is marked so, or has the data of a data source itself.
func sensitive(f protoreflect.FieldDescriptor) bool {
	if of := f.Parent().Name(); of == "DataSource" || of == "DataSourceServerPreferredAddressConfig" {
		return inlined(string(f.Name()))
	}
	marked, _ := proto.GetExtension(f.Options(), udpa.E_Sensitive).(bool)
	return marked
}

// inlined reports whether a field of a data source has the data itself.
func inlined(field string) bool {
	return slices.Contains([]string{"inline_bytes", "inline_string", "inlineBytes", "inlineString"}, field)
}

// any shows the message in an Any. One that is not known is shown by its size.
func (s *Set) any(m protoreflect.Message, depth int) any {
	of := m.Descriptor().Fields()
	url, value := m.Get(of.ByNumber(1)).String(), m.Get(of.ByNumber(2)).Bytes()
	shown := map[string]any{"@type": url}
	d := s.find(url)
	if d == nil || secret(d.FullName()) {
		if shown["@bytes"] = len(value); d != nil || secret(nameOf(url)) {
			shown["@bytes"] = redacted
		}
		return shown
	}
	inner := dynamicpb.NewMessage(d)
	if err := proto.Unmarshal(value, inner); err != nil {
		shown["@bytes"], shown["@error"] = len(value), "these are no such message"
		return shown
	}
	body := s.message(inner, depth+1)
	fields, ok := body.(map[string]any)
	if !ok || d.FullName().Parent() == "google.protobuf" {
		shown["value"] = body
		return shown
	}
	fields["@type"] = url
	return fields
}

func (s *Set) field(f protoreflect.FieldDescriptor, v protoreflect.Value, depth int) any {
	switch {
	case f.IsMap():
		entries := make(map[string]any, v.Map().Len())
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			entries[k.String()] = s.value(f.MapValue(), v, depth)
			return true
		})
		return entries
	case f.IsList():
		list := make([]any, v.List().Len())
		for i := range list {
			list[i] = s.value(f, v.List().Get(i), depth)
		}
		return list
	}
	return s.value(f, v, depth)
}

// value shows one value, numbers of 64 bits as text, which JavaScript cannot read as numbers.
func (s *Set) value(f protoreflect.FieldDescriptor, v protoreflect.Value, depth int) any {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return s.message(v.Message(), depth)
	case protoreflect.EnumKind:
		if e := f.Enum().Values().ByNumber(v.Enum()); e != nil {
			return string(e.Name())
		}
		return int32(v.Enum())
	case protoreflect.BytesKind:
		return base64.StdEncoding.EncodeToString(v.Bytes())
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		if n := v.Float(); math.IsNaN(n) || math.IsInf(n, 0) {
			return strconv.FormatFloat(n, 'g', -1, 64)
		}
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return fmt.Sprint(v.Interface())
	}
	return v.Interface()
}

// encoded is a message as protojson has it.
func encoded(m protoreflect.Message) (v any) {
	data, err := protojson.Marshal(m.Interface())
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	if err != nil {
		return "[not to be shown: not a sound " + string(m.Descriptor().Name()) + "]"
	}
	return v
}

// free redacts data sources in what has no schema.
func free(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			if v[key] = free(inner); inlined(key) {
				v[key] = redacted
			}
		}
	case []any:
		for i, inner := range v {
			v[i] = free(inner)
		}
	}
	return v
}
