package relay

import (
	"fmt"
	"net"
	"os"
	"testing"
)

// TestListenOnAnAbstractSocket: it leaves nothing in the file system.
func TestListenOnAnAbstractSocket(t *testing.T) {
	t.Chdir(t.TempDir())
	name := fmt.Sprintf("xds-relay-test-%d", os.Getpid())
	l, err := Listen("unix-abstract:" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", "@"+name)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if files, err := os.ReadDir("."); err != nil || len(files) > 0 {
		t.Errorf("%v, %v", files, err)
	}
	if second, err := Listen("unix-abstract:" + name); err == nil {
		second.Close()
		t.Error("two have it")
	}
}
