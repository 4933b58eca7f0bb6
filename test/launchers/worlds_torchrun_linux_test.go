package launchers

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/testhost"
)

// redirect are flags without which torchrun 1.13 fails with Python 3.11, as it cannot read their default.
var redirect = []string{"-r", "2", "-t", "2"}

// torchrun returns the arguments of a command that starts two processes of the test binary on a host. All versions know these spellings.
func torchrun(t *testing.T, args ...string) []string {
	t.Helper()
	need(t, "torchrun")
	return slices.Concat([]string{"torchrun", "--no_python", "--nproc_per_node", "2"}, redirect, args, []string{self(t)})
}

// rendezvous are the flags of torchrun for hosts that meet at an address. (The jobs of --standalone share one port in torchrun 1.13.)
func rendezvous(hosts int, endpoint string) []string {
	return []string{"--nnodes", fmt.Sprint(hosts), "--rdzv_backend", "c10d", "--rdzv_endpoint", endpoint, "--rdzv_id", "job"}
}

func command(t *testing.T, args []string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(limited(t), args[0], args[1:]...)
	cmd.Env = clean()
	return cmd
}

func freeAddress(t *testing.T) string {
	t.Helper()
	return testhost.FreePort(t)
}

// Marks of worlds. All ranks of a host have the same attempt, and all ranks of a rendezvous the same port.
const (
	attempt = "attempt $TORCHELASTIC_RESTART_COUNT"
	round   = "port $MASTER_PORT"
)

// On one host, at the same time as another job. Rank 1 of one of them dies, and torchrun starts both of its ranks again.
func TestTorchrun(t *testing.T) {
	t.Parallel()
	t.Run("two jobs on one host", func(t *testing.T) {
		one := startWorld(t, command(t, torchrun(t, append(rendezvous(1, freeAddress(t)), "--max_restarts", "1")...)), markVariable+"=one, "+attempt, dieVariable+"="+filepath.Join(t.TempDir(), "died"))
		two := startWorld(t, command(t, torchrun(t, rendezvous(1, freeAddress(t))...)), markVariable+"=two")
		one.await("one, attempt 0", 1, 2)
		two.await("two", 1, 2)
		one.await("one, attempt 1", 1, 2)
		one.stop(map[string]int{"one, attempt 1": 2})
		two.stop(map[string]int{"two": 2})
	})
	t.Run("two hosts", func(t *testing.T) {
		full(t)
		host := torchrun(t, append(rendezvous(2, freeAddress(t)), "--max_restarts", "1")...)
		both := command(t, slices.Concat([]string{"sh", "-c", `"$@" & "$@"; wait`, "sh"}, host))
		r := startWorld(t, both, token(), markVariable+"="+round, dieVariable+"="+filepath.Join(t.TempDir(), "died"))
		first := r.await("", 1, 4)[0].Mark
		second := ""
		for second == "" || second == first {
			all := members(r.text())
			second = all[len(all)-1].Mark
			time.Sleep(20 * time.Millisecond)
		}
		r.await(second, 1, 4)
		r.stop(map[string]int{second: 4})
	})
}

// torchrun is a task of Slurm, and its processes belong to torchrun.
func TestTorchrunInsideSlurm(t *testing.T) {
	t.Parallel()
	full(t)
	need(t, "torchrun")
	s := startSlurm(t, 2, 4)
	endpoint := "n1:" + strings.TrimPrefix(freeAddress(t), "127.0.0.1:")
	cmd := s.command(limited(t), slices.Concat([]string{"srun", "-N", "2", "-n", "2"}, torchrun(t, rendezvous(2, endpoint)...))...)
	runWorld(t, cmd, 4, token())
}
