package launchers

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/nexar-go/nexar"
)

const (
	openMPI = "openmpi-5.0.11/bin/"
	// loopback2 is this host under another address, which mpirun takes for another host.
	loopback2 = "127.0.0.2"
)

// mpi returns a command that starts the test binary as a number of ranks by a program that the script install has got.
func mpi(t *testing.T, program, ranks string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(limited(t), installed(t, program), slices.Concat(args, []string{"-n", ranks, self(t)})...)
	cmd.Env = clean()
	return cmd
}

// oneHost are the arguments of mpirun on this host.
var oneHost = []string{"--allow-run-as-root", "--oversubscribe"}

// Ranks on one host need no token: only processes of the same user can meet there. MPICH and Intel MPI exchange one between hosts.
func TestMPI(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, program string
		args          []string
	}{
		{"MPICH", mpich + "mpiexec.hydra", nil},
		{"MPICH over two proxies", mpich + "mpiexec.hydra", []string{"-launcher", "fork", "-hosts", "a:2,b:2"}},
		{"Intel MPI", intel + "mpiexec.hydra", nil},
		{"Intel MPI over two proxies", intel + "mpiexec.hydra", []string{"-bootstrap", "ssh", "-bootstrap-exec", agent(t), "-hosts", "127.0.0.1," + loopback2, "-ppn", "2"}},
		{"Open MPI", openMPI + "mpirun", oneHost},
	} {
		t.Run(test.name, func(t *testing.T) { runWorld(t, mpi(t, test.program, "4", test.args...), 4) })
		t.Run(test.name+" with a token and three seeds", func(t *testing.T) {
			full(t)
			runWorld(t, mpi(t, test.program, "4", test.args...), 4, token(), "NEXAR_LAUNCH_SEEDS=3")
		})
	}
}

// Two jobs of one launcher at the same time are two worlds.
func TestMPITwoJobs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, program string
		args          []string
	}{
		{"MPICH", mpich + "mpiexec.hydra", nil},
		{"Intel MPI", intel + "mpiexec.hydra", nil},
		{"Open MPI", openMPI + "mpirun", oneHost},
	} {
		t.Run(test.name, func(t *testing.T) {
			jobs := map[string]*running{}
			for _, mark := range []string{"one", "two"} {
				jobs[mark] = startWorld(t, mpi(t, test.program, "2", test.args...), markVariable+"="+mark)
			}
			for mark, job := range jobs {
				job.await(mark, 1, 2)
			}
			for mark, job := range jobs {
				job.stop(map[string]int{mark: 2})
			}
		})
	}
}

// agent returns a program in place of ssh that runs the command on this host.
func agent(t *testing.T) string {
	t.Helper()
	const script = `#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
shift
exec sh -c "$*"
`
	path := filepath.Join(t.TempDir(), "agent")
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// twoHosts returns arguments of mpirun for this host and a second one, which is this one, too.
func twoHosts(t *testing.T) []string {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--allow-run-as-root", "--prtemca", "plm_ssh_agent", agent(t), "--host", host + ":2," + loopback2 + ":2"}
}

// The variables of Open MPI have no address of another host.
func TestOpenMPITwoHosts(t *testing.T) {
	t.Parallel()
	t.Run("without a seed", func(t *testing.T) {
		failWorld(t, mpi(t, openMPI+"mpirun", "4", twoHosts(t)...),
			[]string{"openmpi does not tell its processes the address of rank 0: start a seed by 'nexar seed --world 4' and set NEXAR_SEEDS to its address"}, token())
	})
	t.Run("with the address of a seed", func(t *testing.T) {
		secret := nexar.NewToken()
		seed, err := nexar.StartSeed(context.Background(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: 4, Token: secret})
		if err != nil {
			t.Fatal(err)
		}
		defer seed.Close()
		for _, m := range runWorld(t, mpi(t, openMPI+"mpirun", "4", twoHosts(t)...), 4, "NEXAR_CLUSTER_TOKEN="+secret, "NEXAR_SEEDS="+seed.Addr()) {
			if strconv.Itoa(m.First) != m.Told {
				t.Errorf("rank %d is rank %s of Open MPI, want the same", m.First, m.Told)
			}
		}
	})
}

// A launcher that a batch script starts counts, and not the batch script.
func TestMPIInsideSlurm(t *testing.T) {
	t.Parallel()
	full(t)
	s := startSlurm(t, 2, 4)
	t.Run("mpirun of Open MPI", func(t *testing.T) {
		r := s.sbatch(t, installed(t, openMPI+"mpirun")+" --allow-run-as-root --bind-to none -n 3 "+self(t), []string{"-N", "1", "-n", "3"})
		r.stop(map[string]int{"": 3})
	})
	t.Run("mpiexec of MPICH on two nodes", func(t *testing.T) {
		r := s.sbatch(t, installed(t, mpich+"mpiexec.hydra")+" -n 4 "+self(t), []string{"-N", "2", "--ntasks-per-node=2"})
		r.stop(map[string]int{"": 4})
	})
}
