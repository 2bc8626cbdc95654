package cache

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"math/bits"
	"slices"
	"strconv"
)

// recipe is the leading tag of every fingerprint. It changes whenever the recipe
// does, so that relays of different versions err to resending (RECON-3).
const recipe = "1:"

// Fingerprint makes the version that clients see: a function of the content alone, so that
// replicas, restarts and chained relays agree (RECON-1, RECON-2). The zero value is ready for use.
type Fingerprint struct {
	// SecretKey, if set, keys the fingerprints of secret types, so that a version
	// tells nothing of a weak secret (RECON-1). Types says which these are.
	SecretKey []byte
	Types     Types
}

// Of is "1:" and the hex of the first 16 bytes of SHA-256 over the
// length-prefixed sequence of type URL, body and sorted aliases. TTL, metadata,
// cache control and the upstream's own version play no part.
func (f Fingerprint) Of(typeURL string, body []byte, aliases []string) string {
	h := sha256.New()
	if len(f.SecretKey) > 0 && f.Types.Of(TypeURL(typeURL)).Secret {
		h = hmac.New(sha256.New, f.SecretKey)
	}
	var sum [sha256.Size]byte
	prefixed(h, []byte(typeURL))
	prefixed(h, body)
	for _, a := range slices.Sorted(slices.Values(aliases)) {
		prefixed(h, []byte(a))
	}
	return recipe + hex.EncodeToString(h.Sum(sum[:0])[:16])
}

func prefixed(h hash.Hash, b []byte) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(b)))
	h.Write(n[:])
	h.Write(b)
}

// Digest is the order-independent sum over a set of resources from which the
// version of a whole set is made. Adding and taking away cost O(1) (RECON-14).
type Digest struct {
	hi, lo uint64
	count  uint64
}

// Add takes one more resource into the set.
func (d *Digest) Add(r *Resource) { d.Change(r.sum) }

// Sub takes a resource out of the set.
func (d *Digest) Sub(r *Resource) {
	var borrow uint64
	d.lo, borrow = bits.Sub64(d.lo, r.sum.lo, 0)
	d.hi, _ = bits.Sub64(d.hi, r.sum.hi, borrow)
	d.count--
}

// Change takes in by how much the set has changed.
func (d *Digest) Change(by Digest) {
	var carry uint64
	d.lo, carry = bits.Add64(d.lo, by.lo, 0)
	d.hi, _ = bits.Add64(d.hi, by.hi, carry)
	d.count += by.count
}

// String is the SotW version_info of the set: "1:", the count, and the sum
// (RECON-14). It is never empty (DOWN-SOTW-11).
func (d Digest) String() string {
	var sum [16]byte
	binary.BigEndian.PutUint64(sum[:8], d.hi)
	binary.BigEndian.PutUint64(sum[8:], d.lo)
	return recipe + strconv.FormatUint(d.count, 10) + ":" + hex.EncodeToString(sum[:])
}

// digestOf is the Digest of one resource: SHA-256/128 of (name, F).
func digestOf(name, version string) Digest {
	h := sha256.New()
	prefixed(h, []byte(name))
	prefixed(h, []byte(version))
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return Digest{binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:16]), 1}
}
