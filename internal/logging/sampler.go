package logging

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"
)

// Storms. A thousand refused clients, or a thousand groups without a control plane, repeat
// the same line. Of each kind a few lines are written as they come, and then one from time
// to time, with the number of those that were left out.

// suppressedKey is the attribute that counts the lines of this kind which were held back
// since the last one that was written.
const suppressedKey = "suppressed"

// limits bound what is written, and what is remembered.
type limits struct {
	burst int           // lines of a kind at once,
	every time.Duration // and then one in so long
	kinds int           // that are told apart; further ones count as one
}

// At 300 bytes a line a kind takes 60 bytes a second, after 3 KB at once.
var defaults = limits{burst: 10, every: 5 * time.Second, kinds: 256}

// sampledBy are the attributes that, with level and message, make the kind of a line. Each
// has few values in one relay: none is a client's or a group's choice. key is a key of the
// configuration: a reload that changes many says so of each.
var sampledBy = map[string]bool{"reason": true, "code": true, "address": true, "listener": true, "key": true}

// sampler holds back what is too much.
type sampler struct {
	limits

	mu     sync.Mutex
	kinds  map[string]*kind
	timer  *time.Timer // runs out when a line that is held back may be written; nil: none is
	closed bool
}

// kind is one kind of line.
type kind struct {
	tokens float64 // lines that may be written at asOf
	asOf   time.Time
	held   int  // lines held back since the last one that was written,
	last   held // and the latest of them
}

// held is a line and where it was going.
type held struct {
	to     slog.Handler
	record slog.Record
}

func newSampler(l limits) *sampler { return &sampler{limits: l, kinds: make(map[string]*kind)} }

// before returns a handler that passes on to h the lines that are within the limits.
func (s *sampler) before(h slog.Handler) slog.Handler { return &sampled{to: h, sampler: s} }

// sampled is the handler of one logger.
type sampled struct {
	to      slog.Handler
	sampler *sampler
	scope   string // what its own attributes add to the kind
}

// Enabled implements slog.Handler.
func (h *sampled) Enabled(ctx context.Context, l slog.Level) bool { return h.to.Enabled(ctx, l) }

// WithAttrs implements slog.Handler.
func (h *sampled) WithAttrs(attrs []slog.Attr) slog.Handler {
	scope := h.scope
	for _, a := range attrs {
		scope += kindOf(a)
	}
	return &sampled{h.to.WithAttrs(attrs), h.sampler, scope}
}

// WithGroup implements slog.Handler.
func (h *sampled) WithGroup(name string) slog.Handler {
	return &sampled{h.to.WithGroup(name), h.sampler, h.scope}
}

// Handle implements slog.Handler.
func (h *sampled) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo {
		return h.to.Handle(ctx, r)
	}
	var key strings.Builder
	key.WriteString(r.Level.String())
	key.WriteString(r.Message)
	key.WriteString(h.scope)
	r.Attrs(func(a slog.Attr) bool {
		key.WriteString(kindOf(a))
		return true
	})
	suppressed, ok := h.sampler.take(key.String(), held{h.to, r}, time.Now())
	if !ok {
		return nil
	}
	return write(ctx, held{h.to, r}, suppressed)
}

// kindOf is what an attribute adds to the kind of a line.
func kindOf(a slog.Attr) string {
	if !sampledBy[a.Key] {
		return ""
	}
	return "\x00" + a.Key + "=" + a.Value.String()
}

func write(ctx context.Context, l held, suppressed int) error {
	if suppressed > 0 {
		l.record = l.record.Clone()
		l.record.AddAttrs(slog.Int(suppressedKey, suppressed))
	}
	return l.to.Handle(ctx, l.record)
}

// take decides on a line: whether it is written now, with the number of those before it that
// were not.
func (s *sampler) take(key string, l held, now time.Time) (suppressed int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, true
	}
	k := s.kind(key, now)
	if s.refill(k, now); k.tokens >= 1 {
		suppressed = k.held
		k.tokens, k.held, k.last = k.tokens-1, 0, held{}
		return suppressed, true
	}
	k.held++
	k.last = held{l.to, l.record.Clone()}
	if s.timer == nil {
		s.timer = time.AfterFunc(s.wait(k), s.due)
	}
	return 0, false
}

// kind finds or makes a kind. When there are too many, those that have been quiet make room.
func (s *sampler) kind(key string, now time.Time) *kind {
	if k := s.kinds[key]; k != nil {
		return k
	}
	if len(s.kinds) >= s.limits.kinds {
		maps.DeleteFunc(s.kinds, func(_ string, k *kind) bool {
			s.refill(k, now)
			return k.held == 0 && k.tokens >= float64(s.burst)
		})
	}
	if len(s.kinds) >= s.limits.kinds {
		if key = ""; s.kinds[key] != nil {
			return s.kinds[key]
		}
	}
	k := &kind{tokens: float64(s.burst), asOf: now}
	s.kinds[key] = k
	return k
}

func (s *sampler) refill(k *kind, now time.Time) {
	k.tokens = min(float64(s.burst), k.tokens+float64(now.Sub(k.asOf))/float64(s.every))
	k.asOf = now
}

// wait is for how long a kind may not be written.
func (s *sampler) wait(k *kind) time.Duration {
	return max(time.Duration((1-k.tokens)*float64(s.every)), time.Millisecond)
}

// due writes lines that were held back for long enough, so that the end of a storm is in the
// log although no line follows.
func (s *sampler) due() {
	for _, l := range s.ripe(time.Now()) {
		_ = write(context.Background(), l.held, l.before) // nobody can be told of a log that cannot be written
	}
}

// counted is a line, and how many were held back before it.
type counted struct {
	held
	before int
}

// ripe takes the lines that may be written now.
func (s *sampler) ripe(now time.Time) (ripe []counted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = nil
	next := time.Duration(-1)
	for _, k := range s.kinds {
		if k.held == 0 {
			continue
		}
		s.refill(k, now)
		if k.tokens >= 1 || s.closed {
			ripe = append(ripe, counted{k.last, k.held - 1})
			k.tokens, k.held, k.last = max(k.tokens-1, 0), 0, held{}
		} else if at := s.wait(k); next < 0 || at < next {
			next = at
		}
	}
	if next >= 0 {
		s.timer = time.AfterFunc(next, s.due)
	}
	return ripe
}

// close writes what is held back.
func (s *sampler) close() {
	s.mu.Lock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.due()
}
