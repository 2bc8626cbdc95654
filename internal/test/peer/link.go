package peer

import (
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// Link is a TCP proxy that can be slow, and be cut; that can freeze, as a machine does that
// hangs, or a network of which every packet is lost for a while: connections stay, and are
// made, but nothing comes through until it thaws; and that can lose for good what it is
// given. TCP would send that again, so who has a link swallow something has to cut it
// afterwards.
type Link struct {
	Addr string
	to   string

	mu        sync.Mutex
	thawed    chan struct{} // closed while it is not frozen
	swallows  bool
	lag, give time.Duration // each way
	conns     map[net.Conn]bool
	closed    bool
}

// StartLink leads to an address until the test ends.
func StartLink(t testing.TB, to string) *Link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &Link{Addr: l.Addr().String(), to: to, thawed: make(chan struct{}), conns: make(map[net.Conn]bool)}
	close(k.thawed)
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() { k.carry(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		k.Thaw()
		k.mu.Lock()
		k.closed = true
		k.mu.Unlock()
		k.Cut()
		work.Wait()
	})
	return k
}

// Freeze lets nothing through.
func (k *Link) Freeze() {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.thawed:
		k.thawed = make(chan struct{})
	default: // it is frozen
	}
}

// Thaw lets everything through again, and what has waited.
func (k *Link) Thaw() {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.thawed:
	default:
		close(k.thawed)
	}
}

// Lag delays what goes either way, by up to give more or less for each piece, and in
// order.
func (k *Link) Lag(by, give time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lag, k.give = by, give
}

// Swallow loses what goes either way, or no longer does.
func (k *Link) Swallow(on bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.swallows = on
}

// Cut closes the connections that there are.
func (k *Link) Cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.conns {
		c.Close()
	}
}

// fate says when a piece that comes now is to arrive, and whether it does at all.
func (k *Link) fate() (at time.Time, lost bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at = time.Now().Add(k.lag)
	if k.give > 0 {
		at = at.Add(rand.N(2*k.give) - k.give)
	}
	return at, k.swallows
}

func (k *Link) passes() {
	k.mu.Lock()
	thawed := k.thawed
	k.mu.Unlock()
	<-thawed
}

// keep remembers a connection until it is let go.
func (k *Link) keep(c net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		c.Close()
		return false
	}
	k.conns[c] = true
	return true
}

func (k *Link) letGo(c net.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.conns, c)
	c.Close()
}

func (k *Link) carry(client net.Conn) {
	if !k.keep(client) {
		return
	}
	defer k.letGo(client)
	k.passes()
	server, err := net.Dial("tcp", k.to)
	if err != nil || !k.keep(server) {
		return
	}
	defer k.letGo(server)
	var back sync.WaitGroup
	back.Go(func() { k.pump(client, server) })
	k.pump(server, client)
	back.Wait()
}

// piece is what was read at once, on its way.
type piece struct {
	at    time.Time
	bytes []byte
}

// onTheWay bounds the pieces that a lag keeps.
const onTheWay = 1000

// pump carries what comes from one side to the other, and ends both when one ends.
func (k *Link) pump(to, from net.Conn) {
	pieces := make(chan piece, onTheWay)
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() {
		defer to.Close()
		defer from.Close()
		for p := range pieces {
			if left := time.Until(p.at); left > 0 {
				Wait(left)
			}
			k.passes()
			if _, err := to.Write(p.bytes); err != nil {
				break
			}
		}
		from.Close()
		for range pieces { // the reader may wait for room
		}
	})
	defer close(pieces)
	for {
		buffer := make([]byte, 32<<10)
		n, err := from.Read(buffer)
		k.passes() // so that it does not go on to read
		if at, lost := k.fate(); n > 0 && !lost {
			pieces <- piece{at, buffer[:n]}
		}
		if err != nil {
			return
		}
	}
}
