package loopback

import (
	"net"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestReserve: nobody answers at a reserved address until the test listens there, and no
// two are the same.
func TestReserve(t *testing.T) {
	first, second := Reserve(t), Reserve(t)
	if first == second {
		t.Fatalf("%s was given twice", first)
	}
	if c, err := net.Dial("tcp", first); err == nil {
		c.Close()
		t.Fatalf("somebody answers at %s", first)
	}
	l, err := net.Listen("tcp", first)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", first)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}
