package session

import "time"

// Check is what was found out about a connection (protocol.md §0, Alive).
type Check struct {
	// Begun: if the peer is there, it is alive as of then.
	Begun   time.Time
	Verdict Verdict
	Message string // why not, for people
}

// Verdict is whether anybody is there.
type Verdict uint8

const (
	Unclear Verdict = iota // neither yes nor no
	There                  // the peer has answered
	Silent                 // it has not, or is not what it was
	Blind                  // nobody is asked: checks are off
)

// String is the verdict as metrics call it.
func (v Verdict) String() string { return [...]string{"unclear", "there", "silent", "off"}[v] }
