package demo

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// joined is the message that has these fields.
func joined(fields ...[]byte) []byte { return slices.Concat(fields...) }

// text is a field of type string.
func text(n protowire.Number, s string) []byte { return field(n, []byte(s)) }

// message is a field that is a message.
func message(n protowire.Number, fields ...[]byte) []byte { return field(n, joined(fields...)) }

// encoded is a field that is a message of a generated type.
func encoded(n protowire.Number, m proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err) // made in this package, of strings that are UTF-8: it can be encoded
	}
	return field(n, b)
}

// enum is a field of an enumeration.
func enum(n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), v)
}

func field(n protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), b)
}

// reader reads single fields of a message. It keeps the first error.
type reader struct {
	body []byte
	err  error
}

// text is the first string at a path of field numbers; empty if there is none.
func (r *reader) text(path ...protowire.Number) string { return string(r.bytes(path...)) }

// bytes is the first field at a path of field numbers; nil if there is none.
func (r *reader) bytes(path ...protowire.Number) []byte {
	b := r.body
	for _, n := range path {
		b = r.first(b, n)
	}
	return b
}

// first is the first field of a number in a message.
func (r *reader) first(b []byte, want protowire.Number) []byte {
	for len(b) > 0 {
		n, typ, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return r.fail(tag)
		}
		b = b[tag:]
		length := protowire.ConsumeFieldValue(n, typ, b)
		if length < 0 {
			return r.fail(length)
		}
		if n == want && typ == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(b)
			return value
		}
		b = b[length:]
	}
	return nil
}

func (r *reader) fail(n int) []byte {
	if r.err == nil {
		r.err = protowire.ParseError(n)
	}
	return nil
}
