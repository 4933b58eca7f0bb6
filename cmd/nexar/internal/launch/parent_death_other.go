//go:build unix && !linux && !freebsd

package launch

import "syscall"

// dieWithParent does nothing: this system cannot end a process with its
// parent. Children of a killed Run end when they next write output.
func dieWithParent(*syscall.SysProcAttr) {}
