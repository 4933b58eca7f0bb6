//go:build unix

package launch

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
)

// signals says that processes can be ended by signals.
const signals = true

// alive reports whether a process runs. A zombie does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

// A background process of a shell keeps the output open, in a group of its
// own, after the shell has ended.
func TestEscapedProcessIsNotWaitedFor(t *testing.T) {
	setsid, err := exec.LookPath("setsid")
	require.Have(t, "setsid", err == nil, "there is no program setsid here")
	var r run
	began := time.Now()
	r.do(Config{Children: []Child{{
		Name: func() string { return "rank 0" }, Path: "/bin/sh", Args: []string{"sh", "-c", setsid + " sleep 20 & echo started"},
		Env: os.Environ(),
	}}})
	if r.failed != nil || r.out.String() != "started\n" {
		t.Errorf("got %q, %v, want started and no error", r.out.String(), r.failed)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("Run took %v: it waited for the escaped process", took)
	}
}
