// Package descriptors says how the process shares out its file descriptors, so that clients never
// take those that the relay itself needs: to reach a control plane, to answer probes and to write
// the snapshot.
//
// It opens and closes nothing: whoever accepts connections keeps to its share. Limitation: it
// does not know what else the process has open, and takes [Own] for enough.
package descriptors

import (
	"errors"
	"syscall"
)

// own is how many descriptors the relay needs beside its connections. With everything configured 14
// are open all the time: standard streams, the poller, listeners, the lock of the snapshot, watches
// of files, the exporter of traces. Writing a snapshot, asking DNS and reading files take some for a
// moment.
const own = 16

// listeners is how many HTTP listeners there may be: admin and metrics.
const listeners = 2

// Kept is how many descriptors of a limit are for the relay's own files and for HTTP, at least 32.
func Kept(limit int) int { return own + listeners*ForHTTP(limit) }

// ForClients is how many connections of clients a limit leaves, where as many as upstream may go
// to a control plane; 0: there is no limit. A small limit leaves clients a quarter all the same,
// since hardly any relay needs all of upstream.
func ForClients(limit, upstream int) int {
	return max(limit-Kept(limit)-upstream, limit/4)
}

// ForHTTP is how many connections each HTTP listener may have at once. The fewest are for a limit
// at which every descriptor counts.
func ForHTTP(limit int) int {
	const fewest, most = 8, 1024
	if limit == 0 {
		return most
	}
	return min(max(limit/64, fewest), most)
}

// Exhausted reports whether an error says that there are no descriptors left, for the process or
// for the whole machine.
func Exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}
