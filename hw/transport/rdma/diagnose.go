//go:build linux

package rdma

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"syscall"

	"github.com/nexar-go/nexar/hw/internal/verbs"
)

// lockedMin is the limit of locked memory below which Diagnose warns. The buffers of a link have about 2 MiB.
const lockedMin = 64 << 20

// Diagnose writes the RDMA devices of this host with their ports and addresses, and how to add missing parts.
// It reports whether a transport with cfg can start.
func Diagnose(w io.Writer, cfg Config) bool {
	names, err := verbs.Devices()
	switch {
	case verbs.Load() != nil:
		fmt.Fprintf(w, "rdma: %v\n", err)
		return false
	case err != nil || len(names) == 0:
		fmt.Fprintln(w, "rdma: no device")
		if err != nil {
			fmt.Fprintf(w, "  %v\n", err)
		}
		if _, err := os.Stat("/sys/class/infiniband_verbs"); err != nil {
			fmt.Fprintln(w, "  the kernel module ib_uverbs is not loaded: modprobe ib_uverbs")
		}
		fmt.Fprintln(w, "  software RDMA over a network interface: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev INTERFACE")
		return false
	}
	for _, name := range names {
		describe(w, name)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(8, &limit); err == nil && limit.Cur < lockedMin { // RLIMIT_MEMLOCK
		fmt.Fprintf(w, "rdma: the limit of locked memory is %d KiB: raise it to %d KiB or more (ulimit -l, LimitMEMLOCK of systemd)\n", limit.Cur>>10, lockedMin>>10)
	}
	dev, err := openDevice(cfg)
	if err != nil {
		fmt.Fprintf(w, "rdma: no device can be used: %v\n", err)
		return false
	}
	defer dev.close()
	k, err := newChunk(dev.pd, sendSlots)
	if err != nil {
		fmt.Fprintf(w, "rdma: %v\n", err)
		return false
	}
	k.close()
	gid := netip.AddrFrom16(dev.gid.GID).Unmap()
	fmt.Fprintf(w, "rdma: uses %s, port %d, GID %d (%v), MTU %d\n", dev.d.Name, dev.port.Number, dev.gid.Index, gid, dev.mtu)
	if dev.port.LinkLayer == verbs.LinkEthernet && gid.IsLinkLocalUnicast() {
		fmt.Fprintf(w, "rdma: GID %v is a link-local address, which no router forwards: for peers of other networks give the network interface of the port another address\n", gid)
	}
	return true
}

// describe writes the ports and addresses of a device.
func describe(w io.Writer, name string) {
	d, err := verbs.Open(name)
	if err != nil {
		fmt.Fprintf(w, "%s: %v; the user may lack the permission for /dev/infiniband\n", name, err)
		return
	}
	defer d.Close()
	windows := "memory windows"
	if !d.Windows() {
		windows = "no memory windows of type 2, so no remote writes"
	}
	fmt.Fprintf(w, "%s: %s\n", name, windows)
	for n := 1; n <= d.Ports(); n++ {
		p, err := d.Port(n)
		if err != nil {
			fmt.Fprintf(w, "  port %d: %v\n", n, err)
			continue
		}
		state, link := "down", "InfiniBand"
		if p.Active {
			state = "active"
		}
		if p.LinkLayer == verbs.LinkEthernet {
			link = "Ethernet"
		}
		fmt.Fprintf(w, "  port %d: %s, %s, MTU %d\n", n, state, link, p.MTU)
		for _, g := range d.GIDs(p) {
			kind := map[int]string{verbs.GIDInfiniBand: "InfiniBand", verbs.GIDRoCEv1: "RoCE v1", verbs.GIDRoCEv2: "RoCE v2"}[g.Kind]
			fmt.Fprintf(w, "    GID %d: %v, %s\n", g.Index, netip.AddrFrom16(g.GID).Unmap(), kind)
		}
	}
}
