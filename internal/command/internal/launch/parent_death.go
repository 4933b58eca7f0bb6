//go:build linux || freebsd

package launch

import "syscall"

// dieWithParent makes the kernel kill the process when this process ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
