// Package peer has what stands around a relay in tests with real processes and real
// sockets: programs that are started and killed, the relay's own binary among them, links
// that hang or lose what they carry, taps that record what is said, and streams on which
// a test says what it likes. Tests in modules of their own use it, too.
//
// It owns how these start and end; what they say and must not say is the tests' business.
// It knows nothing of the relay but its command line, its admin endpoint and the names of
// types, so that next to nothing of the relay is built into who uses it. It is for tests only.
//
// Limitation: only on Linux does a process end with a test that is killed.
package peer
