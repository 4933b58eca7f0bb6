//go:build !linux

package launch

import (
	"syscall"
	"time"
)

// A register records the order in which children end. On this system it is the order in
// which they are reaped.
type register struct{}

func newRegister() *register               { return nil }
func (*register) add(int) <-chan time.Time { return nil }
func (*register) close()                   {}
func pidfdOf(*syscall.SysProcAttr) *int    { none := -1; return &none }
func closePidfd(int)                       {}
