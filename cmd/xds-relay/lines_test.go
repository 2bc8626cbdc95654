package main

import (
	"bufio"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// lines are what a program says, as far as it has said it.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// follow takes in what a program says from now on. done is closed when it says no more.
func (l *lines) follow(log *bufio.Scanner) (done <-chan struct{}) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		for log.Scan() {
			fmt.Fprintln(l, log.Text())
		}
	}()
	return over
}

// String is all of it.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// after is the rest of the line that has a part, or "".
func (l *lines) after(part string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, rest, ok := strings.Cut(l.text.String(), part)
	line, _, ended := strings.Cut(rest, "\n")
	if !ok || !ended {
		return ""
	}
	return line
}

// has reports whether a line is there, whatever the blanks and the address.
func (l *lines) has(line, address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	blanks := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	text := answers.ReplaceAllString(strings.ReplaceAll(l.text.String(), address, "ADDRESS"), "$1$2")
	return strings.Contains(blanks(text), line)
}

// answers are nonces with a counter: which of two clients' responses have one depends on who is first.
var answers = regexp.MustCompile(`(nonce=[A-Z]+\.[0-9]+)\.[0-9]+(-)`)
