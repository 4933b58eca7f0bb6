package campaign

import (
	"fmt"
	"slices"

	"github.com/nexar-go/nexar/bench/results"
)

// A Setting is where the ranks are, and which systems are compared there.
type Setting struct {
	Name  string // "loopback-4"
	Title string
	Ranks int
	// Hosts is the number of hosts, each with as many of the ranks; 0 is this
	// machine as it is.
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
	// Local has all ranks in one process.
	Local bool
	// Want lists transports, separated by commas. Ranks of nexar must use one of them: a
	// version without it is not measured under this name.
	Want string
}

// Programs that can be started.
const (
	progNexar   = "nexar"
	progOpenMPI = "openmpi"
	progGloo    = "gloo"
	progTorch   = "torch"
	progRust    = "rust"
)

// Settings are all settings, in the order of the page.
func Settings() []Setting {
	var all []Setting
	for _, n := range []int{2, 4, 8} {
		all = append(all, sharedMemory(n))
	}
	for _, n := range []int{2, 4, 8} {
		all = append(all, loopback(n))
	}
	return append(all, onHosts(4, 1), onHosts(4, 2), oneProcess(4))
}

// Quick are the settings that show in two minutes whether everything works.
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
			return nil, fmt.Errorf("there is no setting %q; there are %q", name, Names())
		}
		found = append(found, Settings()[i])
	}
	return found, nil
}

// Names are those of all settings.
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

// withMessages adds messages between the first and the last rank, where the
// others are not in the way.
func withMessages(yes bool) []string {
	if yes {
		return append(collectives(), "send_recv")
	}
	return collectives()
}

// ours returns nexar for Go over some transports. Want is the expected transport, which ends in +tls if
// it is encrypted.
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

// memory returns the bound by the memory of the machine: all ranks, processes of their own, copy
// the vector once at the same time.
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

// yield lets ranks of Open MPI that wait give way to others. It does so by
// itself where it sees more ranks than cores; hosts that share the cores of one
// machine it takes for machines.
const yield = "mpi_yield_when_idle"

// onHosts has perHost ranks on each of the hosts.
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

// oneProcess has the ranks as goroutines or tasks. The Rust crate has no other
// way that its users could call; it talks over loopback even so. QUIC between
// processes stands beside it for that reason.
func oneProcess(n int) Setting {
	mem := ours("mem", "memory", "", "mem", false)
	mem.Local, mem.Env = true, nil // There is nothing to choose within a process.
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
