// Package launch recognizes how a process was started: by Slurm, Kubernetes, torchrun, MPICH or Intel
// MPI (PMI), or Open MPI. [Find] reads the variables of the environment and says which rank of which
// job this process is, and on which hosts the job runs.
//
// Find and the parsers are pure: environment in, answer out. They need no command of a launcher, such as scontrol. [PMIClient] talks to
// a process manager.
//
// Launchers start each other, so the variables of several can be present. Find takes the nearest:
//
//  1. Slurm, if this process is itself a task of a step (SLURM_TASK_PID is its process ID);
//  2. torchrun, then PMI (unless it is Slurm's own), then Open MPI, if their variables are complete;
//  3. Slurm, if this process is a descendant of a task; if its step has several, it precedes a launcher of one process;
//  4. Kubernetes.
//
// The choice depends only on which variables are present, so all ranks of a job choose alike: variables of the nearest launcher
// that contradict each other are an error, even if another launcher could be used.
//
// NEXAR_LAUNCHER names one launcher to use, or "none". NEXAR_RANK, NEXAR_WORLD and NEXAR_JOB overrule
// the rank, the size and the job that the launcher tells.
package launch

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/nexar-go/nexar/launch/internal/text"
)

// ErrLaunch is the error of variables that are incomplete or contradict each other.
var ErrLaunch = errors.New("unusable variables of a launcher")

// The launchers that [Find] knows, as values of [Process].Launcher and of NEXAR_LAUNCHER.
const (
	Slurm      = "slurm"
	Kubernetes = "kubernetes" // indexed Jobs, JobSets and LeaderWorkerSets
	Torchrun   = "torchrun"   // and whatever else sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
	PMI        = "pmi"        // mpiexec of MPICH and Intel MPI
	OpenMPI    = "openmpi"
)

// Values of NEXAR_LAUNCHER that are no launchers.
const (
	Auto = "auto" // the nearest launcher, as without NEXAR_LAUNCHER
	None = "none" // no launcher
)

// sizeMax limits the size of a world and the length of a node list.
const sizeMax = 1 << 20

// An Environment is what a process can see of its launcher.
type Environment struct {
	Vars     map[string]string // environment variables; an empty one counts as unset
	PID      int               // of this process
	Hostname string            // of this host
	Hosts    []byte            // the file /etc/hosts; Kubernetes writes the domain of a pod to it
}

// Here returns the environment of this process.
func Here() Environment {
	env := Environment{Vars: map[string]string{}, PID: os.Getpid()}
	for _, entry := range os.Environ() {
		if name, value, ok := strings.Cut(entry, "="); ok {
			env.Vars[name] = value
		}
	}
	env.Hostname, _ = os.Hostname() // Without a hostname or hosts file, Find says what it needs.
	if f, err := os.Open("/etc/hosts"); err == nil {
		env.Hosts, _ = io.ReadAll(io.LimitReader(f, hostsFileMax))
		f.Close()
	}
	return env
}

// A Finding says in one sentence why a launcher was recognized, or why not.
type Finding struct {
	Launcher string
	Found    bool // on the launcher that Find chose
	Text     string
}

// An answer is what the variables of one launcher say. A launcher whose variables are absent has only text.
type answer struct {
	process Process // has a Launcher if the variables are complete
	text    string
	err     error // the variables are present but unusable
	partial bool  // err says that variables are absent, so that another launcher can be nearer
	direct  bool  // this process is itself a task of the launcher
}

func absent(format string, args ...any) answer { return answer{text: fmt.Sprintf(format, args...)} }

func unusable(format string, args ...any) answer {
	return answer{err: fmt.Errorf(format, args...)}
}

func partial(format string, args ...any) answer {
	return answer{err: fmt.Errorf(format, args...), partial: true}
}

// Find returns this process as the nearest launcher describes it. The Launcher of the process is empty if
// there is no launcher. There is a finding for each launcher, in the
// order slurm, kubernetes, torchrun, pmi, openmpi.
//
// Only is the value of NEXAR_LAUNCHER. If it names a launcher, Find considers that one alone, and returns an error if its variables are absent.
//
// An error is an [ErrLaunch] that names the variable, its value, what was expected, and what to do.
func Find(env Environment, only string) (Process, []Finding, error) {
	r := &reader{vars: env.Vars}
	over := overrule{rank: r.optional("NEXAR_RANK", -1), size: r.optional("NEXAR_WORLD", 0), job: r.text("NEXAR_JOB")}
	if r.has("NEXAR_WORLD") && r.err == nil && (over.size == 0 || over.size > sizeMax) {
		r.err = fmt.Errorf("NEXAR_WORLD is %d: expected the number of ranks, from 1 to %d: correct or unset it", over.size, sizeMax)
	}
	if r.err != nil {
		return Process{}, nil, fmt.Errorf("%w: %w", ErrLaunch, r.err)
	}
	names := []string{Slurm, Kubernetes, Torchrun, PMI, OpenMPI}
	recognize := map[string]func(Environment, overrule) answer{
		Slurm: findSlurm, Kubernetes: findKubernetes, Torchrun: findTorchrun, PMI: findPMI, OpenMPI: findOpenMPI,
	}
	single := false
	switch only = cmp.Or(only, Auto); {
	case only == Auto:
	case only == None:
		recognize = nil
	case recognize[only] != nil:
		recognize, single = map[string]func(Environment, overrule) answer{only: recognize[only]}, true
	default:
		return Process{}, nil, fmt.Errorf("%w: NEXAR_LAUNCHER is %s: expected auto, none, %s",
			ErrLaunch, text.Quote(only), strings.Join(names, ", "))
	}
	answers := map[string]answer{}
	for name, f := range recognize {
		answers[name] = over.apply(f(env, over))
	}
	order := []string{Torchrun, PMI, OpenMPI, Slurm, Kubernetes}
	switch {
	case answers[Slurm].direct:
		order = append([]string{Slurm}, order...)
	case slurmPMI(r):
		order = []string{Torchrun, OpenMPI, Slurm, PMI, Kubernetes}
	}
	manySlurmTasks := answers[Slurm].process.Size > 1
	chosen := ""
	for _, name := range order {
		if manySlurmTasks && answers[name].process.Size == 1 {
			continue // It is left over from the shell of srun.
		}
		if a := answers[name]; chosen == "" && (a.process.Launcher != "" || a.err != nil && !a.partial) {
			chosen = name
		}
	}
	for _, name := range names { // Nothing is complete: the first that is incomplete is an error.
		if chosen == "" && answers[name].err != nil {
			chosen = name
		}
	}
	best := answers[chosen]
	if single && best.err == nil && best.process.Launcher == "" {
		best.err = fmt.Errorf("NEXAR_LAUNCHER is %s, but %s: start this process by that launcher, or unset NEXAR_LAUNCHER", only, answers[only].text)
	}
	findings := make([]Finding, 0, len(names))
	for _, name := range names {
		a, considered := answers[name]
		finding := Finding{Launcher: name, Text: a.text}
		switch {
		case !considered:
			finding.Text = fmt.Sprintf("not considered: NEXAR_LAUNCHER is %s", only)
		case a.err != nil:
			finding.Text = a.err.Error()
		case a.process.Launcher == "":
		case name != chosen:
			finding.Text = fmt.Sprintf("%s; not used, because %s is nearer", a.process, chosen)
		default:
			finding.Found, finding.Text = true, a.process.String()
		}
		findings = append(findings, finding)
	}
	if best.err != nil {
		err := fmt.Errorf("%w (%s): %w", ErrLaunch, cmp.Or(chosen, only), best.err)
		if !strings.Contains(best.err.Error(), "NEXAR_LAUNCHER") {
			err = fmt.Errorf("%w; NEXAR_LAUNCHER=none ignores all launchers", err)
		}
		return Process{}, findings, err
	}
	return best.process, findings, nil
}

// An overrule is what NEXAR variables say instead of the launcher.
type overrule struct {
	rank int // -1 if unset
	size int // 0 if unset
	job  string
}

// apply overrules the process of an answer and checks the result.
func (o overrule) apply(a answer) answer {
	p := &a.process
	if p.Launcher == "" || a.err != nil {
		a.process = Process{}
		return a
	}
	if a.err = p.check(); a.err == nil {
		if o.rank >= 0 {
			p.Rank = o.rank
		}
		p.Size = cmp.Or(o.size, p.Size)
		p.Job = cmp.Or(o.job, p.Job)
		if p.Rank >= p.Size {
			a.err = fmt.Errorf("the rank is %d, but the size is %d, with NEXAR_RANK %s and NEXAR_WORLD %s: ranks are below the size: "+
				"correct or unset these variables", p.Rank, p.Size, set(o.rank >= 0), set(o.size > 0))
		}
	}
	if a.err != nil {
		a.process = Process{}
	}
	return a
}

func set(is bool) string {
	if is {
		return "set"
	}
	return "unset"
}

// hostsFileMax is how much of the hosts file is read.
const hostsFileMax = 1 << 20

// domain returns the domain of a host from a hosts file, in which the line of the host has the name with
// and without its domain.
func domain(hosts []byte, hostname string) (string, bool) {
	if _, domain, ok := strings.Cut(hostname, "."); ok && domain != "" {
		return strings.TrimSuffix(domain, "."), true
	}
	hosts = hosts[:min(len(hosts), hostsFileMax)]
	for line := range bytes.Lines(hosts) {
		line, _, _ = bytes.Cut(line, []byte("#"))
		fields := bytes.Fields(line)
		for _, name := range fields[min(1, len(fields)):] {
			if rest, ok := strings.CutPrefix(string(name), hostname+"."); ok && hostname != "" {
				if rest = strings.TrimSuffix(rest, "."); rest != "" {
					return rest, true
				}
			}
		}
	}
	return "", false
}
