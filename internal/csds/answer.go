package csds

import (
	"bytes"
	"context"
	"errors"
	"hash/maphash"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// The bounds of an answer: what it may take of memory, and how long it may be on the wire, where equal parts are
// there as often as they occur.
const (
	maxMemory = 64 << 20
	maxWire   = 256 << 20
)

// errTooLarge refuses what is beyond them.
var errTooLarge = errors.New("the answer is too large")

// answer is a ClientStatusResponse while it is composed, and then.
type answer struct {
	memory, wire int // how many bytes it may still take
	seed         maphash.Seed
	known        map[uint64][]byte // the pieces, by their hash
	configs      []clientConfig
	open         clientConfig
	list         []byte // the resources of a type, before they become a piece
	scratch      []byte
}

// clientConfig is a ClientConfig, in pieces that others may share.
type clientConfig struct {
	pieces [][]byte
	size   int
}

func newAnswer(memory, wire int) *answer {
	return &answer{memory: memory, wire: wire, seed: maphash.MakeSeed(), known: make(map[uint64][]byte)}
}

// add adds a piece to the ClientConfig that is open. The caller may use the bytes again.
func (a *answer) add(piece []byte) error {
	if len(piece) == 0 {
		return nil
	}
	hash := maphash.Bytes(a.seed, piece)
	kept := a.known[hash]
	if !bytes.Equal(kept, piece) {
		if a.memory -= len(piece); a.memory < 0 {
			return errTooLarge
		}
		kept = bytes.Clone(piece)
		a.known[hash] = kept
	}
	if a.wire -= len(kept); a.wire < 0 {
		return errTooLarge
	}
	a.open.pieces = append(a.open.pieces, kept)
	a.open.size += len(kept)
	return nil
}

// end ends the ClientConfig that is open.
func (a *answer) end() {
	a.configs = append(a.configs, a.open)
	a.open = clientConfig{}
}

// buffers are the whole message.
func (a *answer) buffers() (all mem.BufferSlice) {
	for _, c := range a.configs {
		head := protowire.AppendTag(nil, fieldConfig, protowire.BytesType)
		all = append(all, mem.SliceBuffer(protowire.AppendVarint(head, uint64(c.size))))
		for _, piece := range c.pieces {
			all = append(all, mem.SliceBuffer(piece))
		}
	}
	return all
}

// composing lets one answer be composed at a time, so that those who ask take one processor from those who serve.
type composing chan struct{}

func (c composing) enter(ctx context.Context) error {
	select {
	case c <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c composing) leave() { <-c }
