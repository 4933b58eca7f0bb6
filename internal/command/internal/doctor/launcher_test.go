package doctor

import (
	"strings"
	"testing"

	"github.com/nexar-go/nexar/launch"
)

func TestLauncher(t *testing.T) {
	task := map[string]string{"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "h1", "MASTER_PORT": "29500"}
	with := func(name, value string) map[string]string {
		vars := map[string]string{name: value}
		for n, v := range task {
			if _, changed := vars[n]; !changed {
				vars[n] = v
			}
		}
		return vars
	}
	tests := []struct {
		name   string
		vars   map[string]string
		seeds  bool
		status Status
		text   string
		others int // findings about other launchers
	}{
		{"none", nil, false, Note, "no launcher started this process as one of several", 5},
		{"found", task, false, OK, "torchrun started this process as rank 3 of 4, first host h1, job h1:29500/; its seeds are at h1:2", 4},
		{"on one host", with("LOCAL_WORLD_SIZE", "4"), false, OK, "torchrun started this process as rank 3 of 4, local rank 0 of 4, first host h1, job h1:29500/.", 4},
		{"a seed overrules it", task, true, OK, "a seed is set, so Join asks torchrun only for the rank, if the world has the same size: rank 3 of 4,", 0},
		{"a seed and a rank overrule it", with("NEXAR_RANK", "1"), true, OK, "a seed is set, so Join asks no launcher", 0},
		{"a seed and nexar run overrule it", with("NEXAR_LOCAL_RANK", "1"), true, OK, "a seed is set, so Join asks no launcher", 0},
		{"unusable", with("RANK", "4"), false, Fail, "(torchrun): the rank is 4, but the size is 4", 4},
		{"not considered", with("NEXAR_LAUNCHER", "none"), false, Note, "no launcher started", 5},
		{"an unknown one", with("NEXAR_LAUNCHER", "lsf"), false, Fail, `NEXAR_LAUNCHER is "lsf"`, 0},
		{"not that one", with("NEXAR_LAUNCHER", "slurm"), false, Fail, "NEXAR_LAUNCHER is slurm, but SLURM_JOB_ID is not set", 4},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			list := examineLauncher(launch.Environment{Vars: test.vars, PID: 1}, test.seeds)
			if f := find(t, list, test.text); f.Status != test.status || f.About != "launcher" {
				t.Errorf("got %+v, want status %s", f, test.status)
			}
			others := 0
			for _, f := range list {
				if strings.HasPrefix(f.Text, "not ") && f.Status == Note {
					others++
				}
			}
			if others != test.others || len(list) != others+1 {
				t.Errorf("got %d findings about other launchers of %d, want %d: %+v", others, len(list), test.others, list)
			}
		})
	}
}
