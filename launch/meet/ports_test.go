package meet

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
		var all []process
		size := 0
		for _, n := range test.tasks {
			size += n
		}
		for host, n := range test.tasks {
			for local := range n {
				p := process{launch.Process{Rank: len(all), Size: size, LocalRank: local, LocalSize: n, Host: host}}
				for h := range test.hosts {
					p.Hosts = append(p.Hosts, fmt.Sprint("h", h))
				}
				if test.known {
					p.Tasks = test.tasks
				}
				all = append(all, p)
			}
		}
		waits, warns := map[int]bool{}, map[int]int{} // by host: whether a process waits for the only seed, and how many say so
		for _, p := range all {
			if _, runs := p.runsSeed(1); !runs {
				waits[p.Host] = true
				if p.warns(1) {
					warns[p.Host]++
				}
			}
		}
		for host := range waits {
			if warns[host] != 1 {
				t.Errorf("%d hosts, tasks %v: %d processes of host %d say that they wait, want 1", test.hosts, test.tasks, warns[host], host)
			}
		}
		most := size // how many seeds have a process
		if !test.known && test.hosts > 0 {
			most = test.hosts * test.tasks[0]
		}
		if _, runs := (process{}).runsSeed(1); runs {
			t.Error("a process of no launcher runs a seed")
		}
		if seed, runs := (process{launch.Process{Size: 4, LocalRank: -1, Hosts: []string{"h0", "h1"}, Host: 1}}).runsSeed(1); runs {
			t.Errorf("a process without a local rank runs seed %d", seed)
		}
		for n := range most + 1 {
			runs := map[int]process{}
			for _, p := range all {
				seed, ok := p.runsSeed(n)
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
					if got := other.seedHost(seed); got != want {
						t.Errorf("%+v: rank %d looks for seed %d on %q, but it runs on %q", test, other.Rank, seed, got, want)
					}
				}
			}
		}
		if first, ok := all[0].runsSeed(1); (!ok || first != 0) && test.tasks[0] > 0 {
			t.Errorf("%+v: rank 0 runs seed %d, %v", test, first, ok)
		}
		for _, seed := range []int{-1, size} {
			if got := all[0].seedHost(seed); got != "" {
				t.Errorf("SeedHost(%d) = %q", seed, got)
			}
		}
	}
}

func TestPorts(t *testing.T) {
	job := func(name string) process {
		return process{launch.Process{Launcher: launch.Slurm, Job: name, Size: 9}}
	}
	seen := map[int]int{}
	for seed := range 5 {
		ports := job("12.0.0").ports(seed, 4)
		if !slices.Equal(ports, job("12.0.0").ports(seed, 4)) || len(ports) != 4 {
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
	first := job("0.0.0").ports(0, 4)
	for i := range 1000 {
		ports := job(fmt.Sprintf("%d.0.0", i+1)).ports(0, 4)
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
	other := job("12.0.0")
	if other.Launcher = launch.Torchrun; slices.Equal(other.ports(0, 4), job("12.0.0").ports(0, 4)) {
		t.Error("jobs of two launchers with the same name have the same ports")
	}
	reserved := job("12.0.0")
	reserved.Port = 12001
	if got := reserved.ports(2, 3); got[0] != 12003 || len(got) != 3 || got[1] < 20000 {
		t.Errorf("ports after reserved ones: %v", got)
	}
	if reserved.Port = 65535; reserved.ports(1, 1)[0] > 65535 {
		t.Errorf("a port above 65535")
	}
	if got := job("x").ports(0, 0); got != nil {
		t.Errorf("no ports: %v", got)
	}
	if got := job("x").ports(0, 1<<40); len(got) != 10000 || len(slices.Compact(slices.Sorted(slices.Values(got)))) != 10000 {
		t.Errorf("all ports: %d", len(got))
	}
}

func FuzzPorts(f *testing.F) {
	f.Add("slurm", "12.0.0", 0, 2, 4)
	f.Add("kubernetes", "", 65535, 9999, 10000)
	f.Fuzz(func(t *testing.T, launcher, job string, reserved, seed, n int) {
		n %= 12000
		p := process{launch.Process{Launcher: launcher, Job: job, Port: reserved}}
		ports := p.ports(seed, n)
		if seed < 0 || n <= 0 {
			if ports != nil {
				t.Errorf("ports %v", ports)
			}
			return
		}
		if len(ports) != min(n, 10000) {
			t.Errorf("%d ports, want %d", len(ports), n)
		}
		for i, port := range ports {
			if (port < 20000 || port > 29999) && (i > 0 || port != reserved+seed) || port < 1 || port > 65535 {
				t.Errorf("port %d", port)
			}
		}
		derived := slices.DeleteFunc(slices.Clone(ports), func(port int) bool { return port == reserved+seed })
		if unique := slices.Compact(slices.Sorted(slices.Values(derived))); len(unique) != len(derived) {
			t.Errorf("%d of %d ports are different", len(unique), len(derived))
		}
	})
}

// FuzzSeeds: a process that runs a seed runs it on the host where the others look for it.
func FuzzSeeds(f *testing.F) {
	f.Add(3, 1, 0, []byte{4, 1, 1})
	f.Add(2, 1, 2, []byte{})
	f.Add(0, -1, 0, []byte{})
	f.Fuzz(func(t *testing.T, hosts, host, local int, tasks []byte) {
		p := process{launch.Process{Size: 1 << 20, Host: host, LocalRank: local}}
		for i := range max(0, hosts%100) {
			p.Hosts = append(p.Hosts, fmt.Sprint("h", i))
		}
		for _, n := range tasks {
			p.Tasks = append(p.Tasks, int(n))
		}
		if p.Hosts != nil && host >= 0 && host < len(p.Tasks) && len(p.Tasks) == len(p.Hosts) && local >= p.Tasks[host] {
			return // A host has local ranks below its tasks.
		}
		if seed, runs := p.runsSeed(3); runs && (seed < 0 || seed >= 3 || p.Hosts != nil && p.seedHost(seed) != p.Hosts[host]) {
			t.Errorf("seed %d runs on %q, of %+v", seed, p.seedHost(seed), p)
		}
	})
}
