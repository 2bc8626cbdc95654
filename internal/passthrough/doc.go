// Package passthrough owns what both ends of the relay need to lead a call through as it is: a message of which nothing
// is decoded, gRPC's codec for it, and the node in a load report, which rules are about (LRS-2, NODE-15).
//
// It never opens a call and decides nothing: package downstream takes calls in, package upstream opens them, and package
// relay says to which control plane they go and who may have them. Limitation: a message is whole before it goes on,
// since gRPC shows it only then.
package passthrough

import (
	"google.golang.org/grpc/mem"
)

// Message is a message as gRPC has received it. It is handed on once.
type Message struct{ data mem.BufferSlice }

// Keep takes in what gRPC has received, which lives until it is handed on.
func (m *Message) Keep(data mem.BufferSlice) {
	data.Ref()
	m.data = data
}

// Hand hands the message on to gRPC, which frees it when it is sent.
func (m *Message) Hand() mem.BufferSlice {
	data := m.data
	m.data = nil
	return data
}

// MessageOf returns a message of bytes that nobody changes any more.
func MessageOf(data []byte) *Message { return &Message{mem.BufferSlice{mem.SliceBuffer(data)}} }

// Free has the message gone without being handed on.
func (m *Message) Free() { m.Hand().Free() }

// Len is its length in bytes.
func (m *Message) Len() int { return m.data.Len() }

// Bytes are what is in it. They are a copy if gRPC has received them in parts, and must not be kept otherwise.
func (m *Message) Bytes() []byte {
	if len(m.data) == 1 {
		return m.data[0].ReadOnlyData()
	}
	return m.data.Materialize()
}

// Codec is gRPC's, for Messages only.
type Codec struct{}

// Marshal implements encoding.CodecV2.
func (Codec) Marshal(v any) (mem.BufferSlice, error) { return v.(*Message).Hand(), nil }

// Unmarshal implements encoding.CodecV2.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	v.(*Message).Keep(data)
	return nil
}

// Name implements encoding.CodecV2. It is no subtype of application/grpc.
func (Codec) Name() string { return "" }
