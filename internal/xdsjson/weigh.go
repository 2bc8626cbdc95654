package xdsjson

import "fmt"

// The bounds that have no setting.
const (
	// MaxDepth is how deep objects and lists may be in each other. A node's metadata is seldom deeper than five.
	MaxDepth = 64
	// element is what each value counts for at least, in bytes, since it takes as much in memory (VALID-8).
	element = 64
)

// Mistake is why a text is refused, and where.
type Mistake struct {
	Line, Column int // from 1; 0: at no place of its own
	Message      string
	// TooLarge: nothing is wrong with the text but its size.
	TooLarge bool
}

func (m *Mistake) Error() string {
	if m.Line == 0 {
		return m.Message
	}
	return fmt.Sprintf("line %d, column %d: %s", m.Line, m.Column, m.Message)
}

// weigh refuses a text that is deeper than deepest, or whose values would take more memory than limit. It reads it once,
// allocates nothing, and does not care whether it is JSON otherwise.
func weigh(text []byte, deepest, limit int) *Mistake {
	depth, weight, line, start := 0, 0, 1, 0
	at := func(i int, tooLarge bool, format string, args ...any) *Mistake {
		return &Mistake{Line: line, Column: i - start + 1, Message: fmt.Sprintf(format, args...), TooLarge: tooLarge}
	}
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\n':
			line, start = line+1, i+1
		case '"':
			i = endOfString(text, i)
		case '{', '[':
			if depth++; depth > deepest {
				return at(i, false, "objects and lists are more than %d deep", deepest)
			}
			weight += element
		case '}', ']':
			depth--
		case ',', ':':
			weight += element
		}
		if weight > limit {
			return at(i, true, "the values before this would take more than %d bytes of memory", limit)
		}
	}
	return nil
}

// endOfString returns where a string ends that begins at i: at its quote, or at the end of the text.
func endOfString(text []byte, i int) int {
	for i++; i < len(text) && text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i
}
