//go:build !unix

package snapshot

// mayWrite cannot be told here without writing.
func mayWrite(string) error { return nil }
