package session

import "time"

// Check is the result of a health check of a connection (protocol.md §0, Alive).
type Check struct {
	// Begun is when the check began. If the peer answered, it is alive as of then.
	Begun   time.Time
	Result  CheckResult
	Message string // explains a Result other than There
}

// CheckResult is what a health check has shown.
type CheckResult uint8

const (
	Unclear CheckResult = iota // nothing
	There                      // the peer has answered
	Silent                     // no answer in time, or UNAVAILABLE on a connection that answered otherwise before
	Blind                      // checks are off
)

// String is the result as metrics call it.
func (v CheckResult) String() string { return [...]string{"unclear", "there", "silent", "off"}[v] }
