//go:build !linux

package realenvoy

import "syscall"

// ownGroup is nothing where a child cannot be made to die with the test.
func ownGroup() *syscall.SysProcAttr { return nil }
