package downstream

import (
	"log/slog"
	"sync"
	"time"
)

// seldom are warnings about clients that are not let in, or have to wait. They come back again and again, so for each
// reason the log says it now and then, and how often it was not said.
type seldom struct {
	mu   sync.Mutex
	said map[string]said
}

// said is when there was a warning for a reason, and how many there would have been since then.
type said struct {
	at   time.Time
	more int
}

// warnEvery is how often the log says the same at most.
const warnEvery = time.Minute

// warn warns for a reason, of which there are few.
func (s *seldom) warn(log *slog.Logger, reason, text string, args ...any) {
	s.mu.Lock()
	if s.said == nil {
		s.said = make(map[string]said)
	}
	last := s.said[reason]
	due := time.Since(last.at) >= warnEvery
	if due {
		s.said[reason] = said{at: time.Now()}
	} else {
		s.said[reason] = said{last.at, last.more + 1}
	}
	s.mu.Unlock()
	if due {
		log.Warn(text, append(args, "more_since_last", last.more)...)
	}
}
