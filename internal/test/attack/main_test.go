//go:build linux

package attack

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(asAttacker); name != "" {
		if err := runAttacker(name); err != nil {
			fmt.Println("the attack has failed:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil { // mostly they wait
		panic(err) // there is such a flag
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		peer.Cleanup()
		if err := save(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}))
}

// long asks for the long form.
func long() bool { return os.Getenv("ATTACK") == "long" }
