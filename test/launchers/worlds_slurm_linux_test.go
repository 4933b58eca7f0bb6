package launchers

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// srun returns a command that starts the test binary by srun.
func (s *slurm) srun(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return s.command(limited(t), slices.Concat([]string{"srun"}, args, []string{self(t)})...)
}

// sbatch starts a batch script. The command is sbatch --wait, which ends as the script does.
func (s *slurm) sbatch(t *testing.T, script string, args []string, vars ...string) *running {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "job.sh")
	if err := os.WriteFile(file, []byte("#!/bin/bash\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	r := startWorld(t, s.command(limited(t), slices.Concat([]string{"sbatch", "--wait", "--output=" + dir + "/out.%j"}, args, []string{file})...), vars...)
	r.files = dir + "/out.*"
	return r
}

// On three nodes, rank 0 of which runs the seed.
func TestSlurm(t *testing.T) {
	t.Parallel()
	s := startSlurm(t, 3, 4)
	secret := token()
	t.Run("srun -n 6 on 3 nodes", func(t *testing.T) {
		all := runWorld(t, s.srun(t, "-N", "3", "-n", "6", "--ntasks-per-node=2"), 6, secret)
		for rank, m := range all {
			if want := nodeName(rank / 2); m.Host != want {
				t.Errorf("rank %d runs on %s: expected %s, as Slurm places it", rank, m.Host, want)
			}
		}
	})
	t.Run("pmi2 without a token", func(t *testing.T) {
		runWorld(t, s.srun(t, "--mpi=pmi2", "-N", "3", "-n", "6", "--ntasks-per-node=2"), 6)
	})
	t.Run("uneven tasks", func(t *testing.T) {
		all := runWorld(t, s.srun(t, "-N", "3", "-n", "6", "-m", "plane=4"), 6, secret)
		hosts := map[string]int{}
		for _, m := range all {
			hosts[m.Host]++
		}
		if len(hosts) != 3 || hosts["n1"] != 4 {
			t.Errorf("tasks per node %v: expected 4, 1 and 1", hosts)
		}
	})
	t.Run("three seeds", func(t *testing.T) {
		runWorld(t, s.srun(t, "-N", "3", "-n", "3"), 3, secret, "NEXAR_LAUNCH_SEEDS=3")
	})
	t.Run("stale variables of other launchers", func(t *testing.T) {
		runWorld(t, s.srun(t, "-N", "2", "-n", "2"), 2, secret, "RANK=3", "WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1", "LOCAL_RANK=0",
			"PMI_RANK=1", "PMI_SIZE=4", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "SLURM_PROCID=7", "SLURM_NTASKS=9")
	})
	t.Run("no token", func(t *testing.T) {
		failWorld(t, s.srun(t, "-N", "2", "-n", "2"), []string{"the processes of this world have no secret: put 'export NEXAR_CLUSTER_TOKEN=$(nexar token)' into the batch script before srun"})
	})
	t.Run("two components", func(t *testing.T) {
		cmd := s.command(limited(t), "srun", "-N", "1", "-n", "3", self(t), ":", "-N", "1", "-n", "2", self(t))
		runWorld(t, cmd, 5, secret)
	})
	t.Run("array", func(t *testing.T) {
		r := s.sbatch(t, "srun "+self(t), []string{"--array=0-1", "-N", "2", "--ntasks-per-node=2"}, secret, markVariable+"=element $SLURM_ARRAY_TASK_ID")
		r.await("element 0", 1, 4)
		r.await("element 1", 1, 4)
		r.stop(map[string]int{"element 0": 4, "element 1": 4})
	})
	t.Run("heterogeneous job", func(t *testing.T) {
		r := s.sbatch(t, "srun --het-group=0,1 "+self(t), []string{"-N", "1", "-n", "2", ":", "-N", "2", "-n", "4"}, secret)
		r.stop(map[string]int{"": 6})
	})
	t.Run("batch script without srun", func(t *testing.T) {
		r := s.sbatch(t, self(t), []string{"-N", "2", "-n", "4"}, secret)
		<-r.ended
		if want := "this process is the batch script of job"; r.err == nil || !strings.Contains(r.text(), want) || !strings.Contains(r.text(), "start it by srun") {
			t.Errorf("got %v, %s: expected an error with %q", r.err, r.text(), want)
		}
		recordText(t, "fails as expected")
	})
}

// Each case has a cluster of its own, since it loses a node.
func TestSlurmNodeDies(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		node int // that dies
		vars []string
	}{
		{"without a seed", 2, nil},
		{"with rank 0 and one of three seeds", 0, []string{"NEXAR_LAUNCH_SEEDS=3"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			full(t)
			s := startSlurm(t, 3, 4)
			r := startWorld(t, s.srun(t, "--no-kill", "--kill-on-bad-exit=0", "-N", "3", "-n", "6", "--ntasks-per-node=2"), append(test.vars, token())...)
			r.await("", 1, 6)
			s.nodes[test.node].kill()
			for _, m := range r.await("", 2, 4) {
				if m.Host == nodeName(test.node) {
					t.Errorf("the node has been killed: %+v", m)
				}
			}
			r.stop(map[string]int{"": 4})
		})
	}
}

// The administrator, or the job itself, gives one of its nodes back.
func TestSlurmJobShrinks(t *testing.T) {
	t.Parallel()
	s := startSlurm(t, 3, 4)
	r := startWorld(t, s.srun(t, "-J", "shrinks", "--no-kill", "--kill-on-bad-exit=0", "-N", "3", "-n", "3"), token())
	r.await("", 1, 3)
	id := strings.TrimSpace(s.run("squeue", "-h", "-n", "shrinks", "-o", "%i"))
	s.run("scontrol", "update", "JobId="+id, "NodeList=n1,n2")
	r.await("", 2, 2)
	r.stop(map[string]int{"": 2})
}
