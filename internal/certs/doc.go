// Package certs keeps the certificates, keys and authorities of a configuration up to
// date with their files, or with the agent of a SPIFFE Workload API that stands for them,
// while connections use them.
//
// It owns the last good version of each file, reports what is wrong with a bad one, names
// the cause of a failed handshake, and reminds of certificates that expire soon. A
// [Follower] reads a file when it changes, whether it is written in place, replaced by
// rename, or swapped by a symbolic link as Kubernetes does, and polls from time to time.
// Files that cannot be used never replace good ones; they are read again until they are
// good.
//
// What an agent sends is used like new files: until its first answer there is no
// certificate, and while it is away the last one stays. It is asked again for ever.
//
// It opens no connection but to agents, writes nothing to disk, and never logs the contents
// of a key. Limitations: of several SVIDs the agent's first is used; revocation
// is not checked; a key that is encrypted, or in hardware, cannot be used; while a
// directory does not answer, as on a network file system, nothing is renewed.
package certs
