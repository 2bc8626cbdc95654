package csds

import (
	"bytes"
	"context"
	"errors"
	"hash/maphash"

	"github.com/xds-relay/xds-relay/fanout"
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
	form
	memory, wire int // how many bytes it may still take
	seed         maphash.Seed
	known        map[uint64][]byte // the pieces, by their hash
	configs      []clientConfig
	open         clientConfig
	list         []byte                  // the resources of a type, before they become a piece
	whole        map[*fanout.News][]byte // the pieces of sets that clients have accepted all of
}

// clientConfig is a ClientConfig, in pieces that others may share.
type clientConfig struct {
	node, scope []byte
	lists       [][]byte // the resources of each type
	size        int
}

func newAnswer(f form, memory, wire int) *answer {
	return &answer{form: f, memory: memory, wire: wire, seed: maphash.MakeSeed(), known: make(map[uint64][]byte), whole: make(map[*fanout.News][]byte)}
}

// keep returns a piece that the answer keeps, once for all that are equal. The caller may use the bytes again.
func (a *answer) keep(piece []byte) ([]byte, error) {
	hash := maphash.Bytes(a.seed, piece)
	kept := a.known[hash]
	if !bytes.Equal(kept, piece) {
		if a.memory -= len(piece); a.memory < 0 {
			return nil, errTooLarge
		}
		kept = bytes.Clone(piece)
		a.known[hash] = kept
	}
	return kept, nil
}

// fits counts a piece that the open ClientConfig is to have.
func (a *answer) fits(piece []byte) error {
	if a.wire -= len(piece); a.wire < 0 {
		return errTooLarge
	}
	a.open.size += len(piece)
	return nil
}

// put has the open ClientConfig have a piece.
func (a *answer) put(at *[]byte, piece []byte) error {
	kept, err := a.keep(piece)
	if err != nil {
		return err
	}
	*at = kept
	return a.fits(kept)
}

// add adds the resources of a type to the open ClientConfig.
func (a *answer) add(list []byte) error {
	kept, err := a.keep(list)
	if err != nil {
		return err
	}
	return a.addKept(kept)
}

// addKept adds resources that the answer has already.
func (a *answer) addKept(list []byte) error {
	if len(list) == 0 {
		return nil
	}
	a.open.lists = append(a.open.lists, list)
	return a.fits(list)
}

// end ends the ClientConfig that is open.
func (a *answer) end() {
	a.configs = append(a.configs, a.open)
	a.open = clientConfig{}
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
