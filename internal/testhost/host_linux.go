package testhost

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

// A Host is a network namespace with a loopback interface and "eth0", which is connected to
// those of the other hosts.
type Host struct {
	V4, V6 netip.Addr // of eth0; invalid without an address of the family

	t  testing.TB
	ns *os.File // keeps the namespace alive
}

// A Network is a set of hosts and the bridge between them, which has its own namespace.
type Network struct {
	Bridge *Host // has the interfaces "br0" and, for host i, "port<i>"
	Hosts  []*Host
}

// Family is a set of address families.
type Family int

// Families.
const (
	IPv4 Family = 1 << iota
	IPv6
)

// New creates n hosts with the addresses 10.77.0.1 and fd77::1, and so on.
func New(t testing.TB, n int, have Family) *Network {
	t.Helper()
	require.Have(t, "netns", os.Geteuid() == 0, "network namespaces require root")
	_, err := exec.LookPath("ip")
	require.Have(t, "netns", err == nil, "the command ip of iproute2 is not installed")
	bridge, err := NewHost(t)
	require.Have(t, "netns", err == nil, fmt.Sprintf("cannot create a network namespace: %v", err))

	w := &Network{Bridge: bridge}
	w.Bridge.Run("ip", "link", "add", "br0", "type", "bridge")
	w.Bridge.Run("ip", "link", "set", "br0", "up")
	for i := range n {
		h, err := NewHost(t)
		if err != nil {
			t.Fatal(err)
		}
		port := fmt.Sprint("port", i)
		w.Bridge.Run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", h.Path())
		w.Bridge.Run("ip", "link", "set", port, "master", "br0", "up")
		h.Run("ip", "link", "set", "lo", "up")
		if have&IPv4 != 0 {
			h.V4 = netip.AddrFrom4([4]byte{10, 77, 0, byte(i + 1)})
			h.Run("ip", "addr", "add", h.V4.String()+"/24", "dev", "eth0")
		}
		if have&IPv6 != 0 {
			h.V6 = netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 15: byte(i + 1)})
			h.Run("ip", "addr", "add", h.V6.String()+"/64", "dev", "eth0", "nodad")
		}
		h.Run("ip", "link", "set", "eth0", "up")
		w.Hosts = append(w.Hosts, h)
	}
	return w
}

// NewHost creates an empty namespace.
func NewHost(t testing.TB) (*Host, error) {
	h := &Host{t: t}
	err := inNamespace(func() error { return unix.Unshare(unix.CLONE_NEWNET) }, func() (err error) {
		h.ns, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err == nil {
		t.Cleanup(func() { h.ns.Close() })
	}
	return h, err
}

// inNamespace calls f on a thread that enter has moved to another namespace. If the thread
// cannot return, it ends.
func inNamespace(enter, f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			// The main thread defines the namespace of the process. While this
			// goroutine keeps it, another one runs on another thread.
			err := inNamespace(enter, f)
			runtime.UnlockOSThread()
			result <- err
			return
		}
		own, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			result <- err
			return
		}
		defer own.Close()
		if err = enter(); err == nil {
			err = f()
		}
		if unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	return <-result
}

// In calls f in the namespace of the host.
func (h *Host) In(f func() error) error {
	return inNamespace(func() error { return unix.Setns(int(h.ns.Fd()), unix.CLONE_NEWNET) }, f)
}

// Start starts a process on the host.
func (h *Host) Start(cmd *exec.Cmd) error { return h.In(cmd.Start) }

// Path returns the path of the namespace for other processes.
func (h *Host) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.ns.Fd()) }

// Addr returns the IPv4 address of the host, or the IPv6 address if it has no IPv4 address.
func (h *Host) Addr() netip.Addr {
	if h.V4.IsValid() {
		return h.V4
	}
	return h.V6
}

// Run runs a command on the host and returns its output. An error ends the test.
func (h *Host) Run(name string, args ...string) string {
	h.t.Helper()
	out, err := h.Try("", name, args...)
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

// Try runs a command on the host with the given standard input.
func (h *Host) Try(input, name string, args ...string) (string, error) {
	var out strings.Builder
	cmd := exec.Command(name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &out
	err := h.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out.String())
	}
	return out.String(), nil
}
