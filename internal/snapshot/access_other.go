//go:build !unix

package snapshot

// mayWrite: this system shows it only by writing.
func mayWrite(string) error { return nil }
