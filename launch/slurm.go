package launch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nexar-go/nexar/launch/internal/text"
)

// findSlurm recognizes tasks of a step of Slurm. It prefers the variables of the step (SLURM_STEP_…) to those
// of the job, which differ if the step uses a part of the job.
func findSlurm(env Environment, _ overrule) answer {
	r := &reader{vars: env.Vars}
	if !r.has("SLURM_JOB_ID") {
		return absent("SLURM_JOB_ID is not set")
	}
	job := r.number("SLURM_JOB_ID")
	if r.err != nil {
		return answer{err: r.err}
	}
	if !inStep(r) {
		return outsideStep(r, job)
	}
	sizeName := r.first("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
	tasksName := r.first("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
	nodesName := r.first("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST")
	r.need("SLURM_PROCID", sizeName, tasksName, nodesName, "SLURM_LOCALID")
	if !r.has("SLURMD_NODENAME") {
		r.need("SLURM_PROCID", "SLURM_NODEID")
	}
	p := Process{
		Launcher:  Slurm,
		Job:       fmt.Sprintf("%d.%s.%d", job, r.text("SLURM_STEP_ID"), r.optional("SLURM_RESTART_COUNT", 0)),
		Rank:      r.number("SLURM_PROCID"),
		Size:      r.number(sizeName),
		LocalRank: r.number("SLURM_LOCALID"),
		Host:      r.optional("SLURM_NODEID", -1),
	}
	if r.err != nil {
		return r.answer(Process{})
	}
	var err error
	if p.Hosts, err = ExpandNodes(r.text(nodesName)); err != nil {
		return unusable("%s: %w", nodesName, err)
	}
	if p.Tasks, err = TasksPerNode(r.text(tasksName)); err != nil {
		return unusable("%s: %w", tasksName, err)
	}
	if node := r.text("SLURMD_NODENAME"); node != "" {
		// In a step over several components of a heterogeneous job, the list is sorted by name, and SLURM_NODEID counts
		// the nodes by component.
		if p.Host = slices.Index(p.Hosts, node); p.Host < 0 {
			return unusable("SLURMD_NODENAME is %s, which is not in %s %s: expected one of them: if the variables of another step are left over, "+
				"as in a batch script that was submitted from within a step, start this process by srun", text.Quote(node), nodesName, text.Quote(r.text(nodesName)))
		}
	}
	sum := 0
	for _, n := range p.Tasks {
		sum += n
	}
	switch {
	case sum != p.Size:
		return unusable("%s is %d, but %s is %s, which is %d tasks: expected the same: start all processes by one srun",
			sizeName, p.Size, tasksName, text.Quote(r.text(tasksName)), sum)
	case len(p.Tasks) != len(p.Hosts):
		return unusable("%s has %d nodes, but %s has %d: expected as many: start all processes by one srun",
			nodesName, len(p.Hosts), tasksName, len(p.Tasks))
	case p.Host >= len(p.Hosts):
		return unusable("SLURM_NODEID is %d, but %s has %d nodes: expected a lower number: start all processes by one srun",
			p.Host, nodesName, len(p.Hosts))
	}
	p.LocalSize = p.Tasks[p.Host]
	first, _, _ := strings.Cut(r.text("SLURM_STEP_RESV_PORTS"), ",")
	first, _, _ = strings.Cut(first, "-")
	if port, ok := parseNumber(first); ok && port <= 65535 {
		p.Port = port
	}
	p.HasPMI = slurmPMI(r)
	return answer{process: p, direct: env.PID > 0 && r.text("SLURM_TASK_PID") == strconv.Itoa(env.PID)}
}

// slurmPMI reports whether the PMI variables are those of srun --mpi=pmi2 for this step, and not of mpiexec or of another job.
func slurmPMI(r *reader) bool {
	return r.has("PMI_FD") && r.text("PMI_JOBID") == r.text("SLURM_JOB_ID")+"."+r.text("SLURM_STEP_ID") && !r.has("MPI_LOCALRANKID")
}

// slurmStepMax is above the numbers of the steps of srun. Slurm gives higher ones to the batch script and to the shell of salloc.
const slurmStepMax = 1 << 30

// inStep reports whether this process belongs to a step other than the shell of salloc.
func inStep(r *reader) bool {
	step, ok := parseNumber(r.text("SLURM_STEP_ID"))
	return ok && step < slurmStepMax && r.has("SLURM_PROCID")
}

// outsideStep answers for a batch script or the shell of salloc, which are no ranks.
func outsideStep(r *reader, job int) answer {
	tasks := r.optional("SLURM_NTASKS", 0)
	if perNode, err := TasksPerNode(r.text("SLURM_TASKS_PER_NODE")); tasks == 0 && err == nil {
		for _, n := range perNode {
			tasks += min(n, sizeMax)
		}
	}
	if tasks <= 1 {
		return absent("this process belongs to job %d, but not to a step of srun", job)
	}
	what := "runs in the allocation"
	if r.text("ENVIRONMENT") == "BATCH" {
		what = "is the batch script"
	}
	return partial("this process %s of job %d with %d tasks, and is not one of them: start it by srun, or set NEXAR_LAUNCHER=none to run alone", what, job, tasks)
}
