//go:build unix

package command

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestScriptsUnix(t *testing.T) { runScripts(t, "unix") }

// running reports whether a process runs. A zombie does not.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

// end kills this process, as the kernel does when memory runs out.
func end() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }

// quitParent sends SIGQUIT to nexar run, which passes it on to all ranks.
func quitParent() { _ = syscall.Kill(os.Getppid(), syscall.SIGQUIT) }

// copiedProgram returns the path of a copy of this test program. TestMain runs it as the command of that name. It can start
// itself, which a link cannot: its own path has the name, too.
func copiedProgram(t *testing.T, name string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir() + "/" + name
	if err := os.WriteFile(path, text, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}
