package fanout

import "github.com/xds-relay/xds-relay/cache"

// The digest of what a client's names lead to is the version of all that a SotW client sees
// (RECON-14). It is summed up once, and kept up to date as resources come and go: a client with
// very many names gets very many changes.

// Digest is that of all that the client's interest leads to. ok is false if that has to be
// listed, since names may lead to the same resource, or to one of the wildcard's set.
func (v View) Digest() (digest string, ok bool) {
	switch {
	case len(v.s.names.ids) == 0:
		return v.Set().Digest(), true
	case v.s.wildcard || v.x.named.Aliased() > 0 || v.x.wildcard.Len() > 0:
		return "", false
	}
	if !v.s.summed {
		v.s.sum, v.s.summed = cache.Digest{}, true
		v.x.interest.summed++
		for _, id := range v.s.names.ids {
			if r := v.x.named.Own(id); r != nil {
				v.s.sum.Add(r)
			}
		}
	}
	return v.s.sum.String(), true
}

// unsum forgets the digest: the names are others.
func (s *Subscription) unsum() {
	if s.summed {
		s.summed = false
		s.index.interest.summed--
	}
}

// sums takes in that a name bears another resource, or none.
func (i *interest) sums(id cache.ID, before, now *cache.Resource) {
	if i.summed == 0 {
		return
	}
	var by cache.Digest
	if before != nil {
		by.Sub(before)
	}
	if now != nil {
		by.Add(now)
	}
	for _, s := range i.of(id) {
		if s.summed {
			s.sum.Change(by)
		}
	}
}
