package downstream

import (
	"maps"
	"time"
)

// maxBuckets bounds the holders of which something is remembered.
const maxBuckets = 4096

// buckets count what each holder has done of something, over all its streams and connections, and forget it with time.
type buckets struct {
	within time.Duration // the time in which as much is forgotten as may be done at once
	by     map[string]bucket
	swept  time.Time
}

type bucket struct {
	has float64
	at  time.Time
}

// left is what is not forgotten yet.
func (b *buckets) left(of bucket, most int, now time.Time) float64 {
	return max(0, of.has-float64(most)*now.Sub(of.at).Seconds()/b.within.Seconds())
}

// add counts some, and returns by how much there are more than most.
func (b *buckets) add(holder string, n, most int, now time.Time) (over float64) {
	old, known := b.by[holder]
	if !known {
		b.makeRoom(most, now)
	}
	all := b.left(old, most, now) + float64(n)
	b.by[holder] = bucket{all, now}
	return max(0, all-float64(most))
}

// spill forgets at once by how much there are more than most.
func (b *buckets) spill(holder string, most int) {
	of := b.by[holder]
	b.by[holder] = bucket{min(of.has, float64(most)), of.at}
}

// half reports whether somebody has done half of what it may.
func (b *buckets) half(holder string, most int, now time.Time) bool {
	return 2*b.left(b.by[holder], most, now) > float64(most)
}

// makeRoom forgets those of whom nothing is left, now and then, or anybody if there are very many.
func (b *buckets) makeRoom(most int, now time.Time) {
	if b.by == nil {
		b.by = make(map[string]bucket)
	}
	if len(b.by) < maxBuckets {
		return
	}
	if now.Sub(b.swept) >= time.Second {
		b.swept = now
		maps.DeleteFunc(b.by, func(_ string, of bucket) bool { return b.left(of, most, now) == 0 })
	}
	for holder := range b.by {
		if len(b.by) < maxBuckets {
			return
		}
		delete(b.by, holder)
	}
}
