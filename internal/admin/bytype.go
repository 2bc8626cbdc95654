package admin

import "github.com/xds-relay/xds-relay/cache"

// byType has the series of each type, which are looked up once, so that counting a change
// for a client costs no search. Types are few, since Short is a closed set.
type byType[S any] struct {
	known map[cache.TypeURL]*S
	other *S
}

func newByType[S any](begin func(short string) *S) byType[S] {
	b := byType[S]{known: make(map[cache.TypeURL]*S), other: begin(cache.OtherShort)}
	for _, t := range cache.WellKnown() {
		b.known[t] = begin(t.Short())
	}
	return b
}

func (b *byType[S]) of(t cache.TypeURL) *S {
	if s := b.known[t.V3()]; s != nil {
		return s
	}
	return b.other
}
