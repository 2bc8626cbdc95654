package downstream

import "encoding/binary"

// frames follows the HTTP/2 frames that a client sends (RFC 9113 §4.1), just far enough to tell which
// bytes belong to which stream. gRPC tells of a message only when it is whole.
type frames struct {
	opened int // bytes of the connection preface that have come

	header [9]byte
	have   int // bytes of the header that have come
	left   int // bytes of the frame that come after them
	data   int // of these, what belongs to the stream: not padding
	padded bool
	first  bool // no byte of data has come
}

// The parts of a frame, and what precedes the first one.
const (
	preface = 24 // bytes: "PRI * HTTP/2.0…"

	frameData    = 0x0
	frameHeaders = 0x1
	frameRST     = 0x3

	flagEndStream = 0x1
	flagPadded    = 0x8
)

// pieces gets what a client sends.
type pieces interface {
	// piece gets a part of a DATA frame. frame is the length of the frame if this is its first part,
	// and otherwise 0.
	piece(stream uint32, frame int, b []byte)
	// opens is called for each stream that the client opens, and resets for each that it resets.
	opens()
	resets()
	// over is called when the client says that nothing follows on a stream.
	over(stream uint32)
}

// follow takes note of the next bytes that were read.
func (f *frames) follow(b []byte, to pieces) {
	if n := min(len(b), preface-f.opened); n > 0 {
		f.opened += n
		b = b[n:]
	}
	for len(b) > 0 {
		if f.have < len(f.header) {
			n := copy(f.header[f.have:], b)
			f.have += n
			b = b[n:]
			if f.have < len(f.header) {
				return
			}
			f.begin(to)
		}
		n := min(len(b), f.left)
		f.payload(b[:n], to)
		b = b[n:]
		if f.left == 0 {
			f.end(to)
		}
	}
}

func (f *frames) stream() uint32 { return binary.BigEndian.Uint32(f.header[5:]) &^ (1 << 31) }
func (f *frames) length() int    { return int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2]) }
func (f *frames) has(flag byte) bool {
	return f.header[4]&flag != 0
}

// begin is called when a header is there.
func (f *frames) begin(to pieces) {
	f.left, f.data, f.first = f.length(), 0, true
	switch f.header[3] {
	case frameData:
		f.data = f.left
	case frameHeaders: // a client sends no trailers (gRPC), and gRPC refuses a second one of a stream
		to.opens()
	case frameRST:
		to.resets()
	}
	f.padded = f.header[3] == frameData && f.has(flagPadded)
}

// payload takes a part of the frame that is no longer than what is left of it.
func (f *frames) payload(b []byte, to pieces) {
	f.left -= len(b)
	if f.padded && len(b) > 0 { // its first byte is the length of the padding
		f.data = max(f.data-1-int(b[0]), 0)
		f.padded = false
		b = b[1:]
	}
	n := min(len(b), f.data)
	if n == 0 {
		return
	}
	f.data -= n
	frame := 0
	if f.first {
		frame, f.first = f.length(), false
	}
	to.piece(f.stream(), frame, b[:n])
}

// end is called when all of a frame has come.
func (f *frames) end(to pieces) {
	f.have = 0
	kind := f.header[3]
	if kind == frameRST || kind <= 0x1 && f.has(flagEndStream) {
		to.over(f.stream())
	}
}
