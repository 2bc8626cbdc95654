package fanout

import "github.com/xds-relay/xds-relay/cache"

// The digest of what a client's names lead to is the version of all that a SotW client sees
// (RECON-14). It is summed up once, and kept up to date as resources come and go: a client with
// very many names is told of very many changes.

// Digest is that of all that the client's interest leads to. ok is false if that has to be
// listed, since names may lead to the same resource, or to one of the wildcard's set.
func (v View) Digest() (digest string, ok bool) {
	switch {
	case len(v.s.ids) == 0:
		return v.WildcardDigest(), true
	case v.s.wildcard || v.x.named.Aliased() > 0 || v.x.wildcard.Len() > 0:
		return "", false
	}
	if v.s.sum == nil {
		v.s.sum = new(cache.Digest)
		v.x.summed++
		for _, id := range v.s.ids {
			if r := v.x.named.Own(id); r != nil {
				v.s.sum.Add(r)
			}
		}
	}
	return v.s.sum.String(), true
}

// unsum forgets the digest: the names are others.
func (s *Subscription) unsum() {
	if s.sum != nil {
		s.sum = nil
		s.index.summed--
	}
}

// adds notes that a resource bears a name, and subtracts that it does no more.
func (x *index) adds(id cache.ID, r *cache.Resource) {
	x.sums(id, func(d *cache.Digest) { d.Add(r) })
}

func (x *index) subtracts(id cache.ID, r *cache.Resource) {
	x.sums(id, func(d *cache.Digest) { d.Sub(r) })
}

func (x *index) sums(id cache.ID, change func(*cache.Digest)) {
	if x.summed == 0 || int(id) >= len(x.interest) {
		return
	}
	for _, s := range x.interest[id] {
		if s.sum != nil {
			change(s.sum)
		}
	}
}
