package launch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nexar-go/nexar/launch/internal/text"
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
	// HasPMI reports whether the ranks can exchange values by [OpenPMI].
	HasPMI bool
}

// String describes the process in one line.
func (p Process) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rank %d of %d", p.Rank, p.Size)
	if p.LocalSize > 0 {
		fmt.Fprintf(&b, ", local rank %d of %d", p.LocalRank, p.LocalSize)
	}
	if len(p.Hosts) > 0 {
		b.WriteString(", first host " + text.Plain(p.Hosts[0]))
	}
	if p.Job != "" {
		b.WriteString(", job " + text.Plain(p.Job))
	}
	return b.String()
}

// OneHost reports whether all ranks run on this host.
func (p Process) OneHost() bool { return p.LocalSize >= p.Size && p.Size > 0 }

// isOdd reports whether a host has characters that neither names nor addresses have, or is longer than names can be.
func isOdd(host string) bool { return text.Plain(host) != host || strings.ContainsAny(host, "[]") }

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
		return fmt.Errorf("a host of the job is %s: expected a name or an address without brackets, spaces and special characters: correct it", text.Quote(host))
	case p.LocalSize > p.Size:
		return fmt.Errorf("this host has %d processes, but the world has %d: expected no more: start all processes by one command of the launcher", p.LocalSize, p.Size)
	}
	return nil
}
