package cache

import "hash/maphash"

// hashSeed is unknown to peers, who could otherwise choose names that share a hash.
var hashSeed = maphash.MakeSeed()

// HashOf returns the hash of a name, for tables in memory. It is never 0. A Resource
// keeps that of its name, so that very many can be looked up without reading the names again.
func HashOf(name string) uint32 { return uint32(maphash.String(hashSeed, name)) | 1 }
