package xdstest

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that ours hands everything else to
	"google.golang.org/grpc/mem"
)

// garbage is sent as it is: the start of a varint that never ends.
type garbage struct{}

// codec is the standard one, except for garbage.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if _, ok := v.(garbage); ok {
		return mem.BufferSlice{mem.SliceBuffer{0xff, 0xff, 0xff}}, nil
	}
	return c.CodecV2.Marshal(v)
}
