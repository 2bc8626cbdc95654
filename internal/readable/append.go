package readable

import (
	"encoding/json"
	"strings"
	"time"
)

// asItIs are the bytes that stand for themselves in a string of JSON, as encoding/json writes it.
var asItIs = func() (all [256]bool) {
	for c := byte(' '); c <= '~'; c++ {
		all[c] = strings.IndexByte(`"\<>&`, c) < 0
	}
	return all
}()

// AppendText appends a string as JSON has it. What is no UTF-8 in it is replaced.
func AppendText(b []byte, s string) []byte {
	for i := range len(s) {
		if !asItIs[s[i]] {
			text, _ := json.Marshal(s) // there is no error for a string
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// AppendTime appends a time as JSON has it, in UTC, with as many digits as it needs.
func AppendTime(b []byte, t time.Time) []byte {
	return append(t.UTC().AppendFormat(append(b, '"'), time.RFC3339Nano), '"')
}
