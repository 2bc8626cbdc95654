package fanout

import "github.com/xds-relay/xds-relay/cache"

// The digest of the resources that a client's names lead to is the version that a SotW client sees
// (RECON-14). It is computed once and then updated with each change, since a client with very many
// names gets very many changes.

// Digest returns the digest of everything that the client's interest leads to. ok is false if the
// caller has to list the resources instead, because a name may resolve to a member of the wildcard's
// set.
func (v View) Digest() (digest string, ok bool) {
	switch {
	case len(v.s.names.ids) == 0:
		return v.Set().Digest(), true
	case v.s.wildcard || v.x.wildcard.Len() > 0:
		return "", false
	}
	if !v.s.summed {
		v.s.sum, v.s.summed = cache.Digest{}, true
		for _, id := range v.s.names.ids {
			if r := v.x.named.Own(id); r != nil {
				v.s.sum.Add(r)
			}
		}
	}
	return v.s.sum.String(), true
}

// updateDigests updates the digests of a name's subscribers when another resource, or none, bears the name.
func (i *interest) updateDigests(id cache.ID, before, now *cache.Resource) {
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
