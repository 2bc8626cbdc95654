package peer

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// ports are those that some test has been given.
var ports sync.Map

// Port finds a TCP port of loopback that nobody has. It is not one of those that the system
// gives to whoever dials: a client that dials a port while its owner is dead could be given
// that very port to dial from, and then meet itself. Package loopback keeps an address
// bound for that, which a process in another network, or with UDP on it, cannot have.
func Port(t testing.TB) int {
	t.Helper()
	for range 1000 {
		n := 15000 + rand.IntN(15000)
		if _, given := ports.LoadOrStore(n, true); given {
			continue
		}
		if l, err := net.Listen("tcp", Local(n)); err == nil {
			l.Close()
			return n
		}
	}
	t.Fatal("no free port")
	return 0
}

// Local is a port's address on loopback.
func Local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Address is Local of a Port.
func Address(t testing.TB) string {
	t.Helper()
	return Local(Port(t))
}
