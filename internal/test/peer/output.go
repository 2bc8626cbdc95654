package peer

import (
	"strings"
	"sync"
	"testing"
)

// Output is what a process, or a relay in this one, has said, or the end of it.
type Output struct {
	mu     sync.Mutex
	text   []byte
	alarms []byte
}

// NewOutput is for who is no process of its own. If the test fails, it shows the end of it.
func NewOutput(t testing.TB, name string) *Output {
	o := &Output{}
	t.Cleanup(func() { o.show(t, name) })
	return o
}

func (o *Output) show(t testing.TB, name string) {
	if t.Failed() {
		t.Logf("the end of what %s said:\n%s", name, o)
	}
}

// Bounds of what is kept of a process that says too much, and of what is shown.
const keepOutput, showOutput = 16 << 20, 32 << 10

// alarming is what no process may say.
var alarming = []string{"DATA RACE", "panic:", "fatal error:"}

// Write implements io.Writer.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	const longest = len("fatal error:")
	from := max(0, len(o.text)-longest)
	o.text = append(o.text, b...)
	if len(o.alarms) > 0 {
		o.alarms = append(o.alarms, b[:min(len(b), max(0, showOutput-len(o.alarms)))]...)
	} else {
		for _, what := range alarming {
			if i := strings.Index(string(o.text[from:]), what); i >= 0 {
				o.alarms = append(o.alarms, o.text[from+i:]...)
				break
			}
		}
	}
	if len(o.text) > 2*keepOutput {
		o.text = append([]byte(nil), o.text[len(o.text)-keepOutput:]...)
	}
	return len(b), nil
}

// Alarm is what it has said that no process may say, and what follows.
func (o *Output) Alarm() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.alarms)
}

// Has reports whether a text was said.
func (o *Output) Has(text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Contains(string(o.text), text)
}

// Lines are those that contain every one of the parts.
func (o *Output) Lines(parts ...string) (found []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
lines:
	for line := range strings.Lines(string(o.text)) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue lines
			}
		}
		found = append(found, strings.TrimSpace(line))
	}
	return found
}

// String is the end of it, for people.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text[max(0, len(o.text)-showOutput):])
}
