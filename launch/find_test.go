package launch_test

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/launch"
)

// environment makes an Environment from lines NAME=VALUE.
func environment(lines ...string) launch.Environment {
	env := launch.Environment{Vars: map[string]string{}, PID: 4711, Hostname: "h"}
	for _, text := range lines {
		for line := range strings.Lines(text) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
				env.Vars[name] = value
			}
		}
	}
	return env
}

// Variables as the launchers set them for one rank; other ranks change a few.
const (
	// srun -N 3 -n 6 of Slurm 22.05 within sbatch.
	slurmTask = `SLURM_JOB_ID=12
		SLURM_JOB_NODELIST=n[1-4]
		SLURM_NTASKS=6
		SLURM_TASKS_PER_NODE=2(x4)
		SLURM_STEP_ID=0
		SLURM_STEP_NUM_TASKS=6
		SLURM_STEP_NODELIST=n[1-3]
		SLURM_STEP_TASKS_PER_NODE=4,1(x2)
		SLURM_PROCID=4
		SLURM_LOCALID=0
		SLURM_NODEID=1
		SLURMD_NODENAME=n2
		SLURM_TASK_PID=4711`
	// The script of sbatch -N 2 -n 8 of Slurm 22.05.
	slurmBatch = `ENVIRONMENT=BATCH
		SLURM_JOB_ID=12
		SLURM_JOB_NODELIST=n[1-2]
		SLURM_NTASKS=8
		SLURM_TASKS_PER_NODE=4(x2)
		SLURM_PROCID=0
		SLURM_LOCALID=0
		SLURM_NODEID=0
		SLURMD_NODENAME=n1
		SLURM_TASK_PID=4711`
	// srun --het-group=0,1 --mpi=pmi2 of Slurm 22.05: component 0 has 2 tasks on n3, component 1 has 2 and 1 on n[1-2].
	slurmHet = `SLURM_HET_SIZE=2
		SLURM_JOB_ID=4
		SLURM_JOB_ID_HET_GROUP_0=4
		SLURM_JOB_ID_HET_GROUP_1=5
		SLURM_JOB_ID_PACK_GROUP_0=4
		SLURM_JOB_ID_PACK_GROUP_1=5
		SLURM_JOB_NODELIST=n[1-3]
		SLURM_JOB_NODELIST_HET_GROUP_0=n3
		SLURM_JOB_NODELIST_HET_GROUP_1=n[1-2]
		SLURM_NTASKS=5
		SLURM_STEP_ID=1
		SLURM_STEP_NODELIST=n[1-3]
		SLURM_STEP_NUM_NODES=3
		SLURM_STEP_NUM_TASKS=5
		SLURM_STEP_TASKS_PER_NODE=2,1,2
		SLURM_STEP_RESV_PORTS=12017-12022
		SLURM_PROCID=1
		SLURM_LOCALID=1
		SLURM_NODEID=0
		SLURMD_NODENAME=n3
		SLURM_TASK_PID=4711
		PMI_FD=13
		PMI_JOBID=4.1
		PMI_RANK=1
		PMI_SIZE=5`
	// torchrun --nnodes=2 --nproc-per-node=2 of PyTorch 2.
	torchrun = `RANK=3
		WORLD_SIZE=4
		LOCAL_RANK=1
		LOCAL_WORLD_SIZE=2
		GROUP_RANK=1
		GROUP_WORLD_SIZE=2
		ROLE_RANK=3
		ROLE_WORLD_SIZE=4
		ROLE_NAME=default
		MASTER_ADDR=h1
		MASTER_PORT=29500
		TORCHELASTIC_RUN_ID=none
		TORCHELASTIC_RESTART_COUNT=0
		TORCHELASTIC_MAX_RESTARTS=3`
	// mpiexec -n 2 of MPICH 5.0.2.
	mpich = `PMI_FD=11
		PMI_RANK=1
		PMI_SIZE=2
		PMI_HOSTNAME=h
		MPI_LOCALNRANKS=2
		MPI_LOCALRANKID=1
		HYDI_CONTROL_FD=7`
	// mpiexec -n 2 of Intel MPI 2021.
	intelMPI = `I_MPI_HYDRA_UUID=914c0000-905b-dfa3-6961-06000d7bb97a
		MPI_LOCALNRANKS=2
		MPI_LOCALRANKID=1
		PMI_FD=11
		PMI_RANK=1
		PMI_SIZE=2`
	// mpirun -n 2 of Open MPI 5.0.11.
	openMPI = `OMPI_COMM_WORLD_RANK=1
		OMPI_COMM_WORLD_SIZE=2
		OMPI_COMM_WORLD_LOCAL_RANK=1
		OMPI_COMM_WORLD_LOCAL_SIZE=2
		OMPI_COMM_WORLD_NODE_RANK=1
		PMIX_RANK=1
		PMIX_NAMESPACE=prterun-h-27277@1`
)

func TestFind(t *testing.T) {
	pod := func(env launch.Environment, hostname, hosts string) launch.Environment {
		env.Hostname, env.Hosts = hostname, []byte(hosts)
		return env
	}
	slurm := launch.Process{
		Launcher: launch.Slurm, Job: "12.0.0", Rank: 4, Size: 6, LocalRank: 0, LocalSize: 1,
		Hosts: []string{"n1", "n2", "n3"}, Tasks: []int{4, 1, 1}, Host: 1,
	}
	torch := launch.Process{
		Launcher: launch.Torchrun, Job: "h1:29500/none", Rank: 3, Size: 4, LocalRank: 1, LocalSize: 2, Hosts: []string{"h1"}, Host: 1,
	}
	pmi := launch.Process{Launcher: launch.PMI, Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, Host: -1, HasPMI: true}
	ompi := launch.Process{Launcher: launch.OpenMPI, Job: "prterun-h-27277@1", Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, Host: -1}
	with := func(p launch.Process, change func(*launch.Process)) launch.Process {
		change(&p)
		return p
	}
	pods := []string{"train-0.svc.ml.svc.cluster.local", "train-1.svc.ml.svc.cluster.local", "train-2.svc.ml.svc.cluster.local"}
	for _, test := range []struct {
		name string
		env  launch.Environment
		only string
		want launch.Process
	}{
		{"nothing", environment(), "", launch.Process{}},
		{"slurm", environment(slurmTask), "", slurm},
		{"slurm, a step that was requeued", environment(slurmTask, "SLURM_RESTART_COUNT=2"), "", with(slurm, func(p *launch.Process) { p.Job = "12.0.2" })},
		{"slurm with reserved ports", environment(slurmTask, "SLURM_STEP_RESV_PORTS=12003-12005,12008"), "", with(slurm, func(p *launch.Process) { p.Port = 12003 })},
		{"slurm with mpi_pmi2", environment(slurmTask, "PMI_FD=6\nPMI_JOBID=12.0\nPMI_RANK=4\nPMI_SIZE=6"), "", with(slurm, func(p *launch.Process) { p.HasPMI = true })},
		{"slurm with variables of another PMI", environment(slurmTask, "PMI_FD=6\nPMI_JOBID=11.0\nPMI_RANK=4\nPMI_SIZE=6"), "", slurm},
		{"slurm with variables of another torchrun", environment(slurmTask, torchrun), "", slurm},
		{"slurm, heterogeneous", environment(slurmHet), "", launch.Process{
			Launcher: launch.Slurm, Job: "4.1.0", Rank: 1, Size: 5, LocalRank: 1, LocalSize: 2,
			Hosts: []string{"n1", "n2", "n3"}, Tasks: []int{2, 1, 2}, Host: 2, Port: 12017, HasPMI: true,
		}},
		{"slurm, one component", environment(slurmHet, "SLURM_STEP_NODELIST=n3\nSLURM_STEP_NUM_TASKS=2\nSLURM_STEP_TASKS_PER_NODE=2\nPMI_FD="), "", launch.Process{
			Launcher: launch.Slurm, Job: "4.1.0", Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, Hosts: []string{"n3"}, Tasks: []int{2}, Port: 12017,
		}},
		{"slurm without the name of the node", environment(slurmTask, "SLURMD_NODENAME="), "", slurm},
		{"a script of srun with mpi_pmi2", environment(slurmHet, "SLURM_TASK_PID=4710"), "", launch.Process{
			Launcher: launch.Slurm, Job: "4.1.0", Rank: 1, Size: 5, LocalRank: 1, LocalSize: 2,
			Hosts: []string{"n1", "n2", "n3"}, Tasks: []int{2, 1, 2}, Host: 2, Port: 12017, HasPMI: true,
		}},
		{"mpich, whose proxies srun with mpi_pmi2 started", environment(slurmTask, "SLURM_TASK_PID=4710\nPMI_JOBID=12.0", mpich), "", pmi},
		{"torchrun by srun", environment(slurmTask, torchrun, "SLURM_TASK_PID=4710"), "", torch},
		{"torchrun by srun, overruled", environment(slurmTask, torchrun, "SLURM_TASK_PID=4710"), launch.Slurm, slurm},
		{"mpiexec in a batch script", environment(slurmBatch, "SLURM_TASK_PID=4700", mpich), "", pmi},
		{"a script of srun", environment(slurmTask, "SLURM_TASK_PID=4710"), "", slurm},
		{"a script of srun with incomplete variables of torchrun", environment(slurmTask, "SLURM_TASK_PID=4710\nRANK=1"), "", slurm},
		{"a batch script of one task", environment(slurmBatch, "SLURM_NTASKS=1\nSLURM_TASKS_PER_NODE=1"), "", launch.Process{}},
		{"a script of srun with variables of one process", environment(slurmTask, "SLURM_TASK_PID=4710\nRANK=0\nWORLD_SIZE=1\nMASTER_ADDR=h\nMASTER_PORT=1"), "", slurm},
		{"torchrun", environment(torchrun), "", torch},
		{"torchrun on one host", environment(torchrun, "LOCAL_WORLD_SIZE=4\nLOCAL_RANK=3\nGROUP_RANK=0"), "", with(torch, func(p *launch.Process) {
			p.Job, p.LocalRank, p.LocalSize, p.Host = "h1:29500/none.0", 3, 4, 0
		})},
		{"torchrun on one host after a restart", environment(torchrun, "LOCAL_WORLD_SIZE=4\nLOCAL_RANK=3\nGROUP_RANK=0\nTORCHELASTIC_RESTART_COUNT=1"), "",
			with(torch, func(p *launch.Process) { p.Job, p.LocalRank, p.LocalSize, p.Host = "h1:29500/none.1", 3, 4, 0 })},
		{"torchrun after a restart, which only some hosts count", environment(torchrun, "TORCHELASTIC_RESTART_COUNT=1"), "", torch},
		{"torchrun in a pod", environment(torchrun, "JOB_COMPLETION_INDEX=1"), "", torch},
		{"PyTorchJob, without local ranks", environment("RANK=2\nWORLD_SIZE=3\nMASTER_ADDR=m\nMASTER_PORT=23456"), "",
			launch.Process{Launcher: launch.Torchrun, Job: "m:23456/", Rank: 2, Size: 3, Hosts: []string{"m"}, Host: 2}},
		{"torchrun of one process", environment(torchrun, "RANK=0\nWORLD_SIZE=1\nLOCAL_RANK=0\nLOCAL_WORLD_SIZE=1\nGROUP_RANK=0"), "",
			with(torch, func(p *launch.Process) {
				p.Job, p.Rank, p.Size, p.LocalRank, p.LocalSize, p.Host = "h1:29500/none.0", 0, 1, 0, 1, 0
			})},
		{"RANK of one process", environment("RANK=0\nWORLD_SIZE=1"), "", launch.Process{Launcher: launch.Torchrun, Size: 1, LocalSize: 1, Host: -1}},
		{"srun of one task", environment(slurmTask, torchrun, `SLURM_STEP_NUM_TASKS=1
			SLURM_STEP_NODELIST=n2
			SLURM_STEP_TASKS_PER_NODE=1
			SLURM_PROCID=0`), "", launch.Process{
			Launcher: launch.Slurm, Job: "12.0.0", Size: 1, LocalSize: 1, Hosts: []string{"n2"}, Tasks: []int{1},
		}},
		{"WORLD_SIZE of 1", environment("WORLD_SIZE=1"), "", launch.Process{}},
		{"mpich", environment(mpich), "", pmi},
		{"intel mpi", environment(intelMPI), "", with(pmi, func(p *launch.Process) { p.Job = "914c0000-905b-dfa3-6961-06000d7bb97a" })},
		{"mpich alone", environment(mpich, "PMI_RANK=0\nPMI_SIZE=1\nMPI_LOCALNRANKS=1\nMPI_LOCALRANKID=0"), "",
			with(pmi, func(p *launch.Process) { p.Rank, p.Size, p.LocalRank, p.LocalSize = 0, 1, 0, 1 })},
		{"open mpi", environment(openMPI), launch.Auto, ompi},
		{"open mpi in a pod", environment(openMPI, "JOB_COMPLETION_INDEX=1"), "", ompi},
		{"open mpi, none wanted", environment(openMPI), launch.None, launch.Process{}},
		{"overruled", environment(openMPI, "NEXAR_RANK=2\nNEXAR_WORLD=3\nNEXAR_JOB=j"), "", with(ompi, func(p *launch.Process) { p.Rank, p.Size, p.Job = 2, 3, "j" })},
		{"NEXAR_WORLD is no launcher", environment("NEXAR_WORLD=3"), "", launch.Process{}},
		{"indexed job", pod(environment("JOB_COMPLETION_INDEX=2\nNEXAR_WORLD=3"), "train-2", "# kubelet\n127.0.0.1\tlocalhost\n10.0.0.5\ttrain-2.svc.ml.svc.cluster.local\ttrain-2\n"), "",
			launch.Process{Launcher: launch.Kubernetes, Job: "train.svc.ml.svc.cluster.local", Rank: 2, Size: 3, LocalSize: 1, Hosts: pods, Host: 2}},
		{"indexed job, hostname with domain", pod(environment("JOB_COMPLETION_INDEX=2\nNEXAR_WORLD=3"), pods[2], ""), "",
			launch.Process{Launcher: launch.Kubernetes, Job: "train.svc.ml.svc.cluster.local", Rank: 2, Size: 3, LocalSize: 1, Hosts: pods, Host: 2}},
		{"jobset", pod(environment("JOB_COMPLETION_INDEX=1\nNEXAR_WORLD=4\nNEXAR_JOBSET_JOBS=2"), "set-worker-1-1", "fd00::5 set-worker-1-1.set.ml.svc.cluster.local set-worker-1-1"), "",
			launch.Process{
				Launcher: launch.Kubernetes, Job: "set-worker.set.ml.svc.cluster.local", Rank: 3, Size: 4, LocalSize: 1, Host: 3,
				Hosts: []string{
					"set-worker-0-0.set.ml.svc.cluster.local", "set-worker-0-1.set.ml.svc.cluster.local",
					"set-worker-1-0.set.ml.svc.cluster.local", "set-worker-1-1.set.ml.svc.cluster.local",
				},
			}},
		{"leaderworkerset", environment("LWS_LEADER_ADDRESS=llm-1.llm.ml\nLWS_GROUP_SIZE=3\nLWS_WORKER_INDEX=2"), "",
			launch.Process{Launcher: launch.Kubernetes, Job: "llm-1.llm.ml", Rank: 2, Size: 3, LocalSize: 1, Hosts: []string{"llm-1.llm.ml", "llm-1-1.llm.ml", "llm-1-2.llm.ml"}, Host: 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, findings, err := launch.Find(test.env, test.only)
			if err != nil || !reflect.DeepEqual(p, test.want) {
				t.Errorf("Find = %+v, %v\nwant   %+v", p, err, test.want)
			}
			var names, found []string
			for _, f := range findings {
				names = append(names, f.Launcher)
				if f.Found {
					found = append(found, f.Launcher)
				}
				if f.Text == "" {
					t.Errorf("the finding of %s has no text", f.Launcher)
				}
			}
			if want := []string{launch.Slurm, launch.Kubernetes, launch.Torchrun, launch.PMI, launch.OpenMPI}; !slices.Equal(names, want) {
				t.Errorf("findings of %v, want %v", names, want)
			}
			if got := strings.Join(found, " "); got != test.want.Launcher {
				t.Errorf("findings say that %q was found, want %q", got, test.want.Launcher)
			}
		})
	}
}

func TestFindErrors(t *testing.T) {
	for _, test := range []struct {
		name string
		env  launch.Environment
		only string
		want string
	}{
		{"an unknown launcher", environment(), "lsf", `NEXAR_LAUNCHER is "lsf": expected auto, none, slurm, kubernetes, torchrun, pmi, openmpi`},
		{"a launcher that is absent", environment(mpich), launch.Slurm, "NEXAR_LAUNCHER is slurm, but SLURM_JOB_ID is not set"},
		{"a malformed overrule", environment(mpich, "NEXAR_WORLD=-3"), "", `NEXAR_WORLD is "-3": expected a number`},
		{"a world of none", environment(mpich, "NEXAR_WORLD=0"), "", "NEXAR_WORLD is 0"},
		{"a world of too many", environment(mpich, "NEXAR_WORLD=1048577"), "", "NEXAR_WORLD is 1048577"},
		{"an overruled size below the rank", environment(slurmTask, "NEXAR_WORLD=4"), "", "the rank is 4, but the size is 4, with NEXAR_RANK unset and NEXAR_WORLD set"},
		{"a malformed job", environment(slurmTask, "SLURM_JOB_ID=x"), "", `SLURM_JOB_ID is "x": expected a number`},
		{"a batch script", environment(slurmBatch), "",
			"this process is the batch script of job 12 with 8 tasks, and is not one of them: start it by srun, or set NEXAR_LAUNCHER=none"},
		{"a batch script of nodes", environment(slurmBatch, "SLURM_NTASKS=\nSLURM_TASKS_PER_NODE=1(x4)"), "", "the batch script of job 12 with 4 tasks"},
		{"salloc", environment("SLURM_JOB_ID=12\nSLURM_NTASKS=8"), "", "runs in the allocation of job 12 with 8 tasks"},
		{"more local processes than processes", environment("RANK=0\nWORLD_SIZE=2\nLOCAL_RANK=0\nLOCAL_WORLD_SIZE=4\nMASTER_ADDR=h\nMASTER_PORT=29500"), "",
			"this host has 4 processes, but the world has 2: expected no more"},
		{"the rank is the size", environment(slurmTask, "SLURM_PROCID=6"), "", "the rank is 6, but the size is 6"},
		{"tasks that contradict", environment(slurmTask, "SLURM_STEP_NUM_TASKS=7"), "", `SLURM_STEP_NUM_TASKS is 7, but SLURM_STEP_TASKS_PER_NODE is "4,1(x2)", which is 6 tasks`},
		{"nodes that contradict", environment(slurmTask, "SLURM_STEP_NODELIST=n[1-4]"), "", "SLURM_STEP_NODELIST has 4 nodes, but SLURM_STEP_TASKS_PER_NODE has 3"},
		{"the shell of salloc", environment("SLURM_JOB_ID=15\nSLURM_NTASKS=4\nSLURM_PROCID=0\nSLURM_STEP_ID=4294967290\nSLURM_STEP_NUM_TASKS=1\nSLURM_TASK_PID=4711"), "",
			"this process runs in the allocation of job 15 with 4 tasks"},
		{"a batch script from within a step", environment(slurmBatch, "SLURM_STEP_ID=0\nSLURM_STEP_NODELIST=n9\nSLURM_STEP_NUM_TASKS=2\nSLURM_STEP_TASKS_PER_NODE=2"), "",
			`SLURMD_NODENAME is "n1", which is not in SLURM_STEP_NODELIST "n9"`},
		{"a node that contradicts", environment(slurmTask, "SLURMD_NODENAME=\nSLURM_NODEID=3"), "", "SLURM_NODEID is 3, but SLURM_STEP_NODELIST has 3 nodes"},
		{"a local rank that contradicts", environment(slurmTask, "SLURM_LOCALID=1"), "", "the local rank is 1, but this host has 1 processes"},
		{"a malformed node list", environment(slurmTask, "SLURM_STEP_NODELIST=n[1-"), "", "SLURM_STEP_NODELIST: node list"},
		{"no local ID", environment(slurmTask, "SLURM_LOCALID="), "", `SLURM_PROCID is "4", but SLURM_LOCALID is not set`},
		{"RANK alone", environment("RANK=1"), "", `RANK is "1", but WORLD_SIZE is not set`},
		{"WORLD_SIZE alone", environment("WORLD_SIZE=4"), "", `WORLD_SIZE is "4", but RANK is not set`},
		{"no master", environment("RANK=1\nWORLD_SIZE=4"), "", "MASTER_ADDR is not set"},
		{"a malformed port", environment(torchrun, "MASTER_PORT=70000"), "", "MASTER_PORT is 70000"},
		{"an odd master", environment(torchrun, "MASTER_ADDR=a\x1bb"), "", `a host of the job is "a\x1bb": expected a name or an address`},
		{"a long leader", environment("LWS_LEADER_ADDRESS=" + strings.Repeat("x", 10000) + "\nLWS_GROUP_SIZE=2\nLWS_WORKER_INDEX=1"), "", `xxx"… (10000 bytes): expected a name or an address`},
		{"a master in brackets", environment(torchrun, "MASTER_ADDR=[::1]"), "", `a host of the job is "[::1]": expected a name or an address`},
		{"torchrun by srun, a rank that contradicts", environment(slurmTask, torchrun, "SLURM_TASK_PID=4710\nRANK=4"), "", "the rank is 4, but the size is 4"},
		{"torchrun by srun, a malformed size", environment(slurmTask, torchrun, "SLURM_TASK_PID=4710\nWORLD_SIZE=x"), "", `WORLD_SIZE is "x"`},
		{"3 of 2", environment(torchrun, "RANK=3\nWORLD_SIZE=2"), "", "the rank is 3, but the size is 2"},
		{"a local rank of 2 of 2", environment(torchrun, "LOCAL_RANK=2"), "", "the local rank is 2, but this host has 2 processes"},
		{"a negative rank", environment(torchrun, "RANK=-1"), "", `RANK is "-1": expected a number`},
		{"no descriptor", environment(mpich, "PMI_FD="), "", "PMI_RANK is 1 of PMI_SIZE 2, but PMI_FD is not set"},
		{"a port instead of a descriptor", environment("PMI_PORT=h:37177\nPMI_ID=1"), "", "start mpiexec without -pmi-port"},
		{"no namespace", environment(openMPI, "PMIX_NAMESPACE="), "", "PMIX_NAMESPACE is not set"},
		{"a job without its completions", environment("JOB_COMPLETION_INDEX=0"), "", "set NEXAR_WORLD to the completions of the Job"},
		{"a job without a subdomain", launch.Environment{Vars: map[string]string{"JOB_COMPLETION_INDEX": "1", "NEXAR_WORLD": "2"}, Hostname: "j-1", Hosts: []byte("10.0.0.5 j-1\n")}, "",
			"set spec.template.spec.subdomain"},
		{"another hostname", environment("JOB_COMPLETION_INDEX=1\nNEXAR_WORLD=2"), "", `the hostname is "h", but JOB_COMPLETION_INDEX is 1`},
		{"an index beyond", launch.Environment{Vars: map[string]string{"JOB_COMPLETION_INDEX": "2", "NEXAR_WORLD": "2"}, Hostname: "j-2.s"}, "", "expected an index below 2"},
		{"a jobset that does not divide", environment("JOB_COMPLETION_INDEX=1\nNEXAR_WORLD=3\nNEXAR_JOBSET_JOBS=2"), "", "NEXAR_JOBSET_JOBS is 2"},
		{"a leader alone", environment("LWS_LEADER_ADDRESS=a.b"), "", "LWS_GROUP_SIZE is not set"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, _, err := launch.Find(test.env, test.only)
			if !errors.Is(err, launch.ErrLaunch) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Find = %+v, %v\nwant an ErrLaunch with %q", p, err, test.want)
			}
			if p.Launcher != "" {
				t.Errorf("an error has the process %+v", p)
			}
		})
	}
}

// Find reads the environment only.
func TestFindChangesNothing(t *testing.T) {
	env := environment(slurmTask, torchrun, mpich)
	before := maps.Clone(env.Vars)
	if _, _, err := launch.Find(env, ""); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(before, env.Vars) {
		t.Error("Find changed the variables")
	}
}

// A pod that Kubernetes makes in place of another one has the same name. Other pods and processes do not.
func TestPod(t *testing.T) {
	hosts := []byte("10.0.0.5\ttrain-3.nexar.ml.svc.cluster.local\ttrain-3\n")
	for _, test := range []struct {
		vars, hostname string
		hosts          []byte
		want           string
	}{
		{"JOB_COMPLETION_INDEX=3", "train-3", hosts, "3/train-3.nexar.ml.svc.cluster.local"},
		{"JOB_COMPLETION_INDEX=3", "train-3.nexar.ml.svc.cluster.local", nil, "3/train-3.nexar.ml.svc.cluster.local"},
		{"JOB_COMPLETION_INDEX=3", "train-3", nil, "3/train-3"},
		{"LWS_WORKER_INDEX=0", "serve-0", nil, "0/serve-0"},
		{"NEXAR_RANK=3", "train-3", hosts, ""},
	} {
		env := environment(test.vars)
		env.Hostname, env.Hosts = test.hostname, test.hosts
		if got := env.Pod(); got != test.want {
			t.Errorf("%s on %s: %q, want %q", test.vars, test.hostname, got, test.want)
		}
	}
}
