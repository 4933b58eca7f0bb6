package launch_test

import (
	"fmt"

	"github.com/nexar-go/nexar/launch"
)

// A program uses launch.Here() as the environment. This one is that of a task of Slurm.
func ExampleFind() {
	env := launch.Environment{PID: 4711, Vars: map[string]string{
		"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "6", "SLURM_STEP_NODELIST": "n[1-3]", "SLURM_STEP_TASKS_PER_NODE": "4,1(x2)",
		"SLURM_PROCID": "4", "SLURM_LOCALID": "0", "SLURMD_NODENAME": "n2", "SLURM_TASK_PID": "4711",
	}}
	p, findings, err := launch.Find(env, launch.Auto)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p)
	for _, f := range findings {
		fmt.Println(f.Launcher, f.Found)
	}
	// Output:
	// rank 4 of 6, local rank 0 of 1, first host n1, job 12.0.0
	// slurm true
	// kubernetes false
	// torchrun false
	// pmi false
	// openmpi false
}

func ExampleExpandNodes() {
	names, err := launch.ExpandNodes("login,n[08-10],rack[0-1]n[1-2]-ib0")
	fmt.Println(names, err)
	// Output: [login n08 n09 n10 rack0n1-ib0 rack0n2-ib0 rack1n1-ib0 rack1n2-ib0] <nil>
}
