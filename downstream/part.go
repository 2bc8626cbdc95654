package downstream

import (
	"encoding/binary"
	"time"
)

// grpcHeader is how many bytes precede a request: whether it is compressed, and its length.
const grpcHeader = 5

// part is what a stream's requests use that are not taken in. It begins when a read ends within a request,
// or when its connection has too many that are whole.
type part struct {
	header [grpcHeader]byte // gRPC's, of the request in progress
	have   int              // bytes of it that have come
	left   int              // bytes of the request that come after it
	length int              // bytes of the request that have come
	half   int              // bytes of memory for the request in progress
	came   int              // bytes of the requests that are whole
	whole  int              // bytes of memory for these
	early  int              // bytes that came before the relay knew the stream

	last  time.Time // when bytes came, or their connection could be read again
	from  time.Time // since when the client is measured
	got   int       // bytes since then
	ended bool      // its stream has ended, and what still comes is thrown away
}

// take takes what b has of the request in progress, and returns how much that is.
func (p *part) take(b []byte) int {
	n := 0
	if p.have < len(p.header) {
		n = copy(p.header[p.have:], b)
		p.have += n
		p.left = int(binary.BigEndian.Uint32(p.header[1:])) // which holds once all of it is there
	}
	if p.have == len(p.header) {
		m := min(p.left, len(b)-n)
		p.left -= m
		n += m
	}
	p.half += n
	p.length += n
	if p.have == len(p.header) && p.left == 0 {
		p.whole, p.half = p.whole+p.half, 0
		p.came, p.length = p.came+p.length, 0
		p.have = 0
	}
	return n
}

// drips reports whether too little has come.
func (p *part) drips(now time.Time) bool {
	if now.Sub(p.from) < slowAfter {
		return false
	}
	if p.got < slowBytes {
		return true
	}
	p.from, p.got = now, 0
	return false
}

// weigh returns what gRPC takes for a frame beyond its bytes: small ones have an allocation each, and
// others a buffer of one of two sizes.
func weigh(frame int) int {
	const each = 64
	switch {
	case frame == 0: // it was weighed before
		return 0
	case frame <= 1<<10:
		return each
	case frame <= 4<<10:
		return each + 4<<10 - frame
	}
	return each + max(16<<10-frame, 0)
}

// wholeRequests reports whether b consists of whole requests.
func wholeRequests(b []byte) bool {
	for len(b) >= grpcHeader {
		n := int64(binary.BigEndian.Uint32(b[1:]))
		if n > int64(len(b)-grpcHeader) {
			return false
		}
		b = b[grpcHeader+n:]
	}
	return len(b) == 0
}
