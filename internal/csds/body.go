package csds

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/readable"
)

// bodies show resources without what may be secret in them (CSDS-5), each once for an answer.
type bodies struct {
	set    *readable.Set // nil: none are shown
	secret func(cache.TypeURL) bool
	form   form
	shown  map[*cache.Resource][]byte
}

// bodies are those of an answer, if it is to have any.
func (s *Service) bodies(on bool, f form) (*bodies, error) {
	if !on {
		return &bodies{}, nil
	}
	set, err := readable.Load()
	return &bodies{set: set, secret: s.secrets(), form: f, shown: make(map[*cache.Resource][]byte)}, err
}

// of returns what is shown of a resource, in the form of the answer; nil: nothing is.
func (b *bodies) of(r *cache.Resource) []byte {
	if b.set == nil || r == nil || len(r.Body()) == 0 {
		return nil
	}
	shown, known := b.shown[r]
	if !known {
		if body := b.clean(r.Body()); body != nil {
			shown = b.form.body(b.set, body)
		}
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
	body, n := protowire.ConsumeBytes(field[n:])
	if n < 0 {
		return nil
	}
	return b.set.Clean(body, func(message protoreflect.FullName) bool {
		return b.secret(cache.TypeURL("type.googleapis.com/" + message))
	})
}
