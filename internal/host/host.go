// Package host tells hosts apart, and knows where they can be reached.
//
// A node calls ID and Addrs once, when it joins. Neither fails: what a system
// does not tell is left out. They may be called by several goroutines.
package host

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
)

// ID is the same for all processes that share this one's loopback
// interface, and for no others, as far as a system tells:
//
//   - on Linux it is the boot of the machine and the network namespace, which
//     is exact;
//   - on macOS it is the boot, on FreeBSD the UUID and name of the host or
//     jail, on Windows the id of the installation and the name of the host,
//     which are exact unless a jail or container shares the interface of its
//     host, or two copies of a machine share id and name;
//   - elsewhere it is the name of the host and the hardware addresses of its
//     interfaces, which differ when an interface has been added meanwhile.
//
// Nodes of one host try the loopback addresses of each other first. If that is
// wrong they find another NodeID there, or nobody, and go on; nodes that are
// wrongly on two hosts reach each other unless they listen on loopback alone.
func ID() string {
	if id := systemHost(); id != "" {
		return id
	}
	host, _ := os.Hostname() // Addresses alone tell hosts apart, too.
	interfaces, _ := net.Interfaces()
	return hostOf(host, interfaces)
}

// Machine is what the ids of all hosts of a machine have in common that have a
// network each, as containers have: on Linux its boot, elsewhere the id.
func Machine(id string) string {
	if machine, _, ok := strings.Cut(id, "/net:["); ok {
		return machine
	}
	return id
}

// hostOf names a host by what every system tells. It is empty if that is
// nothing; then the seed takes the address that it sees.
func hostOf(name string, interfaces []net.Interface) string {
	var addrs []string
	for _, i := range interfaces {
		if len(i.HardwareAddr) > 0 {
			addrs = append(addrs, i.HardwareAddr.String())
		}
	}
	if name == "" && len(addrs) == 0 {
		return ""
	}
	slices.Sort(addrs)
	sum := sha256.Sum256([]byte(strings.Join(addrs, " ")))
	return fmt.Sprintf("%s/%x", name, sum[:8])
}
