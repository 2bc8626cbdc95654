package downstream

import (
	"fmt"
	"runtime/debug"
)

// aside runs f on a goroutine of its own, and waits for it. What f takes of stack is then
// not kept by a handler for as long as its stream lasts: 8 KiB of it, for what most
// clients do once. A panic goes on in the caller.
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
