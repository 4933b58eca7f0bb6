package campaign

import (
	"fmt"
	"slices"

	"github.com/nexar-go/nexar/bench/results"
)

// A Setting has the placement of the ranks and the systems to compare.
type Setting struct {
	Name  string // "tcp-4"
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
	Flags   []string // for mpirun
	// Want lists transports, separated by commas. Ranks of nexar fail unless they use one of
	// them, so that no other transport is measured under this name.
	Want string
}

// The keys of Programs.Path.
const (
	progNexar   = "nexar"
	progIntel   = "impi"
	progOpenMPI = "openmpi"
	progMPICH   = "mpich"
	progGloo    = "gloo"
	progTorch   = "torch"
	progRust    = "rust"
)

// Settings returns all settings, in the order of the page, for a machine with a number of processors.
func Settings(processors int) []Setting {
	return []Setting{
		sharedMemory(2, processors), sharedMemory(4, processors),
		overNetwork(2, 0, processors), overNetwork(4, 0, processors), overNetwork(4, 4, processors),
	}
}

// Find returns the settings with these names.
func Find(settings []Setting, names []string) ([]Setting, error) {
	var found []Setting
	for _, name := range names {
		i := slices.IndexFunc(settings, func(s Setting) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown setting %q; the settings are %q", name, Names(settings))
		}
		found = append(found, settings[i])
	}
	return found, nil
}

// Names returns the names of settings.
func Names(settings []Setting) []string {
	var names []string
	for _, s := range settings {
		names = append(names, s.Name)
	}
	return names
}

// operations returns the operations that every system has.
func operations() []string {
	return []string{"send_recv", "all_reduce", "broadcast", "all_gather", "all_to_all", "reduce_scatter", "barrier"}
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

// mpis returns the three MPI libraries. Ranks that have a processor each spin, others yield the processor while they wait.
func mpis(intel, open, mpich System, crowded bool) []System {
	intel.System, intel.Program = results.System{Name: progIntel, Label: "Intel MPI"}, progIntel
	open.System, open.Program = results.System{Name: progOpenMPI, Label: "Open MPI"}, progOpenMPI
	mpich.System, mpich.Program = results.System{Name: progMPICH, Label: "MPICH"}, progMPICH
	open.Flags = append(open.Flags, "--mca", "pml", "ob1")
	if crowded {
		intel.Env = append(intel.Env, "I_MPI_WAIT_MODE=1")
		open.Flags = append(open.Flags, "--oversubscribe", "--mca", "mpi_yield_when_idle", "1")
		mpich.Env = append(mpich.Env, "MPIR_CVAR_POLLS_BEFORE_YIELD=1")
	} else {
		mpich.Env = append(mpich.Env, "MPIR_CVAR_POLLS_BEFORE_YIELD=0")
	}
	return []System{intel, open, mpich}
}

func sharedMemory(n, processors int) Setting {
	return Setting{
		Name: fmt.Sprint("shm-", n), Title: fmt.Sprintf("shared memory, %d ranks", n),
		Ranks: n, Ops: operations(),
		Systems: append(mpis(
			System{Env: []string{"I_MPI_FABRICS=shm"}},
			System{Flags: []string{"--mca", "btl", "self,sm"}},
			System{},
			n > processors),
			ours("shm", "shared memory", "shm", "shm", false)),
	}
}

// overNetwork returns the setting with n ranks over loopback, or each on one of n hosts.
func overNetwork(n, hosts, processors int) Setting {
	s := Setting{
		Name: fmt.Sprint("tcp-", n), Title: fmt.Sprintf("loopback, %d ranks", n),
		Ranks: n, Hosts: hosts, Ops: operations(),
	}
	device := loopbackDevice
	if hosts > 0 {
		s.Name, s.Title, device = fmt.Sprint("hosts-", n), fmt.Sprintf("%d simulated hosts", n), hostDevice
	}
	s.Systems = append(mpis(
		System{Env: []string{"I_MPI_FABRICS=ofi", "FI_PROVIDER=tcp", "FI_TCP_IFACE=" + device}},
		System{Flags: []string{"--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", device}},
		System{Env: []string{"MPIR_CVAR_NOLOCAL=1", "MPIR_CVAR_CH4_NETMOD=ofi", "FI_PROVIDER=tcp", "FI_TCP_IFACE=" + device}},
		n > processors),
		System{System: results.System{Name: progGloo, Label: "Gloo"}, Program: progGloo},
		System{System: results.System{Name: progTorch, Label: "torch (Gloo)"}, Program: progTorch, Env: []string{"OMP_NUM_THREADS=1"}},
		System{System: results.System{Name: progRust, Label: "nexar (Rust), QUIC", Encrypted: true}, Program: progRust},
		ours("tcp", "TCP", "tcp", "tcp", false),
		ours("tls", "TCP with TLS", "tcp", "tcp+tls", true),
		ours("quic", "QUIC", "quic", "quic+tls", true),
	)
	return s
}
