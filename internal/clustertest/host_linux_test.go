package clustertest

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/internal/require"
)

// A host is a network namespace with a loopback interface and "eth0", which a
// bridge joins to those of the other hosts.
type host struct {
	t      *testing.T
	ns     *os.File // keeps the namespace alive
	v4, v6 netip.Addr
}

// A network is hosts on a bridge in a namespace of its own. It is gone, with
// all processes on it, when the test's process is.
type network struct {
	t      *testing.T
	bridge *host
	hosts  []*host
}

// family says which addresses the hosts of a network have.
type family int

const (
	ipv4 family = 1 << iota
	ipv6
)

// newNetwork makes n hosts, 10.77.0.1 and fd77::1 onwards.
func newNetwork(t *testing.T, n int, have family) *network {
	t.Helper()
	require.Have(t, "netns", os.Geteuid() == 0, "only the superuser makes network namespaces")
	_, err := exec.LookPath("ip")
	require.Have(t, "netns", err == nil, "no ip of iproute2 is installed")
	bridge, err := newHost(t)
	require.Have(t, "netns", err == nil, fmt.Sprintf("no network namespace can be made: %v", err))

	w := &network{t: t, bridge: bridge}
	w.bridge.run("ip", "link", "add", "br0", "type", "bridge")
	w.bridge.run("ip", "link", "set", "br0", "up")
	for i := range n {
		h, err := newHost(t)
		if err != nil {
			t.Fatal(err)
		}
		port := fmt.Sprint("port", i)
		w.bridge.run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", h.path())
		w.bridge.run("ip", "link", "set", port, "master", "br0", "up")
		h.run("ip", "link", "set", "lo", "up")
		if have&ipv4 != 0 {
			h.v4 = netip.AddrFrom4([4]byte{10, 77, 0, byte(i + 1)})
			h.run("ip", "addr", "add", h.v4.String()+"/24", "dev", "eth0")
		}
		if have&ipv6 != 0 {
			h.v6 = netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 15: byte(i + 1)})
			h.run("ip", "addr", "add", h.v6.String()+"/64", "dev", "eth0", "nodad")
		}
		h.run("ip", "link", "set", "eth0", "up")
		w.hosts = append(w.hosts, h)
	}
	return w
}

// newHost makes a namespace with nothing in it.
func newHost(t *testing.T) (*host, error) {
	h := &host{t: t}
	err := elsewhere(func() error { return unix.Unshare(unix.CLONE_NEWNET) }, func() (err error) {
		h.ns, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err == nil {
		t.Cleanup(func() { h.ns.Close() })
	}
	return h, err
}

// elsewhere calls f on a thread that enter has brought into another namespace.
// If the thread cannot come back, it ends.
func elsewhere(enter, f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			// The namespace of the main thread counts as that of the process.
			// While this goroutine keeps it, another gets another thread.
			err := elsewhere(enter, f)
			runtime.UnlockOSThread()
			result <- err
			return
		}
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			result <- err
			return
		}
		defer home.Close()
		if err = enter(); err == nil {
			err = f()
		}
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	return <-result
}

// in calls f in the namespace of the host.
func (h *host) in(f func() error) error {
	return elsewhere(func() error { return unix.Setns(int(h.ns.Fd()), unix.CLONE_NEWNET) }, f)
}

// start starts a process on the host.
func (h *host) start(cmd *exec.Cmd) error { return h.in(cmd.Start) }

// path is where another process finds the namespace.
func (h *host) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.ns.Fd()) }

// run runs a command on the host, which must succeed, and returns its output.
func (h *host) run(name string, args ...string) string {
	h.t.Helper()
	out, err := h.try("", name, args...)
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

// try runs a command on the host with the given standard input.
func (h *host) try(input, name string, args ...string) (string, error) {
	var out strings.Builder
	cmd := exec.Command(name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &out
	err := h.start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out.String())
	}
	return out.String(), nil
}
