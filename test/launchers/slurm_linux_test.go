package launchers

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/testhost"
)

// A slurm is a Slurm cluster of one test. Its nodes n1, n2, … are daemons on this machine, each with its own hostname, process IDs and
// hosts file. All files are in dir.
type slurm struct {
	t       *testing.T
	dir     string
	hosts   string    // the file that all processes of the cluster see as /etc/hosts: each node has an address of the loopback interface
	nodes   []*daemon // n1 is the first
	daemons []*daemon // all
}

// slurmLimit is how long the nodes may take to become idle. Without load it takes four seconds.
const slurmLimit = 2 * time.Minute

// startSlurm starts a cluster with a number of nodes, and tasks that each node can run at a time. It ends with the test, with all its processes.
func startSlurm(t *testing.T, nodes, tasks int) *slurm {
	t.Helper()
	require.Root(t)
	for _, program := range []string{"munged", "slurmctld", "slurmd", "srun"} {
		need(t, program)
	}
	s := &slurm{t: t, dir: t.TempDir()}
	s.configure(nodes, tasks)
	key := make([]byte, 128)
	_, _ = rand.Read(key)
	s.write("munge.key", 0o400, string(key))
	munge := func(name string) string { return filepath.Join(s.dir, "munge."+name) }
	s.start("munged", "", "munged", "--foreground", "--force", "--key-file="+munge("key"), "--socket="+munge("socket"),
		"--pid-file="+munge("pid"), "--seed-file="+munge("seed"), "--log-file="+munge("log"))
	s.await("the socket of munged", func() (string, bool) {
		_, err := os.Stat(munge("socket"))
		return fmt.Sprint(err), err == nil
	})
	s.start("slurmctld", "", "slurmctld", "-c", "-D")
	for i := range nodes {
		name := nodeName(i)
		s.nodes = append(s.nodes, s.start("slurmd-"+name, name, "slurmd", "-D", "-N", name))
	}
	s.await("idle nodes", func() (string, bool) {
		out, err := s.command(t.Context(), "sinfo", "-h", "-N", "-o", "%T").CombinedOutput()
		return string(out), err == nil && string(out) == strings.Repeat("idle\n", nodes)
	})
	return s
}

func nodeName(i int) string    { return fmt.Sprintf("n%d", i+1) }
func nodeAddress(i int) string { return fmt.Sprintf("127.0.1.%d", i+1) }

// configure writes the configuration and the hosts file.
func (s *slurm) configure(nodes, tasks int) {
	s.t.Helper()
	host, err := os.Hostname()
	if err != nil {
		s.t.Fatal(err)
	}
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil {
		s.t.Fatal(err)
	}
	conf := []string{
		"ClusterName=test", fmt.Sprintf("SlurmctldHost=%s(127.0.0.1)", host), "SlurmUser=root", "SlurmdUser=root",
		"AuthType=auth/munge", "AuthInfo=socket=" + filepath.Join(s.dir, "munge.socket"),
		"StateSaveLocation=" + filepath.Join(s.dir, "state"), "SlurmdSpoolDir=" + filepath.Join(s.dir, "spool-%n"),
		"SlurmctldPidFile=" + filepath.Join(s.dir, "slurmctld.pid"), "SlurmdPidFile=" + filepath.Join(s.dir, "%n.pid"),
		"ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "SwitchType=switch/none", "MpiDefault=none",
		"SelectType=select/cons_tres", "SelectTypeParameters=CR_CPU", "SlurmdParameters=config_overrides",
		"SchedulerType=sched/backfill", "SchedulerParameters=bf_interval=1,batch_sched_delay=1",
		"ReturnToService=2", "KillWait=1", "SlurmdTimeout=10", "AccountingStorageType=accounting_storage/none",
		"JobAcctGatherType=jobacct_gather/none", "SlurmctldDebug=info", "SlurmdDebug=info",
	}
	conf = append(conf, "SlurmctldPort="+freePort(s.t))
	names := fmt.Sprintf("127.0.0.1 %s\n", host)
	for i := range nodes {
		conf = append(conf, fmt.Sprintf("NodeName=%s NodeAddr=127.0.0.1 Port=%s CPUs=%d", nodeName(i), freePort(s.t), tasks))
		names += nodeAddress(i) + " " + nodeName(i) + "\n" // Differs, since torchrun tells hosts apart by the names of addresses.
	}
	conf = append(conf, "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE")
	s.write("slurm.conf", 0o644, strings.Join(conf, "\n")+"\n")
	s.write("hosts", 0o644, names+string(hosts))
	s.hosts = filepath.Join(s.dir, "hosts")
	if err := os.Mkdir(filepath.Join(s.dir, "state"), 0o755); err != nil {
		s.t.Fatal(err)
	}
}

func (s *slurm) write(name string, mode os.FileMode, content string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), mode); err != nil {
		s.t.Fatal(err)
	}
}

// freePort returns a port of testhost.FreePort.
func freePort(t *testing.T) (port string) {
	t.Helper()
	_, port, err := net.SplitHostPort(testhost.FreePort(t))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// A daemon is a process of the cluster, with its descendants.
type daemon struct {
	name   string
	cmd    *exec.Cmd
	done   chan struct{} // closed after its end
	killed bool
}

// start starts a daemon as the first process of its own namespaces: if it is killed, all its descendants are. Its output goes to
// the file name.out.
func (s *slurm) start(name, hostname string, args ...string) *daemon {
	s.t.Helper()
	cmd := s.private(exec.Command(args[0], args[1:]...), hostname)
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS
	cmd.SysProcAttr.Unshareflags = 0
	out, err := os.Create(filepath.Join(s.dir, name+".out"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	d := &daemon{name: name, cmd: cmd, done: make(chan struct{})}
	s.daemons = append(s.daemons, d)
	go func() {
		defer close(d.done)
		_ = cmd.Wait() // It is killed.
	}()
	s.t.Cleanup(func() {
		d.kill()
		if s.t.Failed() {
			s.log(name)
		}
	})
	return d
}

// kill ends the daemon and all its descendants, as a power failure ends a node.
func (d *daemon) kill() {
	d.killed = true
	_ = d.cmd.Process.Kill()
	<-d.done
}

// log logs the end of the output of a daemon.
func (s *slurm) log(name string) {
	out, err := os.ReadFile(filepath.Join(s.dir, name+".out"))
	if err != nil {
		s.t.Log(err)
	}
	s.t.Logf("%s: %s", name, out[max(0, len(out)-4000):])
}

// command returns a command of Slurm's, such as srun, for this cluster. The command, its output and its signals are those of exec.Cmd.
func (s *slurm) command(ctx context.Context, args ...string) *exec.Cmd {
	return s.private(exec.CommandContext(ctx, args[0], args[1:]...), "")
}

// private lets a command see the cluster, the hosts file and, unless it is "", a hostname.
func (s *slurm) private(cmd *exec.Cmd, hostname string) *exec.Cmd {
	const script = `
mount --bind "$1" /etc/hosts || exit
[ $$ != 1 ] || mount -t proc proc /proc || exit
[ -z "$2" ] || hostname "$2" || exit
shift 2
exec "$@"`
	cmd.Args = append([]string{"sh", "-c", script, "sh", s.hosts, hostname}, cmd.Args...)
	cmd.Path = "/bin/sh"
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	cmd.Env = append(clean(), "SLURM_CONF="+filepath.Join(s.dir, "slurm.conf"))
	return cmd
}

// run runs a command of Slurm's and returns its output. It fails the test if the command fails.
func (s *slurm) run(args ...string) string {
	s.t.Helper()
	return output(s.t, s.command(s.t.Context(), args...))
}

// await waits until a condition is true. It fails the test if a daemon has ended.
func (s *slurm) await(what string, condition func() (seen string, ok bool)) {
	s.t.Helper()
	began := time.Now()
	for {
		seen, ok := condition()
		if ok {
			return
		}
		if time.Since(began) > slurmLimit {
			s.t.Fatalf("no %s after %v: %s", what, slurmLimit, seen)
		}
		for _, d := range s.daemons {
			select {
			case <-d.done:
				if !d.killed {
					s.t.Fatalf("%s has ended: %v", d.name, d.cmd.ProcessState)
				}
			default:
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// output runs a command and returns its output. It fails the test if the command fails.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd.Args, err, out, stderr.Bytes())
	}
	return string(out)
}

// clean returns the environment without variables of the launchers that may have started the tests.
func clean() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		for _, prefix := range []string{"SLURM", "PMI", "MPI_", "OMPI_", "RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "MASTER_", "TORCHELASTIC_", "NEXAR_"} {
			if strings.HasPrefix(variable, prefix) {
				return true
			}
		}
		return false
	})
}

// need requires a program in PATH, and returns its path.
func need(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	require.Have(t, "launchers", err == nil, fmt.Sprintf("%v: run test/launchers/install", err))
	return path
}
