package downstream

import (
	"fmt"
	"runtime/debug"
)

// aside runs f on a goroutine of its own and waits for it. A handler keeps its stack as long as
// its stream lasts, and the stack that f needs, 8 KiB for what most clients do once, is not added
// to it. A panic goes on in the caller.
func aside(f func()) {
	var bug any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				bug = fmt.Sprintf("%v\n%s", p, debug.Stack())
			}
		}()
		f()
	}()
	if <-done; bug != nil {
		panic(bug)
	}
}
