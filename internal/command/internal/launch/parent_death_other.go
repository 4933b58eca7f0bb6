//go:build unix && !linux && !freebsd

package launch

import "syscall"

// dieWithParent does nothing: this system does not end a process with its parent.
// Children of a killed Run end at their next write of output.
func dieWithParent(*syscall.SysProcAttr) {}
