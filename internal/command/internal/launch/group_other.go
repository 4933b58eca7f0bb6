//go:build unix && !linux

package launch

import "syscall"

// groupLeft reports whether the process group has a member.
func groupLeft(group int) bool { return syscall.Kill(-group, 0) == nil }
