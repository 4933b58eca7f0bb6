package hosts

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/internal/require"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// on runs a command on a host and returns its output.
func on(t *testing.T, w *Network, host int, command ...string) string {
	t.Helper()
	args := append(w.Prefix(host), command...)
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q on host %d: %v: %s", command, host, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestHosts(t *testing.T) {
	err := Check()
	require.Have(t, "netns", err == nil, fmt.Sprint(err))
	w, err := New(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for i := range w.Len() {
		if got, want := on(t, w, i, "cat", "/proc/sys/kernel/hostname"), fmt.Sprint("host", i+1); got != want {
			t.Errorf("name of host %d: got %q, want %q", i, got, want)
		}
		if got := on(t, w, i, "ip", "-4", "-o", "addr", "show", Interface); !strings.Contains(got, w.Addr(i)+"/24") {
			t.Errorf("addresses of host %d: got %q, want %s", i, got, w.Addr(i))
		}
	}
	here, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(here, "host3") {
		t.Errorf("the name of this machine has changed to %q", here)
	}

	agent, err := w.WriteAgent(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), agent, w.Addr(1), "echo  $((6 * 7));", "cat /proc/sys/kernel/hostname").CombinedOutput()
	if got, want := string(out), "42\nhost2\n"; err != nil || got != want {
		t.Errorf("output of the agent: got %q, %v, want %q", got, err, want)
	}
	if err := exec.CommandContext(t.Context(), agent, "10.0.0.1", "true").Run(); err == nil {
		t.Error("the agent for an unknown address: no error")
	}

	pids := w.Pids()
	w.Close()
	for _, pid := range pids {
		if _, err := os.Stat(fmt.Sprint("/proc/", pid, "/ns/net")); err == nil {
			t.Errorf("process %d still runs after Close", pid)
		}
	}
}
