package campaign

import (
	"fmt"
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
	schedule Schedule
	programs *Programs
	dir      string  // for files of this run
	network  network // nil without hosts
	agent    string  // replaces ssh for mpirun on hosts
	token    string  // of the nexar cluster on hosts
	root     bool    // whether the driver runs as root: mpirun needs a flag for that
}

// processes returns the processes of one run of a system. They end after the measurement.
func (l launch) processes(s System) []process {
	work := l.work(s)
	switch {
	case s.Program == progOpenMPI:
		return l.openMPI(s, work)
	case s.Program == progGloo:
		return l.byRank(s, append([]string{l.programs.Path[progGloo]}, work...))
	case s.Program == progTorch:
		return l.byRank(s, append([]string{l.programs.Path[progTorch], l.programs.TorchScript}, work...))
	case s.Local && s.Program == progRust:
		return l.oneProcess(s, l.programs.Path[progRust], work)
	case s.Local:
		return l.oneProcess(s, l.programs.Rank, work)
	default:
		return l.nexar(s, work)
	}
}

// work returns the flags that all programs take.
func (l launch) work(s System) []string {
	ops := l.setting.Ops
	if s.Bound {
		ops = []string{"copy_only"}
	}
	flags := []string{"-ops", strings.Join(ops, ","), "-points", l.schedule.points(), "-budget", fmt.Sprint(l.schedule.Budget)}
	if s.Want != "" {
		flags = append(flags, "-want", s.Want)
	}
	return flags
}

func (l launch) perHost() int { return l.setting.Ranks / l.setting.Hosts }

// oneProcess returns a process that runs all ranks.
func (l launch) oneProcess(s System, program string, work []string) []process {
	return []process{{args: append([]string{program, "-local", strconv.Itoa(l.setting.Ranks)}, work...), env: s.Env}}
}

// byRank returns a process for each rank. The ranks find each other through files in l.dir.
func (l launch) byRank(s System, command []string) []process {
	var all []process
	for rank := range l.setting.Ranks {
		var prefix []string
		iface := "lo"
		if l.setting.Hosts > 0 {
			prefix, iface = l.network.Prefix(rank/l.perHost()), hosts.Interface
		}
		all = append(all, process{
			args: slices.Concat(prefix, command, []string{
				"-rank", strconv.Itoa(rank), "-ranks", strconv.Itoa(l.setting.Ranks), "-store", l.dir, "-iface", iface,
			}),
			env: s.Env,
		})
	}
	return all
}

func (l launch) openMPI(s System, work []string) []process {
	args := []string{l.programs.Mpirun, "--oversubscribe", "-np", strconv.Itoa(l.setting.Ranks)}
	if l.root {
		args = append(args, "--allow-run-as-root")
	}
	for i := 0; i+1 < len(s.MCA); i += 2 {
		args = append(args, "--mca", s.MCA[i], s.MCA[i+1])
	}
	if l.setting.Hosts > 0 {
		var list []string
		for host := range l.setting.Hosts {
			list = append(list, fmt.Sprintf("%s:%d", l.network.Addr(host), l.perHost()))
		}
		args = slices.Concat(l.network.Prefix(0), args, []string{
			"--host", strings.Join(list, ","), "--map-by", "slot",
			"--mca", "plm_rsh_agent", l.agent,
			"--mca", "btl_tcp_if_include", hosts.Interface, "--mca", "oob_tcp_if_include", hosts.Interface,
		})
	}
	args = append(args, l.programs.Path[progOpenMPI])
	return []process{{args: append(args, work...), env: s.Env}}
}

// seedPort is the port of the seed, on the first host.
const seedPort = "7945"

// nexar returns one nexar run without hosts, else a seed and one nexar run for each host.
func (l launch) nexar(s System, work []string) []process {
	rank := append([]string{"--", l.programs.Rank}, work...)
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
	for _, word := range slices.Concat(p.env, args) {
		switch {
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
