//go:build !linux

package launch

import (
	"syscall"
	"time"
)

// A register records the order of the ends of children. On this system it is the order of
// their reaping.
type register struct{}

func newRegister() *register               { return nil }
func (*register) add(int) <-chan time.Time { return nil }
func (*register) close()                   {}
func pidfdOf(*syscall.SysProcAttr) *int    { none := -1; return &none }
func closePidfd(int)                       {}
