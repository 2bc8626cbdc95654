package downstream

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/mem"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
)

// What gzip clients are sent is deflated once for all of them: a shared part of a response as a whole, other resources
// one by one. Each response is one gzip member, whose CRC is joined from those of its parts; what is this client's
// alone is stored in it as it is. Clients that take one member only (C-core) read it as any other.

// block is a sequence of bytes in the form that it has within a gzip member, wherever that is.
type block struct {
	deflated   []byte // nil if they are hardly shorter
	size       int    // of what is deflated, in bytes
	sum, shift uint32 // its CRC, and crcShift
}

// The bounds that have no setting, in bytes.
const (
	// leastDeflated is the smallest part that is worth it.
	leastDeflated = 512
	// keptDeflated bounds the resources whose deflated form is remembered, together with that form.
	keptDeflated = 64 << 20
)

// deflater has a compressor, of 1.2 MiB.
type deflater struct {
	out bytes.Buffer
	to  *flate.Writer
}

var deflaters = sync.Pool{New: func() any {
	d := new(deflater)
	d.to, _ = flate.NewWriter(&d.out, flate.BestSpeed) // there is such a level
	return d
}}

// deflate makes a block of all parts together.
func deflate(parts mem.BufferSlice) *block {
	d := deflaters.Get().(*deflater)
	defer deflaters.Put(d)
	d.out.Reset()
	d.to.Reset(&d.out)
	b := new(block)
	for _, part := range parts {
		b.size += part.Len()
		b.sum = crc32.Update(b.sum, crc32.IEEETable, part.ReadOnlyData())
		_, _ = d.to.Write(part.ReadOnlyData()) // a buffer takes everything
	}
	_ = d.to.Flush() // to a whole byte, and the member goes on
	b.shift = crcShift(b.size)
	if d.out.Len() < b.size-b.size/8 {
		b.deflated = bytes.Clone(d.out.Bytes())
	}
	return b
}

// deflated makes gzip members of responses. It remembers the deflated form of the resources that were sent of late, in
// two halves: when the young one is full, the old one is forgotten.
type deflated struct {
	mu         sync.Mutex
	young, old map[span]*lazy
	size       int // of the young ones, in bytes

	made atomic.Int64 // blocks, for tests
}

// span is a sequence of bytes that nobody changes, by its place.
type span struct {
	first *byte
	size  int
}

// spanOf returns that of a shared part of a frame. It is not empty.
func spanOf(part mem.Buffer) span { return span{&part.ReadOnlyData()[0], part.Len()} }

// lazy is a block that the first who needs it makes; the others wait for it.
type lazy struct {
	once  sync.Once
	block *block
}

func (l *lazy) get(d *deflated, parts mem.BufferSlice) *block {
	l.once.Do(func() {
		d.made.Add(1)
		l.block = deflate(parts)
	})
	return l.block
}

// find returns the block of a resource, which may still have to be made.
func (d *deflated) find(s span) *lazy {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.young[s]
	if l != nil {
		return l
	}
	if l = d.old[s]; l == nil {
		l = new(lazy)
	}
	if d.young == nil || d.size >= keptDeflated/2 {
		d.young, d.old, d.size = make(map[span]*lazy), d.young, 0
	}
	d.young[s] = l
	d.size += 2 * s.size // the deflated form is smaller
	return l
}

// pack returns a response as one gzip member, or nil if that would hardly be shorter. It runs under no lock.
func (d *deflated) pack(r *session.Response, f *frame) mem.BufferSlice {
	m := newMember()
	rest := f.bufs
	if s := sharedOf(r); s != nil {
		if s.size < leastDeflated || !m.put(s.deflated.get(d, s.bufs)) {
			return nil
		}
		rest = rest[len(s.bufs):]
	} else if slices.ContainsFunc(r.Resources, func(r *cache.Resource) bool { return r.DoNotCache }) {
		return nil // VALID-5: nothing may remember it
	}
	m.store(rest[0]) // the client's own
	for i, part := range rest[1:] {
		if part.Len() < leastDeflated || !m.put(d.find(spanOf(part)).get(d, rest[i+1:i+2])) {
			m.store(part)
		}
	}
	return m.end()
}

// member is a gzip member in the making.
type member struct {
	bufs   mem.BufferSlice
	own    []byte // what follows the last block
	sum    uint32
	size   int
	blocks int
}

func newMember() *member {
	own := make([]byte, 0, 256)
	return &member{own: append(own, 0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff)} // deflated; neither flags nor time; from any system
}

// put adds a block, if there is one that is shorter than its content.
func (m *member) put(b *block) bool {
	if b.deflated == nil {
		return false
	}
	m.bufs = append(m.bufs, mem.SliceBuffer(m.own), mem.SliceBuffer(b.deflated))
	m.own = nil
	m.sum, m.size, m.blocks = crcJoin(m.sum, b.sum, b.shift), m.size+b.size, m.blocks+1
	return true
}

// store adds bytes as they are.
func (m *member) store(b mem.Buffer) {
	m.sum = crc32.Update(m.sum, crc32.IEEETable, b.ReadOnlyData())
	m.size += b.Len()
	for part := range slices.Chunk(b.ReadOnlyData(), math.MaxUint16) {
		m.own = append(storedHead(m.own, 0, len(part)), part...)
	}
}

// storedHead appends the beginning of a stored block.
func storedHead(b []byte, last byte, n int) []byte {
	size := uint16(n) //nolint:gosec // it is at most MaxUint16
	return binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(append(b, last), size), ^size)
}

// end returns the member, or nil if it has no block.
func (m *member) end() mem.BufferSlice {
	if m.blocks == 0 {
		return nil
	}
	b := binary.LittleEndian.AppendUint32(storedHead(m.own, 1, 0), m.sum)
	b = binary.LittleEndian.AppendUint32(b, uint32(m.size)) //nolint:gosec // gzip has it modulo 2^32
	return append(m.bufs, mem.SliceBuffer(b))
}
