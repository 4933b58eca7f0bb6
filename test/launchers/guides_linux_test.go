package launchers

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// guideBlock is a block of shell commands that the tests of this package run, and those of test/docs do not.
var guideBlock = regexp.MustCompile("(?s)<!-- not run: needs ([^\n]*); test/launchers runs it -->\n```sh\n(.*?)```")

// blocks returns the commands of a guide that need a program.
func blocks(t *testing.T, guide, needs string) (commands []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs/guide", guide))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range guideBlock.FindAllStringSubmatch(string(text), -1) {
		if m[1] == needs {
			commands = append(commands, m[2])
		}
	}
	if len(commands) == 0 {
		t.Fatalf("%s has no commands that need %s", guide, needs)
	}
	return commands
}

// A reader runs the commands of a guide in the directory dir, which is also the home directory. It has the programs ./train and ./program, which are the test
// binary, and the command nexar in bin.
type reader struct {
	t    *testing.T
	dir  string
	vars []string
	cmd  func(args ...string) *exec.Cmd
}

func newReader(t *testing.T, cmd func(args ...string) *exec.Cmd) *reader {
	t.Helper()
	r := &reader{t: t, dir: t.TempDir(), cmd: cmd}
	bin := filepath.Join(r.dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"train", "program"} {
		if err := os.Symlink(self(t), filepath.Join(r.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", bin+"/", "../../cmd/nexar")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r.vars = []string{"HOME=" + r.dir, "PATH=" + bin + string(filepath.ListSeparator) + os.Getenv("PATH"),
		"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe"}
	return r
}

// program puts a program into bin.
func (r *reader) program(name, script string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, "bin", name), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		r.t.Fatal(err)
	}
}

// run runs a block of commands.
func (r *reader) run(block string) string {
	r.t.Helper()
	cmd := asWorld(r.cmd("sh", "-e", "-c", block), r.vars...)
	cmd.Dir = r.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("%s\n%v: %s", block, err, out)
	}
	return string(out)
}

// TestGuideSlurm runs the commands of the guide to Slurm in their order.
func TestGuideSlurm(t *testing.T) {
	t.Parallel()
	s := startSlurm(t, 3, 4)
	r := newReader(t, func(args ...string) *exec.Cmd { return s.command(limited(t), args...) })
	r.program("sbatch", fmt.Sprintf("exec %q --wait \"$@\"\n", need(t, "sbatch")))
	worlds := []int{0, 6, 6 + 6, 1 + 4, 6, 0} // the ranks that end after each block
	all := blocks(t, "slurm.md", "Slurm")
	if len(all) != len(worlds) {
		t.Fatalf("the guide has %d blocks: expected %d", len(all), len(worlds))
	}
	ended := 0
	for i, block := range all {
		if strings.Contains(block, "nexar status") {
			job := s.sbatch(t, "export NEXAR_LOG=info NEXAR_CLUSTER_TOKEN_FILE="+r.dir+"/.nexar-token\nsrun "+self(t), []string{"--nodes=3", "--ntasks-per-node=2"})
			job.await("", 1, 6)
			m := regexp.MustCompile(`which world this process belongs to" launcher=slurm job=(\S+) .*seeds="\[(.*?)\]"`).FindStringSubmatch(job.text())
			if m == nil {
				t.Fatalf("no rank has logged its job and seeds:\n%s", job.text())
			}
			block = strings.NewReplacer("12.0.0", m[1], "n1:27656", strings.ReplaceAll(m[2], " ", ",")).Replace(block)
			if out := r.run(block); !strings.Contains(out, "6 of 6 ranks") {
				t.Errorf("nexar status says\n%s\nexpected that 6 of 6 ranks have answered", out)
			}
			job.stop(map[string]int{"": 6})
			continue
		}
		out := r.run(block)
		files, err := filepath.Glob(r.dir + "/slurm-*.out")
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, file := range files {
			part, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text += string(part)
		}
		done := slices.DeleteFunc(members(text), func(m member) bool { return !m.Done })
		if len(done)-ended != worlds[i] {
			t.Fatalf("%d ranks have ended: expected %d:\n%s\n%s%s", len(done)-ended, worlds[i], block, out, text)
		}
		ended = len(done)
	}
}

// TestGuideMPI runs the commands of the guide from MPI.
func TestGuideMPI(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	seed := freeAddress(t)
	local := strings.NewReplacer("10.0.0.1:7946", seed, "h1:2,h2:2", host+":2,"+loopback2+":2")
	for needs, program := range map[string]string{"Open MPI": openMPI + "mpirun", "MPICH or Intel MPI": mpich + "mpiexec.hydra"} {
		t.Run(needs, func(t *testing.T) {
			r := newReader(t, func(args ...string) *exec.Cmd { return command(t, args) })
			r.program(strings.TrimSuffix(filepath.Base(program), ".hydra"), fmt.Sprintf("exec %q \"$@\"\n", installed(t, program)))
			r.vars = append(r.vars, "PRTE_MCA_plm_ssh_agent="+agent(t))
			for _, block := range blocks(t, "from-mpi.md", needs) {
				checkWorld(t, r.run(local.Replace(block)), "", 4)
			}
		})
	}
}

// TestGuideTorchrun runs the commands of the guide from torch.distributed: the second block on two hosts, which both are this one.
func TestGuideTorchrun(t *testing.T) {
	t.Parallel()
	full(t)
	torchrun := need(t, "torchrun")
	r := newReader(t, func(args ...string) *exec.Cmd { return command(t, args) })
	r.program("torchrun", fmt.Sprintf("exec %q %s \"$@\"\n", torchrun, strings.Join(redirect, " ")))
	r.run("umask 077; nexar token >~/.nexar-token")
	all := blocks(t, "from-torch.md", "torchrun")
	if len(all) != 2 {
		t.Fatalf("the guide has %d blocks: expected 2", len(all))
	}
	checkWorld(t, r.run(all[0]), "", 4)
	_, port, err := net.SplitHostPort(freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	block := strings.ReplaceAll(all[1], "h1:29400", "127.0.0.1:"+port)
	checkWorld(t, r.run("{ "+block+" } & { "+block+" }; wait"), "", 4)
}
