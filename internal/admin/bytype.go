package admin

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/xds-relay/xds-relay/cache"
)

// byType has the series of each type, which are looked up once, so that counting a change
// for a client costs no search. Types are few, since Short is a closed set.
type byType[S any] struct {
	begin func(short string) *S

	mu  sync.Mutex // held to add one
	all atomic.Pointer[map[string]*S]
}

func (b *byType[S]) of(t cache.TypeURL) *S { return b.ofShort(t.Short()) }

func (b *byType[S]) ofShort(short string) *S {
	if all := b.all.Load(); all != nil && (*all)[short] != nil {
		return (*all)[short]
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[string]*S)
	if known := b.all.Load(); known != nil {
		maps.Copy(all, *known)
	}
	if all[short] == nil {
		all[short] = b.begin(short)
	}
	b.all.Store(&all)
	return all[short]
}
