//go:build !unix

package downstream

import "net"

// newPatient has no patient reader for this system.
func newPatient(net.Conn) patient { return nil }
