package campaign

import (
	"fmt"
	"slices"

	"github.com/nexar-go/nexar/bench/results"
)

// A Setting has the placement of the ranks and the systems to compare.
type Setting struct {
	Name  string // "loopback-4"
	Title string
	Ranks int
	// Hosts is the number of simulated hosts, each with the same number of ranks. 0 runs all
	// ranks on this machine without namespaces.
	Hosts   int
	Ops     []string
	Systems []System
}

// A System is a library in one configuration.
type System struct {
	results.System
	Program string   // a key of Programs
	Env     []string // for the ranks
	MCA     []string // for mpirun: names and values
	// Local runs all ranks in one process.
	Local bool
	// Want lists transports, separated by commas. Ranks of nexar fail unless they use one of
	// them, so that no other transport is measured under this name.
	Want string
}

// The keys of Programs.Path.
const (
	progNexar   = "nexar"
	progOpenMPI = "openmpi"
	progGloo    = "gloo"
	progTorch   = "torch"
	progRust    = "rust"
)

// Settings returns all settings, in the order of the page.
func Settings() []Setting {
	var all []Setting
	for _, n := range []int{2, 4, 8} {
		all = append(all, sharedMemory(n))
	}
	for _, n := range []int{64, 128} {
		all = append(all, manyRanks(n))
	}
	for _, n := range []int{2, 4, 8} {
		all = append(all, loopback(n))
	}
	return append(all, onHosts(4, 1), onHosts(4, 2), oneProcess(4))
}

// Quick returns the settings with four ranks, which check all programs in two minutes.
func Quick() []Setting {
	return slices.DeleteFunc(Settings(), func(s Setting) bool {
		return s.Ranks != 4
	})
}

// Find returns the settings with these names.
func Find(names []string) ([]Setting, error) {
	var found []Setting
	for _, name := range names {
		i := slices.IndexFunc(Settings(), func(s Setting) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown setting %q; the settings are %q", name, Names())
		}
		found = append(found, Settings()[i])
	}
	return found, nil
}

// Names returns the names of all settings.
func Names() []string {
	var names []string
	for _, s := range Settings() {
		names = append(names, s.Name)
	}
	return names
}

// collectives returns the operations that every system has.
func collectives() []string {
	return []string{"all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "barrier"}
}

// withMessages returns the collectives, and send_recv if yes: where the ranks between the first and
// the last do not take cores from both.
func withMessages(yes bool) []string {
	if yes {
		return append(collectives(), "send_recv")
	}
	return collectives()
}

// ours returns nexar for Go over transports, a value of NEXAR_TRANSPORTS. Want is System.Want;
// an encrypted transport ends in +tls.
func ours(name, label, transports, want string, encrypted bool) System {
	s := System{
		System:  results.System{Name: "nexar-" + name, Label: "nexar " + label, Ours: true, Encrypted: encrypted},
		Program: progNexar, Want: want,
		Env: []string{"NEXAR_TRANSPORTS=" + transports},
	}
	if !encrypted {
		s.Env = append(s.Env, "NEXAR_PLAIN_BULK=1")
	}
	return s
}

func openMPI(name, label string, mca ...string) System {
	return System{
		System:  results.System{Name: "openmpi-" + name, Label: "Open MPI, " + label},
		Program: progOpenMPI, MCA: append([]string{"pml", "ob1"}, mca...),
	}
}

func gloo() System {
	return System{System: results.System{Name: "gloo", Label: "Gloo, TCP"}, Program: progGloo}
}

func torch() System {
	return System{
		System:  results.System{Name: "torch", Label: "torch (Gloo), TCP"},
		Program: progTorch, Env: []string{"OMP_NUM_THREADS=1"},
	}
}

// memory returns the bound by the memory of the machine: all ranks, each a process, copy the vector
// once at the same time.
func memory() System {
	return System{
		System:  results.System{Name: "copy", Label: "one copy by each rank", Bound: true},
		Program: progNexar,
	}
}

func sharedMemory(n int) Setting {
	return Setting{
		Name: fmt.Sprint("shm-", n), Title: fmt.Sprintf("one host, shared memory, %d ranks", n),
		Ranks: n, Ops: withMessages(n == 2),
		Systems: []System{
			openMPI("shm", "shared memory", "btl", "self,vader"),
			ours("shm", "shared memory", "shm", "shm", false),
			memory(),
		},
	}
}

// manyRanks returns the setting with many more ranks than most machines have cores, in shared memory.
func manyRanks(n int) Setting {
	return Setting{
		Name: fmt.Sprint("shm-", n), Title: fmt.Sprintf("one host, shared memory, %d ranks", n),
		Ranks: n, Ops: []string{"all_reduce", "broadcast", "barrier"},
		Systems: []System{
			openMPI("shm", "shared memory", "btl", "self,vader", yield, "1"),
			ours("shm", "shared memory", "shm", "shm", false),
		},
	}
}

func loopback(n int) Setting {
	return Setting{
		Name: fmt.Sprint("loopback-", n), Title: fmt.Sprintf("one host, loopback, %d ranks", n),
		Ranks: n, Ops: withMessages(n == 2),
		Systems: []System{
			openMPI("tcp", "TCP", "btl", "self,tcp", "btl_tcp_if_include", "lo"),
			gloo(),
			torch(),
			ours("tcp", "TCP", "tcp", "quic+tcp", false),
			ours("tls", "TCP with TLS", "tcp", "quic+tcp+tls", true),
			ours("quic", "QUIC", "quic", "quic+tls", true),
		},
	}
}

// yield makes waiting ranks of Open MPI yield the processor. Open MPI sets it itself when it sees
// more ranks than cores, but not for simulated hosts, which share the cores of one machine.
const yield = "mpi_yield_when_idle"

// onHosts returns the setting with perHost ranks on each host.
func onHosts(hosts, perHost int) Setting {
	s := Setting{
		Name:  fmt.Sprintf("hosts-%dx%d", hosts, perHost),
		Title: fmt.Sprintf("%d hosts, %d ranks, %d on each", hosts, hosts*perHost, perHost),
		Ranks: hosts * perHost, Hosts: hosts, Ops: withMessages(perHost == 1),
		Systems: []System{
			openMPI("hosts", "TCP", "btl", "self,tcp", yield, "1"),
			gloo(),
			torch(),
			ours("tcp", "TCP", "tcp", "quic+tcp", false),
			ours("tls", "TCP with TLS", "tcp", "quic+tcp+tls", true),
			ours("quic", "QUIC", "quic", "quic+tls", true),
		},
	}
	if perHost > 1 {
		s.Systems = []System{
			openMPI("hosts", "shared memory and TCP", "btl", "self,vader,tcp", yield, "1"),
			gloo(),
			torch(),
			ours("shm-tcp", "shared memory and TCP", "shm,tcp", "mixed", false),
			ours("shm-tls", "shared memory and TLS", "shm,tcp", "mixed,mixed+tls", true),
			ours("quic", "QUIC", "quic", "quic+tls", true),
		}
	}
	return s
}

// oneProcess returns the setting with goroutines or tasks as ranks. The Rust crate has no other
// public way to connect ranks. It uses QUIC over loopback within the process, so nexar over QUIC
// between processes is measured beside it.
func oneProcess(n int) Setting {
	mem := ours("mem", "memory", "", "mem", false)
	mem.Local, mem.Env = true, nil // Ranks of one process have a single transport.
	return Setting{
		Name: fmt.Sprint("process-", n), Title: fmt.Sprintf("one process, %d ranks", n),
		Ranks: n, Ops: withMessages(true),
		Systems: []System{
			{System: results.System{Name: "rust", Label: "Rust nexar, one process", Encrypted: true}, Program: progRust, Local: true},
			mem,
			ours("quic", "QUIC, processes", "quic", "quic+tls", true),
			memory(),
		},
	}
}
