//go:build !unix

package preflight

// fileLimit cannot be told here.
func fileLimit() (uint64, bool) { return 0, false }
