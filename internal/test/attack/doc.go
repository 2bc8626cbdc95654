// Package attack tries to harm a relay, as one client or a broken control plane can, while another
// client looks on: the victim, whose one resource changes every 50 ms. Each attack is a function that
// runs in a process of its own, over real sockets, against the relay's binary (threats of docs/security.md,
// target R32). What somebody does to its snapshot, its settings or its admin endpoint is a test of its own.
//
// It owns the attacks, and how harm is measured: how long the victim was without an update, how late
// updates came, and how much memory the relay took. It knows nothing of the relay but its command line and
// its sockets. It is for tests only, and only on Linux.
//
// `go test` plays the short form, which judges what no slow machine can change: the victim's stream lives,
// updates go on, the attacker is told why. `make attack` plays the long form alone on the machine, judges
// times as well, and writes the table of docs/security.md.
package attack
