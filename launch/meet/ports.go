package meet

import (
	"crypto/sha256"
	"encoding/binary"
)

// Ports that are derived are below the range from which systems take ports for connections, and below
// that of Kubernetes services (NodePort).
const (
	portMin   = 20000
	portCount = 10000
)

// ports returns n ports at which the ranks of the job look for the seed with this number, and where the seed
// tries to listen, in this order. They are derived from Job; different seeds have different ports, as long as
// there are fewer than 10000 in all. If the launcher has reserved ports, the first is Port plus the number of the seed.
// Without a Job, as with MPICH, all jobs have the same ports: announce another one by [PMIClient].
func (p process) ports(seed, n int) []int {
	if n <= 0 || seed < 0 {
		return nil
	}
	n = min(n, portCount)
	sum := sha256.Sum256([]byte(p.Launcher + "\x00" + p.Job))
	start := int(binary.BigEndian.Uint32(sum[0:]) % portCount)
	// Ports of two jobs that meet at one port part at the next, since their steps differ. 10000 has the prime factors 2 and 5.
	step := int(binary.BigEndian.Uint32(sum[4:])%(portCount/10))*10 + [...]int{1, 3, 7, 9}[sum[8]%4]
	ports := make([]int, 0, n)
	if p.Port > 0 && p.Port+seed <= 65535 {
		ports = append(ports, p.Port+seed)
	}
	for i := 0; len(ports) < n; i++ {
		ports = append(ports, portMin+(start+(seed%portCount*n%portCount+i)%portCount*step)%portCount)
	}
	return ports
}

// warns reports whether this process is the first of its host that waits for others, which run all of n seeds.
func (p process) warns(n int) bool {
	if p.LocalRank != 1 {
		return p.LocalRank <= 0
	}
	p.Rank--
	p.LocalRank--
	_, runs := p.runsSeed(n)
	return runs
}

// runsSeed returns which of n seeds (0 … n-1) this process runs, if any.
//
// Seed k runs on the host k modulo the number of Hosts, by its process with the local rank k divided by that
// number. With uneven Tasks, the seeds pass over hosts without a further process. If Hosts is nil, seed k is
// run by rank k.
func (p process) runsSeed(n int) (seed int, runs bool) {
	if p.Hosts == nil {
		return p.Rank, p.Rank < min(n, p.Size)
	}
	if p.Host < 0 || p.Host >= len(p.Hosts) || p.LocalRank < 0 {
		return 0, false
	}
	if len(p.Tasks) != len(p.Hosts) {
		seed = p.LocalRank*len(p.Hosts) + p.Host
		return seed, seed < n
	}
	for host, tasks := range p.Tasks { // All processes with a smaller local rank, and those with the same one on the hosts before, run seeds first.
		seed += min(tasks, p.LocalRank)
		if host < p.Host && tasks > p.LocalRank {
			seed++
		}
	}
	return seed, seed < n
}

// seedHost returns the host of a seed, as runsSeed places it, or "" if there is no such process, or Hosts is nil.
func (p process) seedHost(seed int) string {
	if seed < 0 || seed >= p.Size || len(p.Hosts) == 0 {
		return ""
	}
	if len(p.Tasks) != len(p.Hosts) {
		return p.Hosts[seed%len(p.Hosts)]
	}
	for local := 0; ; local++ {
		before := seed
		for host, tasks := range p.Tasks {
			if tasks <= local {
				continue
			}
			if seed == 0 {
				return p.Hosts[host]
			}
			seed--
		}
		if seed == before {
			return ""
		}
	}
}
