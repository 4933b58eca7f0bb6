package launch_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nexar-go/nexar/launch"
)

// All processes of a world agree on the seeds: each seed runs in one process, on the host where the others look for it.
func TestSeeds(t *testing.T) {
	for _, test := range []struct {
		hosts int
		tasks []int // of each host that has processes; there may be more than in Hosts
		known bool  // Tasks is set
	}{
		{1, []int{1}, true}, {1, []int{4}, true}, {3, []int{4, 1, 1}, true}, {3, []int{1, 4, 2}, true}, {4, []int{2, 2, 2, 2}, true},
		{3, []int{0, 2, 1}, true}, {1, []int{2, 2}, false}, {1, []int{8}, false}, {4, []int{1, 1, 1, 1}, false}, {0, []int{2, 2}, false},
	} {
		var all []launch.Process
		size := 0
		for _, n := range test.tasks {
			size += n
		}
		for host, n := range test.tasks {
			for local := range n {
				p := launch.Process{Rank: len(all), Size: size, LocalRank: local, LocalSize: n, Host: host}
				for h := range test.hosts {
					p.Hosts = append(p.Hosts, fmt.Sprint("h", h))
				}
				if test.known {
					p.Tasks = test.tasks
				}
				all = append(all, p)
			}
		}
		most := size // how many seeds have a process
		if !test.known && test.hosts > 0 {
			most = test.hosts * test.tasks[0]
		}
		if _, runs := (launch.Process{}).RunsSeed(1); runs {
			t.Error("a process of no launcher runs a seed")
		}
		for n := range most + 1 {
			runs := map[int]launch.Process{}
			for _, p := range all {
				seed, ok := p.RunsSeed(n)
				if !ok {
					continue
				}
				if other, taken := runs[seed]; taken || seed < 0 || seed >= n {
					t.Errorf("%+v: seed %d of %d runs in %v and %v", test, seed, n, other, p)
				}
				runs[seed] = p
			}
			if len(runs) != n {
				t.Errorf("%+v: %d of %d seeds run", test, len(runs), n)
			}
			for seed, p := range runs {
				want := ""
				if test.hosts > 0 {
					want = p.Hosts[p.Host]
				}
				for _, other := range all {
					if got := other.SeedHost(seed); got != want {
						t.Errorf("%+v: rank %d looks for seed %d on %q, but it runs on %q", test, other.Rank, seed, got, want)
					}
				}
			}
		}
		if first, ok := all[0].RunsSeed(1); (!ok || first != 0) && test.tasks[0] > 0 {
			t.Errorf("%+v: rank 0 runs seed %d, %v", test, first, ok)
		}
		for _, seed := range []int{-1, size} {
			if got := all[0].SeedHost(seed); got != "" {
				t.Errorf("SeedHost(%d) = %q", seed, got)
			}
		}
	}
}

func TestPorts(t *testing.T) {
	job := func(name string) launch.Process {
		return launch.Process{Launcher: launch.Slurm, Job: name, Size: 9}
	}
	seen := map[int]int{}
	for seed := range 5 {
		ports := job("12.0.0").Ports(seed, 4)
		if !slices.Equal(ports, job("12.0.0").Ports(seed, 4)) || len(ports) != 4 {
			t.Errorf("ports of seed %d: %v", seed, ports)
		}
		for _, p := range ports {
			if p < 20000 || p > 29999 {
				t.Errorf("port %d of seed %d", p, seed)
			}
			if other, taken := seen[p]; taken {
				t.Errorf("seeds %d and %d have port %d", other, seed, p)
			}
			seen[p] = seed
		}
	}
	// The ports of a job are few among many: two jobs seldom share the first, and never all.
	shared := 0
	first := job("0.0.0").Ports(0, 4)
	for i := range 1000 {
		ports := job(fmt.Sprintf("%d.0.0", i+1)).Ports(0, 4)
		if ports[0] == first[0] {
			shared++
		}
		if slices.Equal(ports, first) {
			t.Errorf("job %d has the ports of job 0: %v", i+1, ports)
		}
	}
	if shared > 3 {
		t.Errorf("%d of 1000 jobs have the first port of job 0", shared)
	}
	reserved := job("12.0.0")
	reserved.Port = 12001
	if got := reserved.Ports(2, 3); got[0] != 12003 || len(got) != 3 || got[1] < 20000 {
		t.Errorf("ports after reserved ones: %v", got)
	}
	if reserved.Port = 65535; reserved.Ports(1, 1)[0] > 65535 {
		t.Errorf("a port above 65535")
	}
	if got := job("x").Ports(0, 0); got != nil {
		t.Errorf("no ports: %v", got)
	}
	if got := job("x").Ports(0, 1<<40); len(got) != 10000 || len(slices.Compact(slices.Sorted(slices.Values(got)))) != 10000 {
		t.Errorf("all ports: %d", len(got))
	}
}

func TestOneHost(t *testing.T) {
	for _, test := range []struct {
		p    launch.Process
		want bool
	}{
		{launch.Process{Size: 4, LocalSize: 4}, true},
		{launch.Process{Size: 4, LocalSize: 2}, false},
		{launch.Process{Size: 4}, false},
		{launch.Process{}, false},
	} {
		if got := test.p.OneHost(); got != test.want {
			t.Errorf("%+v: OneHost = %v", test.p, got)
		}
	}
}
