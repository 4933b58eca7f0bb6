//go:build linux || freebsd

package launch

import "syscall"

// dieWithParent has the kernel kill the process when this one ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
