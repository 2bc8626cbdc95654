// Package certs keeps the certificates, keys and authorities that a configuration names
// as they are on disk, while connections use them.
//
// It owns what was read last and was good, says what is wrong with what is not, names the
// cause of a handshake that failed, and reminds of certificates that are about to expire.
// A [Follower] looks when a file changes, whether it is written in place, renamed over, or
// swapped by a symbolic link as Kubernetes does, and from time to time in any case. What
// cannot be used never replaces what can: it is read again until it is whole.
//
// It never opens a connection and never logs the contents of a key. Limitations: revocation
// is not checked; a key that is encrypted, or in hardware, cannot be used; while a
// directory does not answer, as on a network file system, nothing is renewed.
package certs
