// Package certs keeps the certificates, keys and authorities of a configuration up to
// date with their files, while connections use them.
//
// It owns the last good version of each file, reports what is wrong with a bad one, names
// the cause of a failed handshake, and reminds of certificates that expire soon. A
// [Follower] reads a file when it changes, whether it is written in place, replaced by
// rename, or swapped by a symbolic link as Kubernetes does, and polls from time to time.
// Files that cannot be used never replace good ones; they are read again until they are
// good.
//
// It never opens a connection and never logs the contents of a key. Limitations: revocation
// is not checked; a key that is encrypted, or in hardware, cannot be used; while a
// directory does not answer, as on a network file system, nothing is renewed.
package certs
