//go:build !unix

package relay

// peek reads nothing here: gRPC judges what comes.
func peek(uintptr, []byte) (n int, done bool) { return 0, true }
