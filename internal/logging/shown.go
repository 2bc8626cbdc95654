package logging

import (
	"slices"
	"strings"

	"github.com/xds-relay/xds-relay/cache"
)

// What a line shows of what peers send.

// MaxNames bounds the names in one line, and maxName how long each may be, in bytes.
const (
	MaxNames = 10
	maxName  = 200
)

// First are the first few names of a list, each clipped.
func First(names []string) []string {
	first := slices.Clone(names[:min(len(names), MaxNames)])
	for i, name := range first {
		first[i] = strings.ToValidUTF8(name[:min(len(name), maxName)], "")
	}
	return first
}

// Version is a version as the log may show it. That of a Secret is hidden, since a reader
// could check guesses of a weak secret against it.
func Version(t cache.TypeURL, version string) string {
	if t == cache.Secret && version != "" {
		return "[redacted]"
	}
	return version
}
