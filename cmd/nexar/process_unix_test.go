//go:build unix

package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestScriptsUnix(t *testing.T) { runScripts(t, "unix") }

// running reports whether a process runs. One that has ended, but that nobody
// has waited for, does not.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

// end kills this process as the kernel would for want of memory.
func end() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }

// quitParent has the process that has started this one end, with all others.
func quitParent() { _ = syscall.Kill(os.Getppid(), syscall.SIGQUIT) }
