package campaign

import (
	"fmt"
	"path/filepath"
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

// rank returns the command of one rank.
func (l launch) rank(words ...string) []string { return slices.Concat(words, l.work) }

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
	env := slices.Concat(s.Env, l.stay())
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
	return []process{{args: append(args, l.rank(l.programs.Path[s.Program])...), env: slices.Concat(s.Env, l.stay())}}
}

// stay returns the variable that keeps the ranks of a launcher in its session.
func (l launch) stay() []string {
	if l.programs.Session == "" {
		return nil
	}
	return []string{"LD_PRELOAD=" + l.programs.Session}
}

// together returns one process that starts all. It ends when all have ended or one has failed.
func together(all []process) process {
	if len(all) == 1 {
		return all[0]
	}
	var script strings.Builder
	script.WriteString("trap 'exit 1' TERM\n")
	for _, p := range all {
		script.WriteString("{ env")
		for _, word := range slices.Concat(p.env, p.args) {
			script.WriteString(" '" + strings.ReplaceAll(word, "'", `'\''`) + "'")
		}
		script.WriteString(" || kill $$; } &\n")
	}
	script.WriteString("wait\n")
	return process{args: []string{"sh", "-c", script.String()}}
}

// seedPort is the port of the seed, on the first host.
const seedPort = "7945"

// nexar returns one nexar run without hosts, else a seed and the ranks: all in one session.
func (l launch) nexar(s System) []process {
	rank := l.rank(l.programs.Rank, "-want", s.Want)
	if l.setting.Hosts == 0 {
		run := []string{l.programs.Path[progNexar], "run", "--no-prefix", "-n", strconv.Itoa(l.setting.Ranks), "--"}
		return []process{{args: append(run, rank...), env: s.Env}}
	}
	seed := l.network.Addr(0) + ":" + seedPort
	env := append(slices.Clone(s.Env), "NEXAR_CLUSTER_TOKEN="+l.token, "NEXAR_SEEDS="+seed)
	all := []process{{
		args: append(l.network.Prefix(0), l.programs.Path[progNexar], "seed", "--listen", seed, "--world", strconv.Itoa(l.setting.Ranks)),
		env:  env,
	}}
	for i := range l.setting.Ranks {
		all = append(all, process{args: slices.Concat(l.network.Prefix(i/l.perHost()), rank), env: append(slices.Clone(env), "NEXAR_RANK="+strconv.Itoa(i))})
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
	for _, word := range slices.Concat(p.env, args) {
		switch {
		case strings.Contains(word, "=/") && slices.Contains(p.env, word): // the folders of vars.sh, and the session
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
