//go:build !linux

package envoy

import "syscall"

// dieWithTest is nothing where a child cannot be made to die with the test.
func dieWithTest() *syscall.SysProcAttr { return nil }
