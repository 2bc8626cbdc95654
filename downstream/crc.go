package downstream

import (
	"hash/crc32"
	"math/bits"
)

// The CRC-32 of two byte sequences, one after the other, follows from the CRC of each and the length of the second,
// as in zlib's crc32_combine. CRCs are polynomials over GF(2), modulo the one of IEEE 802.3; bit 31 is the constant.

// crcShift returns x^(8n): what the CRC of a first sequence is multiplied with when n bytes follow.
func crcShift(n int) uint32 {
	p := uint32(1) << 31
	for k := 3; n > 0; n, k = n>>1, k+1 {
		if n&1 == 1 {
			p = crcProduct(crcSquares[k%len(crcSquares)], p)
		}
	}
	return p
}

// crcJoin returns the CRC of two sequences; shift is crcShift of the second one's length.
func crcJoin(first, second, shift uint32) uint32 { return crcProduct(shift, first) ^ second }

func crcProduct(a, b uint32) (p uint32) {
	for ; a != 0; a <<= 1 {
		if bits.LeadingZeros32(a) == 0 {
			p ^= b
		}
		b = b>>1 ^ crc32.IEEE&-(b&1)
	}
	return p
}

// crcSquares has x^(2^k). They repeat after 32, since x has the order 2^32-1.
var crcSquares = func() (squares [32]uint32) {
	squares[0] = 1 << 30
	for k := 1; k < len(squares); k++ {
		squares[k] = crcProduct(squares[k-1], squares[k-1])
	}
	return squares
}()
