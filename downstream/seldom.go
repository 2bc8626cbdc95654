package downstream

import (
	"log/slog"
	"sync"
	"time"
)

// seldom is a warning about clients that are not let in. They come back again and again, so the log says it now and
// then, and how often it was not said.
type seldom struct {
	mu     sync.Mutex
	warned time.Time
	more   int // since then
}

// warnEvery is how often the log says that clients are not let in, while they come back.
const warnEvery = time.Minute

func (s *seldom) warn(log *slog.Logger, text string, args ...any) {
	s.mu.Lock()
	more, due := s.more, time.Since(s.warned) >= warnEvery
	if due {
		s.more, s.warned = 0, time.Now()
	} else {
		s.more++
	}
	s.mu.Unlock()
	if due {
		log.Warn(text, append(args, "more_since_last", more)...)
	}
}
