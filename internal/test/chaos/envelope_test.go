//go:build linux

package chaos

import (
	"errors"
	"fmt"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
)

// envelope is a response of either variant, read no further than the names and
// versions in it.
type envelope struct {
	typ     cache.TypeURL
	nonce   string
	version string // SotW
	set     []item
	removed []string
	missing []string // resource errors
}

// item is one resource.
type item struct {
	name, version string
	bytes         int
}

// codec reads envelopes and writes messages.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	read, ok := v.(interface{ read([]byte) error })
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return read.read(buf.ReadOnlyData())
}

// deltaEnvelope and sotwEnvelope tell the variants apart.
type (
	deltaEnvelope struct{ envelope }
	sotwEnvelope  struct{ envelope }
)

func (e *deltaEnvelope) read(b []byte) error {
	return fields(b, func(n protowire.Number, v []byte) error {
		switch n {
		case 2:
			i := item{bytes: len(v)}
			err := fields(v, func(n protowire.Number, v []byte) error {
				switch n {
				case 1:
					i.version = string(v)
				case 3:
					i.name = string(v)
				}
				return nil
			})
			e.set = append(e.set, i)
			return err
		case 4:
			e.typ = cache.TypeURL(v)
		case 5:
			e.nonce = string(v)
		case 6:
			e.removed = append(e.removed, string(v))
		case 9:
			return e.readError(v)
		}
		return nil
	})
}

// read makes up the version of a SotW resource as the relay would (RECON-1).
func (e *sotwEnvelope) read(b []byte) error {
	return fields(b, func(n protowire.Number, v []byte) error {
		switch n {
		case 1:
			e.version = string(v)
		case 2:
			i := item{bytes: len(v)}
			var typeURL string
			var body []byte
			err := fields(v, func(n protowire.Number, v []byte) error {
				switch n {
				case 1:
					typeURL = string(v)
				case 2:
					body = v
				}
				return nil
			})
			if err != nil {
				return err
			}
			err = fields(body, func(n protowire.Number, v []byte) error {
				if n == 1 {
					i.name = string(v)
				}
				return nil
			})
			i.version = cache.Fingerprint{}.Of(typeURL, body, nil)
			e.set = append(e.set, i)
			return err
		case 4:
			e.typ = cache.TypeURL(v)
		case 5:
			e.nonce = string(v)
		case 7:
			return e.readError(v)
		}
		return nil
	})
}

// readError takes in a name that does not exist. Other errors say nothing of what
// there is.
func (e *envelope) readError(b []byte) error {
	var r discovery.ResourceError
	if err := protobuf.Unmarshal(b, &r); err != nil {
		return err
	}
	if codes.Code(r.GetErrorDetail().GetCode()) == codes.NotFound {
		e.missing = append(e.missing, r.GetResourceName().GetName())
	}
	return nil
}

// fields yields the length-delimited fields of a message.
func fields(b []byte, yield func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("chaos: read an envelope: %w", protowire.ParseError(n))
		}
		b = b[n:]
		if typ == protowire.BytesType {
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return fmt.Errorf("chaos: read an envelope: %w", protowire.ParseError(n))
			}
			if err := yield(num, v); err != nil {
				return err
			}
			b = b[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return errors.Join(errors.New("chaos: read an envelope"), protowire.ParseError(n))
		}
		b = b[n:]
	}
	return nil
}
