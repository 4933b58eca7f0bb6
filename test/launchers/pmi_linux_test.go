package launchers

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/launch"
)

// said4 returns the results of the four ranks of a job from their output, in the order of ranks, and checks the values.
func said4(t *testing.T, out string) []said {
	t.Helper()
	var all []said
	for line := range strings.Lines(out) {
		var s said
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b said) int { return a.Process.Rank - b.Process.Rank })
	if len(all) != 4 {
		t.Fatalf("%d ranks have printed a result: expected 4:\n%s", len(all), out)
	}
	for rank, s := range all {
		if p := s.Process; p.Rank != rank || p.Size != 4 || !p.HasPMI {
			t.Errorf("rank %d is %+v", rank, p)
		}
		if want := []string{"01=00", "01=01", "01=02", "01=03"}; !slices.Equal(s.Values, want) {
			t.Errorf("rank %d got %q: expected %q", rank, s.Values, want)
		}
	}
	return all
}

// installed returns the path of a program of MPICH or Intel MPI that the script install has got.
func installed(t *testing.T, program string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(cache, "nexar-launchers", program)
	_, err = os.Stat(path)
	require.Have(t, "launchers", err == nil, fmt.Sprintf("%v: run test/launchers/install", err))
	return path
}

const (
	mpich = "mpich-5.0.2/bin/"
	intel = "impi-rt-2021.17.0/bin/"
)

// TestMPIExec starts four ranks by each mpiexec, on one host and on two, which both are this one.
func TestMPIExec(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, program string
		args          []string
		role, missing string
		local         []int // local ranks; nil if the launcher does not tell
	}{
		{"MPICH", mpich + "mpiexec.hydra", nil, "exchange", "1", []int{0, 1, 2, 3}},
		{"MPICH/PMI-2", mpich + "mpiexec.hydra", nil, "exchange over PMI-2", "1", []int{0, 1, 2, 3}},
		{"MPICH/two hosts", mpich + "mpiexec.hydra", []string{"-launcher", "fork", "-hosts", "a:2,b:2"}, "exchange", "1", []int{0, 1, 0, 1}},
		{"MPICH/two hosts/PMI-2", mpich + "mpiexec.hydra", []string{"-launcher", "fork", "-hosts", "a:2,b:2"}, "exchange over PMI-2", "", []int{0, 1, 0, 1}},
		{"gforker", mpich + "mpiexec.gforker", nil, "exchange", "1", nil},
		{"Intel MPI", intel + "mpiexec.hydra", nil, "exchange", "1", []int{0, 1, 2, 3}},
	} { // MPICH does not answer the get of a missing value over PMI-2 and two hosts.
		t.Run(test.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), installed(t, test.program), append(test.args, "-n", "4", self)...)
			cmd.Env = append(clean(), roleVariable+"="+test.role, missingVariable+"="+test.missing)
			all := said4(t, output(t, cmd))
			for rank, s := range all {
				if s.Process.Launcher != launch.PMI || test.local != nil && s.Process.LocalRank != test.local[rank] {
					t.Errorf("rank %d is %+v", rank, s.Process)
				}
			}
			if test.missing != "" {
				t.Log(all[0].Missing)
			}
		})
	}
}

// TestSlurmPMI starts four tasks on one node, on two of three, and in a heterogeneous job.
func TestSlurmPMI(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := startSlurm(t, 3, 4)
	two := []string{"--mpi=pmi2", "-N", "2", "--ntasks-per-node=2", self}
	component := []string{"--mpi=pmi2", "-N", "1", "-n", "2", self}
	for _, test := range []struct {
		name, role string
		args       []string
		local      []int // local ranks
	}{
		{"one node", "exchange", []string{"--mpi=pmi2", "-N", "1", "-n", "4", self}, []int{0, 1, 2, 3}},
		{"two nodes", "exchange", two, []int{0, 1, 0, 1}},
		{"two nodes/PMI-2", "exchange over PMI-2", two, []int{0, 1, 0, 1}},
		{"heterogeneous", "exchange", slices.Concat(component, []string{":"}, component), []int{0, 1, 0, 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := s.command(t.Context(), append([]string{"srun"}, test.args...)...)
			cmd.Env = append(cmd.Env, roleVariable+"="+test.role, missingVariable+"=1")
			for rank, said := range said4(t, output(t, cmd)) {
				p := said.Process
				if p.Launcher != launch.Slurm || p.LocalRank != test.local[rank] || p.Host < 0 || p.Host >= len(p.Hosts) || p.Hosts[p.Host] != said.Hostname {
					t.Errorf("rank %d on the host %s is %+v: expected the local rank %d, and that host", rank, said.Hostname, p, test.local[rank])
				}
			}
		})
	}
}

// After all ranks have closed their connections, Intel MPI and Slurm let the others go on when a rank is killed.
func TestSurvivorsOfRank(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	check := func(t *testing.T, cmd *exec.Cmd) {
		t.Helper()
		cmd.Env = append(cmd.Env, roleVariable+"=survive")
		out, err := cmd.CombinedOutput() // The launcher fails, too, as a rank has failed.
		for _, rank := range []int{0, 2, 3} {
			if !strings.Contains(string(out), fmt.Sprintf("survivor %d\n", rank)) {
				t.Errorf("rank %d has not survived (%v):\n%s", rank, err, out)
			}
		}
	}
	t.Run("Intel MPI", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), installed(t, intel+"mpiexec.hydra"), "-n", "4", self)
		cmd.Env = clean()
		check(t, cmd)
	})
	t.Run("Slurm", func(t *testing.T) {
		s := startSlurm(t, 1, 4)
		check(t, s.command(t.Context(), "srun", "--mpi=pmi2", "--kill-on-bad-exit=0", "-n", "4", self))
	})
}
