package launch

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// A Process is what a launcher says about this process and its world.
type Process struct {
	// Launcher is the name of the launcher, such as [Slurm].
	Launcher string
	// Job names the job, its step and its attempt. It is the same on all ranks, and different for two jobs
	// that can exist at the same time. It is empty if the launcher does not tell (MPICH).
	Job string
	// Rank is the number of this process in the world, from 0 to Size-1.
	Rank int
	// Size is the number of processes of the world, from 1 to 1048576.
	Size int
	// LocalRank is the number of this process among those of the job on this host, from 0.
	LocalRank int
	// LocalSize is the number of processes of the job on this host, 0 if unknown.
	LocalSize int
	// Hosts has the names or addresses of the hosts of the job in its order, at least the first. It is nil if
	// the launcher does not tell (PMI, Open MPI).
	Hosts []string
	// Tasks has the number of processes of each of Hosts. It is nil if the launcher does not tell.
	Tasks []int
	// Host is the index of this host in Hosts, or len(Hosts) and above if Hosts does not have it, or -1 if unknown.
	Host int
	// Port is the first port that the launcher has reserved for the job on each host, 0 if none.
	Port int
	// PMI reports whether the ranks can exchange values by [OpenPMI].
	PMI bool
}

// String describes the process in one line.
func (p Process) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rank %d of %d", p.Rank, p.Size)
	if p.LocalSize > 0 {
		fmt.Fprintf(&b, ", local rank %d of %d", p.LocalRank, p.LocalSize)
	}
	if len(p.Hosts) > 0 {
		b.WriteString(", first host " + plain(p.Hosts[0]))
	}
	if p.Job != "" {
		b.WriteString(", job " + plain(p.Job))
	}
	return b.String()
}

// OneHost reports whether all ranks run on this host.
func (p Process) OneHost() bool { return p.LocalSize >= p.Size && p.Size > 0 }

// Restarts reports whether the launcher starts a process that has ended again, perhaps on another host, while the others of the
// world go on. Then a seed that has ended may come back.
func (p Process) Restarts() bool { return p.Launcher == Kubernetes }

// Ports that are derived are below the range from which systems take ports for connections, and below
// that of Kubernetes services (NodePort).
const (
	portMin   = 20000
	portCount = 10000
)

// Ports returns n ports at which the ranks of the job look for the seed with this number, and where the seed
// tries to listen, in this order. They are derived from Job; different seeds have different ports, as long as
// there are fewer than 10000 in all. If the launcher has reserved ports, the first is Port plus the number of the seed.
// Without a Job, as with MPICH, all jobs have the same ports: announce another one by [PMI].
func (p Process) Ports(seed, n int) []int {
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

// RunsSeed returns which of n seeds (0 … n-1) this process runs, if any.
//
// Seed k runs on the host k modulo the number of Hosts, by its process with the local rank k divided by that
// number. With uneven Tasks, the seeds pass over hosts without a further process. If Hosts is nil, seed k is
// run by rank k.
func (p Process) RunsSeed(n int) (seed int, runs bool) {
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

// SeedHost returns the host on which a seed runs, as RunsSeed places it, or "" if there is no such process, or Hosts is nil.
func (p Process) SeedHost(seed int) string {
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

// isOdd reports whether a host has characters that neither names nor addresses have, or is longer than names can be.
func isOdd(host string) bool { return plain(host) != host || strings.ContainsAny(host, "[]") }

// check finds contradictions in what a launcher says.
func (p Process) check() error {
	switch {
	case p.Size < 1 || p.Size > sizeMax:
		return fmt.Errorf("the size of the world is %d: expected 1 to %d processes", p.Size, sizeMax)
	case p.Rank < 0 || p.Rank >= p.Size:
		return fmt.Errorf("the rank is %d, but the size is %d: ranks are below the size: start all processes by one command of the launcher", p.Rank, p.Size)
	case p.LocalSize > 0 && p.LocalRank >= p.LocalSize:
		return fmt.Errorf("the local rank is %d, but this host has %d processes: local ranks are below that: start all processes by one command of the launcher",
			p.LocalRank, p.LocalSize)
	case slices.ContainsFunc(p.Hosts, isOdd):
		host := p.Hosts[slices.IndexFunc(p.Hosts, isOdd)]
		return fmt.Errorf("a host of the job is %s: expected a name or an address without brackets, spaces and special characters: correct it", quote(host))
	case p.LocalSize > p.Size:
		return fmt.Errorf("this host has %d processes, but the world has %d: expected no more: start all processes by one command of the launcher", p.LocalSize, p.Size)
	}
	return nil
}
