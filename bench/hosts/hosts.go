// Package hosts simulates hosts on one machine: network namespaces connected by a
// bridge, each with its own address and name.
//
// Most callers call [New], put [Network.Prefix] in front of a command to run it on a host, and
// call [Network.Close]. The package needs Linux, root, and the commands ip, nsenter and unshare.
//
// A process holds each namespace. When the process that called New ends, for any reason, its
// standard input closes, it exits, and the kernel removes the namespace, unless other processes
// still run in it. A Network may be used by several goroutines until it is closed.
package hosts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Interface is the network interface of every host, besides lo.
const Interface = "eth0"

// A Network is a set of hosts that are connected by a bridge.
type Network struct {
	bridge *holder
	hosts  []*holder
}

// A holder is a process that keeps namespaces alive by waiting in them.
type holder struct {
	cmd   *exec.Cmd
	stdin io.Closer // closing it makes the process exit
}

// Check returns an error if this machine cannot have hosts, or this process cannot make them.
func Check() error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("hosts need the network namespaces of Linux, and this is %s", runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return errors.New("hosts need network namespaces, which only root can make: run this as root")
	}
	for name, from := range map[string]string{"ip": "iproute2", "nsenter": "util-linux", "unshare": "util-linux"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("command %s not found: install the package %s", name, from)
		}
	}
	return nil
}

// New makes n hosts. It returns the error of [Check] on a machine that cannot have them.
func New(ctx context.Context, n int) (*Network, error) {
	if err := Check(); err != nil {
		return nil, err
	}
	w := new(Network)
	if err := w.build(ctx, n); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *Network) build(ctx context.Context, n int) (err error) {
	if w.bridge, err = hold("bridge"); err != nil {
		return err
	}
	if err := w.bridge.ip(ctx, "link", "add", "br0", "type", "bridge"); err != nil {
		return err
	}
	if err := w.bridge.ip(ctx, "link", "set", "br0", "up"); err != nil {
		return err
	}
	for i := range n {
		h, err := hold(fmt.Sprint("host", i+1))
		if err != nil {
			return err
		}
		w.hosts = append(w.hosts, h)
		if err := w.connect(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// connect connects host i to the bridge.
func (w *Network) connect(ctx context.Context, i int) error {
	h, port := w.hosts[i], fmt.Sprint("port", i+1)
	for _, step := range []struct {
		on   *holder
		args []string
	}{
		{w.bridge, []string{"link", "add", port, "type", "veth", "peer", "name", Interface, "netns", strconv.Itoa(h.cmd.Process.Pid)}},
		{w.bridge, []string{"link", "set", port, "master", "br0", "up"}},
		{h, []string{"link", "set", "lo", "up"}},
		{h, []string{"addr", "add", w.Addr(i) + "/24", "dev", Interface}},
		{h, []string{"link", "set", Interface, "up"}},
	} {
		if err := step.on.ip(ctx, step.args...); err != nil {
			return err
		}
	}
	return nil
}

// hold starts a process in new namespaces, and waits until it has printed that they are set up.
func hold(name string) (*holder, error) {
	const wait = `echo "$1" > /proc/sys/kernel/hostname && echo ready && read -r _`
	cmd := exec.Command("unshare", "--net", "--uts", "sh", "-c", wait, "sh", name)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	h := &holder{cmd, in}
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		h.end()
		return nil, fmt.Errorf("cannot make a namespace for %s: %w: %s", name, err, strings.TrimSpace(stderr.String()))
	}
	return h, nil
}

// end makes the process exit and waits for it.
func (h *holder) end() {
	h.stdin.Close()
	// The shell exits with status 1, since read has reached the end of its input.
	_ = h.cmd.Wait()
}

// prefix returns the command that runs another one in the namespaces of the holder.
func (h *holder) prefix() []string {
	return []string{"nsenter", "--target", strconv.Itoa(h.cmd.Process.Pid), "--net", "--uts", "--"}
}

func (h *holder) ip(ctx context.Context, args ...string) error {
	args = append(append(h.prefix(), "ip"), args...)
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Len returns the number of hosts.
func (w *Network) Len() int { return len(w.hosts) }

// Addr returns the address of a host on the bridge.
func (w *Network) Addr(host int) string { return fmt.Sprintf("10.77.1.%d", host+1) }

// Prefix returns the words to put in front of a command to run it on a host.
func (w *Network) Prefix(host int) []string { return w.hosts[host].prefix() }

// Pids returns the IDs of the processes that hold the bridge and the hosts.
func (w *Network) Pids() []int {
	var pids []int
	for _, h := range append([]*holder{w.bridge}, w.hosts...) {
		if h != nil {
			pids = append(pids, h.cmd.Process.Pid)
		}
	}
	return pids
}

// WriteAgent writes a script to dir and returns its path. Open MPI can use it in place of ssh:
// its arguments are the address of a host and a command, which it runs there.
func (w *Network) WriteAgent(dir string) (path string, err error) {
	var b strings.Builder
	b.WriteString("#!/bin/sh\n# mpirun calls this in place of ssh, with an address and a command.\nhost=$1\nshift\ncase $host in\n")
	for i := range w.hosts {
		fmt.Fprintf(&b, "%s) exec %s sh -c \"$*\" ;;\n", w.Addr(i), strings.Join(w.Prefix(i), " "))
	}
	b.WriteString("esac\necho \"unknown host $host\" >&2\nexit 1\n")
	path = filepath.Join(dir, "agent.sh")
	return path, os.WriteFile(path, []byte(b.String()), 0o755)
}

// Close removes the hosts and the bridge. It may be called several times.
func (w *Network) Close() {
	for _, h := range w.hosts {
		h.end()
	}
	w.hosts = nil
	if w.bridge != nil {
		w.bridge.end()
		w.bridge = nil
	}
}
