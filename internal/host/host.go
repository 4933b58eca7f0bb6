// Package host identifies hosts, lists their addresses, and finds the cache of a process.
//
// A node calls [ID] and [Addrs] once, when it joins, and [Domain] for each communicator. Neither fails: they omit
// information that the system does not have. They may be called concurrently.
package host

import "strings"

// ID returns an identifier that is the same for all processes that share the loopback
// interface of this process, and different for all others:
//
//   - on Linux the boot ID of the machine and the network namespace: exact;
//   - on macOS the boot ID, on FreeBSD the UUID and name of the host or jail, on
//     Windows the ID of the installation and the name of the host: exact unless a
//     jail or container shares the interface of its host, or two copies of a
//     machine have the same ID and name;
//   - elsewhere, or if the system does not tell, "": the seed then uses the source
//     address of the node.
//
// Nodes of one host dial the loopback addresses of each other first. With a wrong match
// they find another NodeID there, or no listener, and try the next address. With a wrong
// mismatch they still reach each other, unless they listen on loopback alone.
func ID() string { return systemHost() }

// Machine returns the part of an ID that all containers of a machine have in common: on Linux
// the boot ID, elsewhere the whole ID.
func Machine(id string) string {
	if machine, _, ok := strings.Cut(id, "/net:["); ok {
		return machine
	}
	return id
}
