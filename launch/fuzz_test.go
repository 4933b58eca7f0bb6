package launch_test

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/launch"
)

func FuzzExpandNodes(f *testing.F) {
	for _, list := range []string{"", "n1", "n[1-3,7]", "n[01-10]", "rack[0-1]n[0-3]", "a,b[2-3],c", "n[1-2]-ib0", "n[0-8:2]", "n[", "]", "n[098-101]", "[0-1][0-1],,"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		names, err := launch.ExpandNodes(list)
		if err != nil {
			if names != nil {
				t.Errorf("an error and %d names", len(names))
			}
			return
		}
		if len(names) == 0 || len(names) > 1<<20 {
			t.Fatalf("%d names", len(names))
		}
		if names = names[:min(len(names), 1000)]; slices.ContainsFunc(names, func(s string) bool { return s == "" || strings.ContainsAny(s, "[], \n") }) {
			t.Errorf("names %q", names)
		}
		// A list of plain names is its own expansion.
		again, err := launch.ExpandNodes(strings.Join(names, ","))
		if err != nil || !slices.Equal(names, again) {
			t.Errorf("expanded again: %q, %v, want %q", again, err, names)
		}
	})
}

func FuzzTasksPerNode(f *testing.F) {
	for _, s := range []string{"", "4", "4,1(x2)", "1(x1048576)", "1(x)", "(x2)", "0(x3),7"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tasks, err := launch.TasksPerNode(s)
		if err != nil {
			return
		}
		if len(tasks) == 0 || len(tasks) > 1<<20 || slices.Min(tasks) < 0 {
			t.Fatalf("%d nodes, fewest tasks %d", len(tasks), slices.Min(tasks))
		}
		tasks = tasks[:min(len(tasks), 1000)]
		var plain []string
		for _, n := range tasks {
			plain = append(plain, strconv.Itoa(n))
		}
		if again, err := launch.TasksPerNode(strings.Join(plain, ",")); err != nil || !slices.Equal(again, tasks) {
			t.Errorf("written out: %v, %v, want %v", again, err, tasks)
		}
	})
}

// FuzzFind finds the process of any text of variables.
func FuzzFind(f *testing.F) {
	for _, vars := range []string{
		"", slurmTask, slurmBatch, slurmHet, torchrun, mpich, intelMPI, openMPI,
		"JOB_COMPLETION_INDEX=2\nNEXAR_WORLD=3", "JOB_COMPLETION_INDEX=1\nNEXAR_WORLD=4\nNEXAR_JOBSET_JOBS=2",
		"LWS_LEADER_ADDRESS=llm-1.llm.ml\nLWS_GROUP_SIZE=3\nLWS_WORKER_INDEX=2", slurmTask + "\n" + torchrun + "\n" + mpich,
	} {
		f.Add(vars, "set-worker-1-1", "10.0.0.5 set-worker-1-1.set.ml.svc.cluster.local set-worker-1-1", "")
		f.Add(vars, "train-2.svc", "", "auto")
		f.Add(vars, "h", "", launch.Slurm)
	}
	f.Fuzz(func(t *testing.T, vars, hostname, hosts, only string) {
		env := environment(vars)
		env.Hostname, env.Hosts = hostname, []byte(hosts)
		checkFind(t, env, only)
	})
}

// FuzzFindChanged finds the process of an environment in which variables of all launchers are changed to values that have
// a meaning for some of them. Each change is two bytes: a variable and a value.
func FuzzFindChanged(f *testing.F) {
	bases := []string{slurmTask, slurmBatch, slurmHet, torchrun, mpich, intelMPI, openMPI, "", "JOB_COMPLETION_INDEX=1\nNEXAR_WORLD=4\nNEXAR_JOBSET_JOBS=2",
		"LWS_LEADER_ADDRESS=llm-1.llm.ml\nLWS_GROUP_SIZE=3\nLWS_WORKER_INDEX=2"}
	values := []string{"", "0", "1", "2", "3", "4", "5", "6", "8", "-1", "x", "4711", "65536", "1048577", "2147483647", "4294967290", "99999999999",
		"n2", "n[1-3]", "n[0-2047]", "4,1(x2)", "2(x3)", "1(x2048)", "12.0", "BATCH", "a.b.c"}
	known := map[string]bool{"NEXAR_RANK": true, "NEXAR_JOB": true, "PMI_PORT": true, "PMI_ID": true, "SLURM_RESTART_COUNT": true, "SLURM_STEP_RESV_PORTS": true}
	for _, base := range bases {
		for name := range environment(base).Vars {
			known[name] = true
		}
	}
	names := slices.Sorted(maps.Keys(known))
	for i := range bases {
		f.Add(uint8(i), []byte{}, uint8(0))
		f.Add(uint8(i), []byte{1, 2, 30, 4, 50, 6}, uint8(2))
	}
	f.Fuzz(func(t *testing.T, base uint8, changes []byte, only uint8) {
		env := environment(bases[int(base)%len(bases)])
		for pair := range slices.Chunk(changes, 2) {
			env.Vars[names[int(pair[0])%len(names)]] = values[int(pair[len(pair)-1])%len(values)]
		}
		env.Hostname = "set-worker-1-1.set.ml"
		launchers := []string{"", launch.Auto, launch.None, launch.Slurm, launch.Kubernetes, launch.Torchrun, launch.PMI, launch.OpenMPI}
		checkFind(t, env, launchers[int(only)%len(launchers)])
	})
}

// checkFind checks that a process that Find has found is possible.
func checkFind(t *testing.T, env launch.Environment, only string) {
	t.Helper()
	p, findings, err := launch.Find(env, only)
	if again, _, err2 := launch.Find(env, only); again.String() != p.String() || (err == nil) != (err2 == nil) {
		t.Errorf("two calls: %v, %v and %v, %v", p, err, again, err2)
	}
	found := 0
	for _, f := range findings {
		if f.Found {
			found++
		}
		if f.Text == "" {
			t.Errorf("a finding of %s without text", f.Launcher)
		}
	}
	if err != nil || p.Launcher == "" {
		if err != nil && (!errors.Is(err, launch.ErrLaunch) || len(err.Error()) > 2000) {
			t.Errorf("error of %d bytes: %.300v", len(err.Error()), err)
		}
		if p.Launcher != "" || p.Size != 0 || found != 0 {
			t.Errorf("%+v, %d found, with error %v", p, found, err)
		}
		return
	}
	if found != 1 {
		t.Errorf("%d findings say that their launcher was found", found)
	}
	switch {
	case p.Rank < 0 || p.Rank >= p.Size || p.Size > 1<<20:
		t.Errorf("rank %d of %d", p.Rank, p.Size)
	case p.LocalRank < 0 || p.LocalSize < 0 || p.LocalSize > 0 && p.LocalRank >= p.LocalSize:
		t.Errorf("local rank %d of %d", p.LocalRank, p.LocalSize)
	case p.Hosts != nil && (len(p.Hosts) == 0 || len(p.Hosts) > 1<<20 || p.Host < 0), p.Hosts == nil && p.Host != -1:
		t.Errorf("host %d of %d", p.Host, len(p.Hosts))
	case p.Tasks != nil && len(p.Tasks) != len(p.Hosts):
		t.Errorf("tasks of %d hosts, of %d", len(p.Tasks), len(p.Hosts))
	case p.Port < 0 || p.Port > 65535:
		t.Errorf("port %d", p.Port)
	}
	if slices.Contains(p.Hosts, "") {
		t.Errorf("a host without a name among %d", len(p.Hosts))
	}
}

// FuzzHosts finds the domain of a pod in any hosts file.
func FuzzHosts(f *testing.F) {
	for _, hosts := range []string{"", "10.0.0.5\tj-1.svc.ns\tj-1\n", "# 10.0.0.5 j-1.svc", "10.0.0.5 j-1", "j-1.svc", "::1 localhost\nfd00::5 x j-1.a.b. # j-1.c", "1 j-1.", "1 j-1.\x00"} {
		f.Add([]byte(hosts))
	}
	f.Fuzz(func(t *testing.T, hosts []byte) {
		env := launch.Environment{Vars: map[string]string{"JOB_COMPLETION_INDEX": "1", "NEXAR_WORLD": "2"}, Hostname: "j-1", Hosts: hosts}
		p, _, err := launch.Find(env, "")
		if err != nil {
			return
		}
		if domain, ok := strings.CutPrefix(p.Hosts[0], "j-0."); !ok || domain == "" || p.Hosts[1] != "j-1."+domain || !bytes.Contains(hosts, []byte(p.Hosts[1])) {
			t.Errorf("hosts %q of the file %q", p.Hosts, hosts)
		}
	})
}
