package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// state is what the view shows at one moment.
type state struct {
	elapsed, of              time.Duration // of is 0 for a demo without an end
	cpAddr, relayAddr, admin string
	up                       bool
	streams                  int64 // that the control plane counts
	delta, sotw, connected   int
	lost                     int64
	responses, deliveries    int64
	upBytes, downBytes       int64
	travel                   travel
	lines                    []line // the story so far, the latest last
}

// line is one event of the story.
type line struct {
	at   time.Duration
	text string
}

// view shows the state on a terminal, or the story line by line.
type view struct {
	out   io.Writer
	tty   bool
	color bool
	width func() int
	state func() state

	stop chan struct{}
	work sync.WaitGroup

	mu    sync.Mutex // one writer at a time
	lines []line
}

const (
	// shownLines is how much of the story a terminal shows.
	shownLines = 8
	// frameEvery and statusEvery are how often the terminal is redrawn, and how
	// often a plain log sums up.
	frameEvery  = 250 * time.Millisecond
	statusEvery = 5 * time.Second

	defaultWidth = 80
)

// What a terminal is told: the alternate screen leaves what the user had there,
// and a frame is written over the one before it without clearing, which flickers.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

func newView(o Options, s func() state) *view {
	return &view{out: o.Out, tty: o.TTY, color: o.TTY && o.Color, width: o.Width, state: s, stop: make(chan struct{})}
}

// Start shows, until Stop.
func (v *view) Start() {
	every := statusEvery
	if v.tty {
		every = frameEvery
		v.write(enterScreen)
		v.frame()
	} else {
		v.mu.Lock()
		v.printf("%s\n", strings.Join(places(v.state()), "\n"))
		v.mu.Unlock()
	}
	v.work.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-v.stop:
				return
			case <-tick.C:
			}
			if v.tty {
				v.frame()
			} else {
				s := v.state()
				v.Say(s.elapsed, summed(s))
			}
		}
	})
}

// Stop ends the view. The last frame stays on the terminal.
func (v *view) Stop() {
	close(v.stop)
	v.work.Wait()
	if v.tty {
		last := v.render()
		v.write(leaveScreen + strings.Join(last, "\n") + "\n")
	}
}

// Say adds a line to the story.
func (v *view) Say(at time.Duration, text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := line{at, text}
	v.lines = append(v.lines, l)
	if n := len(v.lines); n > shownLines {
		v.lines = append(v.lines[:0], v.lines[n-shownLines:]...)
	}
	if !v.tty {
		v.printf("%s\n", l)
	}
}

// Print writes lines as they are.
func (v *view) Print(lines []string) { v.write("\n" + strings.Join(lines, "\n") + "\n") }

func (v *view) write(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.printf("%s", text)
}

// printf writes; the caller holds mu. A terminal that is gone takes the process
// with it; there is nobody to tell.
func (v *view) printf(format string, args ...any) { _, _ = fmt.Fprintf(v.out, format, args...) }

func (v *view) render() []string {
	s := v.state()
	v.mu.Lock()
	s.lines = append([]line(nil), v.lines...)
	v.mu.Unlock()
	width := defaultWidth
	if v.width != nil {
		if w := v.width(); w > 0 {
			width = w
		}
	}
	return screen(s, width, v.color)
}

func (v *view) frame() {
	var b strings.Builder
	b.WriteString(home)
	for i, l := range v.render() {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(l + clearLine)
	}
	v.write(b.String() + clearBelow)
}

func (l line) String() string { return fmt.Sprintf("%6.1fs  %s", l.at.Seconds(), l.text) }

// pad fills a text up to a width, and cuts one that is longer.
func pad(text string, width int) string {
	text = cut(text, width)
	return text + strings.Repeat(" ", width-utf8.RuneCountInString(text))
}

func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	if width < 1 {
		return ""
	}
	return string([]rune(text)[:width-1]) + "…"
}
