package campaign

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/nexar-go/nexar/bench/hosts"
)

// A process is a command to start.
type process struct {
	args []string
	env  []string // added to the environment of the driver
}

// network is the part of [hosts.Network] that launch uses.
type network interface {
	Addr(host int) string
	Prefix(host int) []string
}

// A launch has the parameters of one start of a system.
type launch struct {
	setting  Setting
	work     []string // the flags that all programs take
	programs *Programs
	dir      string  // for files of this run
	network  network // nil without hosts
	agent    string  // replaces ssh for mpirun on hosts
	token    string  // of the nexar cluster on hosts
	root     bool    // whether the driver runs as root: mpirun needs a flag for that
}

// processes returns the processes of one turn of a system. They end after the measurement.
func (l launch) processes(s System) []process {
	switch s.Program {
	case progIntel, progMPICH:
		return l.hydra(s)
	case progOpenMPI:
		return l.openMPI(s)
	case progTorch:
		return l.byRank(s, l.programs.Path[progTorch], l.programs.TorchScript)
	case progGloo, progRust:
		return l.byRank(s, l.programs.Path[s.Program])
	default:
		return l.nexar(s)
	}
}

// inSession returns the words in front of a rank that give it a session of its own, and so, on Linux, an autogroup with the
// default weight: launchers differ in whether their ranks share one. The rank must not be the leader of its process group.
func inSession() []string {
	if runtime.GOOS != "linux" {
		return nil
	}
	return []string{"sh", "-c", `setsid "$@"; exit $?`, "sh"}
}

// rank returns the command of one rank.
func (l launch) rank(words ...string) []string { return slices.Concat(inSession(), words, l.work) }

func (l launch) perHost() int { return l.setting.Ranks / l.setting.Hosts }

// The network devices of one machine and of a host.
const loopbackDevice, hostDevice = "lo", hosts.Interface

// byRank returns a process for each rank. The ranks find each other through files in l.dir, or at rank 0.
func (l launch) byRank(s System, command ...string) []process {
	var all []process
	for rank := range l.setting.Ranks {
		var prefix []string
		device, first := loopbackDevice, "127.0.0.1"
		if l.setting.Hosts > 0 {
			prefix, device, first = l.network.Prefix(rank/l.perHost()), hostDevice, l.network.Addr(0)
		}
		all = append(all, process{
			args: slices.Concat(prefix, l.rank(command...), []string{
				"-rank", strconv.Itoa(rank), "-ranks", strconv.Itoa(l.setting.Ranks), "-store", l.dir, "-iface", device, "-first", first,
			}),
			env: s.Env,
		})
	}
	return all
}

// hydra returns mpiexec of MPICH or Intel MPI.
func (l launch) hydra(s System) []process {
	root := l.programs.Root[s.Program]
	args := []string{filepath.Join(root, "bin", "mpiexec.hydra"), "-n", strconv.Itoa(l.setting.Ranks)}
	if l.setting.Hosts > 0 {
		args = slices.Concat(l.network.Prefix(0), args, []string{
			"-launcher", "rsh", "-launcher-exec", l.agent, "-hosts", l.hostList(), "-iface", hostDevice,
		})
	}
	env := slices.Clone(s.Env)
	if s.Program == progIntel { // as its script vars.sh does
		lib := filepath.Join(root, "lib")
		env = append(env, "I_MPI_ROOT="+root, "LD_LIBRARY_PATH="+lib, "FI_PROVIDER_PATH="+lib)
	}
	return []process{{args: slices.Concat(args, s.Flags, l.rank(l.programs.Path[s.Program])), env: env}}
}

// hostList returns the hosts and the number of ranks on each.
func (l launch) hostList() string {
	var list []string
	for host := range l.setting.Hosts {
		list = append(list, fmt.Sprintf("%s:%d", l.network.Addr(host), l.perHost()))
	}
	return strings.Join(list, ",")
}

func (l launch) openMPI(s System) []process {
	args := []string{filepath.Join(l.programs.Root[s.Program], "bin", "mpirun"), "-np", strconv.Itoa(l.setting.Ranks)}
	if l.root {
		args = append(args, "--allow-run-as-root")
	}
	args = append(args, s.Flags...)
	if l.setting.Hosts > 0 {
		args = slices.Concat(l.network.Prefix(0), args, []string{
			"--host", l.hostList(), "--map-by", "slot", "--prtemca", "plm_ssh_agent", l.agent, "--prtemca", "prte_if_include", hostDevice,
		})
	}
	return []process{{args: append(args, l.rank(l.programs.Path[s.Program])...), env: s.Env}}
}

// seedPort is the port of the seed, on the first host.
const seedPort = "7945"

// nexar returns one nexar run without hosts, else a seed and one nexar run for each host.
func (l launch) nexar(s System) []process {
	rank := append([]string{"--"}, l.rank(l.programs.Rank, "-want", s.Want)...)
	if l.setting.Hosts == 0 {
		run := []string{l.programs.Path[progNexar], "run", "--no-prefix", "-n", strconv.Itoa(l.setting.Ranks)}
		return []process{{args: append(run, rank...), env: s.Env}}
	}
	world, seed := strconv.Itoa(l.setting.Ranks), l.network.Addr(0)+":"+seedPort
	env := append(slices.Clone(s.Env), "NEXAR_CLUSTER_TOKEN="+l.token)
	all := []process{{
		args: append(l.network.Prefix(0), l.programs.Path[progNexar], "seed", "--listen", seed, "--world", world),
		env:  env,
	}}
	for host := range l.setting.Hosts {
		run := append(l.network.Prefix(host), l.programs.Path[progNexar], "run", "--no-prefix", "-n", strconv.Itoa(l.perHost()),
			"--seed", seed, "--world", world, "--first-rank", strconv.Itoa(host*l.perHost()))
		all = append(all, process{args: append(run, rank...), env: env})
	}
	return all
}

// cut removes a prefix from words.
func cut(words, prefix []string) (rest []string, ok bool) {
	if len(words) < len(prefix) || !slices.Equal(words[:len(prefix)], prefix) {
		return words, false
	}
	return words[len(prefix):], true
}

// readable formats the command for the page, without folders of this machine and without the token.
func (l launch) readable(p process) string {
	var words []string
	args := p.args
	for host := range l.setting.Hosts {
		if rest, ok := cut(args, l.network.Prefix(host)); ok {
			words = append(words, fmt.Sprintf("[host%d]", host+1))
			args = rest
			break
		}
	}
	if i := slices.Index(args, "sh"); i >= 0 { // the start in a session of its own
		args = append(slices.Clone(args[:i]), args[i+len(inSession()):]...)
	}
	for _, word := range slices.Concat(p.env, args) {
		switch {
		case strings.Contains(word, "=/") && slices.Contains(p.env, word): // the folders of vars.sh
			continue
		case l.dir != "" && strings.HasPrefix(word, l.dir):
			word = "$DIR" + strings.TrimPrefix(word, l.dir)
		case strings.HasPrefix(word, "/"):
			word = word[strings.LastIndexByte(word, '/')+1:]
		case strings.HasPrefix(word, "NEXAR_CLUSTER_TOKEN="):
			word = "NEXAR_CLUSTER_TOKEN=$(nexar token)"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}
