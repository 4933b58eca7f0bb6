package kubernetes

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/testbuild"
	"github.com/nexar-go/nexar/internal/testhost"
	"github.com/nexar-go/nexar/internal/testlog"
)

// programs are the command nexar and the programs of users, in a folder that every user may read.
var programs = testbuild.Set{Build: func(dir string) error {
	return errors.Join(os.Chmod(dir, 0o755),
		testbuild.Go("build", "-ldflags=-s -w", "-o", dir+string(filepath.Separator), "../../cmd/nexar", "../../examples/allreduce", "../../examples/elastic"))
}}

// containerVariable has the container that this process becomes, as JSON.
const containerVariable = "KUBERNETES_TEST_CONTAINER"

func TestMain(m *testing.M) {
	if text := os.Getenv(containerVariable); text != "" {
		fmt.Fprintln(os.Stderr, "container:", enter(text))
		os.Exit(125)
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = f.Value.Set("6") // Most tests wait for names and timeouts.
	}
	os.Exit(programs.Around(m).Run())
}

// patience bounds the wait for an event that must happen.
const patience = 2 * time.Minute

// A container is the process of a pod, with its own files and host name.
type container struct {
	Host    string // name
	Files   string // a folder with hosts, resolv.conf and token
	State   string // a folder for /var/lib/nexar
	Program string
	Args    []string
	Env     []string
	User    int
	Group   int // of the pod: fsGroup
	Mode    uint32
}

// enter makes this process a container: its own files, name and user. It returns an error only.
func enter(text string) error {
	var c container
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	const secrets = "/run/secrets/nexar"
	token, err := os.ReadFile(filepath.Join(c.Files, "token"))
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error { return unix.Mount(filepath.Join(c.Files, "hosts"), "/etc/hosts", "", unix.MS_BIND, "") },
		func() error {
			return unix.Mount(filepath.Join(c.Files, "resolv.conf"), "/etc/resolv.conf", "", unix.MS_BIND, "")
		},
		func() error { return unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=0755") },
		func() error { return unix.Mount("tmpfs", "/var/lib", "tmpfs", 0, "mode=0755") },
		func() error { return os.MkdirAll(secrets, 0o755) },
		func() error { return os.WriteFile(secrets+"/token", token, 0o600) },
		func() error { return os.Chown(secrets+"/token", 0, c.Group) },
		func() error { return os.Chmod(secrets+"/token", os.FileMode(c.Mode)) },
		func() error { return os.Mkdir("/var/lib/nexar", 0o755) },
		func() error { return unix.Mount(c.State, "/var/lib/nexar", "", unix.MS_BIND, "") },
		func() error { return unix.Mount("proc", "/proc", "proc", 0, "") },
		func() error { return unix.Sethostname([]byte(c.Host)) },
		func() error { return syscall.Setgroups([]int{c.Group}) },
		func() error { return syscall.Setgid(c.User) },
		func() error { return syscall.Setuid(c.User) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return syscall.Exec(c.Program, append([]string{c.Program}, c.Args...), c.Env)
}

// A cluster plays the pods of an overlay: each has a network namespace with the names of the cluster.
type cluster struct {
	*nameserver
	t     *testing.T
	hosts []*testhost.Host
	token string
}

// newCluster makes n hosts, and one more for the names.
func newCluster(t *testing.T, n int, have testhost.Family) *cluster {
	t.Helper()
	require.Root(t)
	hosts := testhost.New(t, n+1, have).Hosts
	return &cluster{nameserver: serveNames(t, hosts[n]), t: t, hosts: hosts[:n], token: nexar.NewToken()}
}

// A running container.
type process struct {
	cmd    *exec.Cmd
	name   string
	output testlog.Buffer
	ended  chan struct{}
	err    error
}

// start starts the container of a pod on a host. The pod has no name in the DNS yet.
func (c *cluster) start(p pod, host *testhost.Host, program string, args ...string) *process {
	c.t.Helper()
	dir := c.t.TempDir()
	_, volume := p.tokenFile()
	state := filepath.Join(dir, "volume")
	user, group := int(*p.spec.SecurityContext.RunAsUser), int(*p.spec.SecurityContext.FSGroup)
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "hosts"), []byte(p.hostsFile(host.Addr().String())), 0o644),
		os.WriteFile(filepath.Join(dir, "resolv.conf"), fmt.Appendf(nil, "nameserver %s\nsearch %s svc.cluster.local cluster.local\noptions ndots:5\n", c.addr, domain[1:]), 0o644),
		os.WriteFile(filepath.Join(dir, "token"), []byte(c.token+"\n"), 0o600),
		os.Mkdir(state, 0o755), os.Chown(state, 0, group), os.Chmod(state, 0o777|os.ModeSetgid), // as the kubelet leaves a volume
	); err != nil {
		c.t.Fatal(err)
	}
	text, err := json.Marshal(container{
		Host: p.name, Files: dir, State: state, Program: filepath.Join(programs.Dir(c.t), program), Args: args,
		Env: p.environ(c.t), User: user, Group: group, Mode: uint32(*volume.DefaultMode),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	run := &process{cmd: exec.Command("/proc/self/exe"), name: p.name, ended: make(chan struct{})}
	run.cmd.Env = []string{containerVariable + "=" + string(text)}
	run.cmd.Stdout, run.cmd.Stderr = &run.output, &run.output
	run.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWPID}
	if err := host.Start(run.cmd); err != nil {
		c.t.Fatal(err)
	}
	go func() {
		run.err = run.cmd.Wait()
		close(run.ended)
	}()
	c.t.Cleanup(run.kill)
	return run
}

// publish gives a pod its name in the DNS.
func (c *cluster) publish(p pod, addrs ...netip.Addr) { c.set(p.host(), record{addrs: addrs}) }

// kill ends a process as the loss of its host does.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.ended
}

// wait waits until the process has ended, and returns its output.
func (p *process) wait(t *testing.T) string {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatalf("%s has not ended within %v:\n%s", p.name, patience, p.output.String())
	}
	return p.output.String()
}

// succeeds waits until the process has ended with success after it has printed text.
func (p *process) succeeds(t *testing.T, text string) {
	t.Helper()
	if out := p.wait(t); p.err != nil || !strings.Contains(out, text) {
		t.Errorf("%s: %v, want success and %q:\n%s", p.name, p.err, text, out)
	}
}

// prints waits until the process has printed text.
func (p *process) prints(t *testing.T, text string) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%s prints %q", p.name, text), func() bool { return strings.Contains(p.output.String(), text) }, p.output.String)
}

// waitFor waits for a condition.
func waitFor(t *testing.T, what string, ok func() bool, state func() string) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s\n%s", patience, what, state())
		}
	}
}
