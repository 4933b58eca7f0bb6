// Package resources compares the limits of this system with the needs of the ranks that are to start
// on it.
//
// The needs are measured: TestRanksNeed of the command counts the open files and threads of ranks,
// and docs/results/footprint.txt has their memory.
package resources

import (
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/nexar-go/nexar/internal/command/internal/report"
)

// A World describes the ranks that are to start.
type World struct {
	Local      int      // ranks on this host
	Size       int      // ranks on all hosts; at least Local
	Transports []string // of NEXAR_TRANSPORTS; empty for the built-in ones
	OnDemand   bool     // NEXAR_LINKS is "demand"
}

// NewWorld returns the world of local ranks on this host among size on all hosts, which is ignored if it
// is smaller. transports is the value of NEXAR_TRANSPORTS, links that of NEXAR_LINKS.
func NewWorld(local, size int, transports, links string) World {
	w := World{Local: local, Size: max(local, size), OnDemand: links == "demand"}
	for name := range strings.SplitSeq(transports, ",") {
		if name = strings.TrimSpace(name); name != "" {
			w.Transports = append(w.Transports, name)
		}
	}
	return w
}

// A Level says whether a resource suffices.
type Level int

const (
	Enough  Level = iota
	Scarce        // it may not suffice
	Missing       // the world cannot form
)

// A Finding compares a need with a limit.
type Finding struct {
	Level Level
	Text  string
	Fix   string // empty if Level is Enough
}

// unlimited is a limit that does not exist, or that this system does not tell.
const unlimited = math.MaxUint64

// limits are the resources that this process and its children can still get.
type limits struct {
	files       uint64 // open files of one process
	userThreads uint64 // further threads of this user
	pids        uint64 // further threads of the cgroup
	memory      uint64 // bytes
}

// Open files of processes, beside those that the program opens.
const (
	filesOfRank     = 13 // without peers
	filesOfPeerShm  = 3
	filesOfPeerTCP  = 5
	filesOfPeerQUIC = 1
	filesOfRun      = 15 // of nexar run, without ranks
	filesOfChild    = 5  // of nexar run, for each rank
	filesOfChildTCP = 7  // the same if ranks have neither shared memory nor QUIC
	// filesSpare are for connections that exist only while the world forms, and for the program.
	filesSpare = 32
)

// Threads of a process. Go starts them on demand.
const (
	threadsSpare = 10 // beyond GOMAXPROCS
	threadsLeast = 5  // Go cannot start a program with less
)

// Resident memory, without vectors.
const (
	memoryOfRank   = 16 << 20
	memoryOfNear   = 256 << 10 // for each peer on this host
	memoryOfRemote = 512 << 10 // for each peer on another host
)

// The links of a rank with links on demand.
const (
	watchesMax    = 12  // to the nodes that it watches, and from those that watch it
	sharedHostMax = 256 // ranks of a world on one host that link themselves to each other to share memory
)

// A count of links is that of a rank, to ranks on this host and on others.
type links struct{ near, remote int }

// all returns links to all ranks.
func (w World) all() links { return links{w.Local - 1, w.Size - w.Local} }

// least returns the links that a rank has as soon as the world has formed.
func (w World) least() links {
	if !w.OnDemand || w.sharesHost() {
		return w.all()
	}
	return w.upTo(watchesMax)
}

// usual returns the links of a rank that calls collectives: on demand, to the peers of their default algorithms.
// Those that exchange blocks directly are left out, since they may need links to all ranks: gather, scatter,
// all-gather, reduce-scatter and all-to-all of some lengths. TestPeersOfPlans of internal/cost has the number.
func (w World) usual() links {
	if !w.OnDemand || w.sharesHost() {
		return w.all()
	}
	return w.upTo(watchesMax + 3*bits.Len(uint(w.Size-1)) + 2)
}

// sharesHost reports whether all ranks share memory.
func (w World) sharesHost() bool {
	return w.Local == w.Size && w.Size <= sharedHostMax && w.uses("shm") && runtime.GOOS == "linux"
}

// upTo returns a number of links, to other hosts first: these need the most files.
func (w World) upTo(n int) links {
	all := w.all()
	remote := min(n, all.remote)
	return links{min(n-remote, all.near), remote}
}

// FilesOfRank returns the number of open files of a rank: with links on demand of one that calls collectives, else
// of one that is linked to all others.
func (w World) FilesOfRank() uint64 { return w.filesOf(w.usual()) }

func (w World) filesOf(l links) uint64 {
	near := filesOfPeerQUIC
	switch {
	case w.uses("shm") && runtime.GOOS == "linux":
		near = filesOfPeerShm
	case w.uses("tcp"):
		near = filesOfPeerTCP
	}
	remote := filesOfPeerQUIC
	if w.uses("tcp") {
		remote = filesOfPeerTCP
	}
	return uint64(filesOfRank + near*l.near + remote*l.remote)
}

// FilesOfRun returns the number of open files of the nexar run that starts the ranks.
func (w World) FilesOfRun() uint64 {
	child := filesOfChild
	if !w.uses("shm") && !w.uses("quic") {
		child = filesOfChildTCP
	}
	return uint64(filesOfRun + child*w.Local)
}

// ThreadsOfRank returns the number of threads of a rank, beside those that the program blocks in system
// calls.
func ThreadsOfRank() uint64 { return uint64(runtime.GOMAXPROCS(0) + threadsSpare) }

func (w World) memory() uint64 {
	l := w.usual()
	return uint64(w.Local) * (memoryOfRank + uint64(l.near+1)*memoryOfNear + uint64(l.remote)*memoryOfRemote)
}

func (w World) uses(transport string) bool {
	return len(w.Transports) == 0 || slices.Contains(w.Transports, transport)
}

// Check compares the needs of a world with the limits of this process.
func Check(w World) []Finding { return check(w, read("/")) }

func check(w World, have limits) []Finding {
	list := []Finding{
		w.rankFiles(have.files),
		files(fmt.Sprintf("nexar run needs %d and some for its own files", w.FilesOfRun()), w.FilesOfRun(), w.FilesOfRun(), have.files),
	}
	list = append(list, w.threads(have)...)
	return append(list, w.checkMemory(have.memory))
}

// rankFiles compares the limit with the files of a rank. With links on demand the text also has the need of a rank that
// is linked to all others, since messages and some collectives may need that.
func (w World) rankFiles(have uint64) Finding {
	usual, all := w.usual(), w.all()
	what := fmt.Sprintf("a rank needs %d and some for its own files", w.filesOf(usual))
	if usual != all {
		what = fmt.Sprintf("a rank with links on demand needs %d and some for its own files with %s, and %d with links to all ranks, as messages, "+
			"gather, scatter, all-gather, reduce-scatter and all-to-all may make them", w.filesOf(usual), report.Count(usual.near+usual.remote, "link"), w.filesOf(all))
	}
	return files(what, w.filesOf(w.least()), w.filesOf(usual), have)
}

// files compares the limit with the files that a process needs, and with the least with which a world can form.
func files(what string, least, need, have uint64) Finding {
	f := Finding{Text: fmt.Sprintf("open files: %s; the hard limit is %s", what, count(have))}
	switch {
	case have < least:
		f.Level = Missing
	case have < need+filesSpare:
		f.Level = Scarce
	default:
		return f
	}
	f.Fix = fmt.Sprintf("raise the limit to %d: ulimit -Hn as root, LimitNOFILE= of a systemd unit, docker run --ulimit nofile=%[1]d", need+filesSpare)
	return f
}

// threads compares the need with the limit of the user and with that of the cgroup.
func (w World) threads(have limits) (list []Finding) {
	local := uint64(w.Local)
	need, least := (local+2)*ThreadsOfRank(), local*threadsLeast // nexar run is two processes
	for _, limit := range []struct {
		have      uint64
		what, fix string
	}{
		{have.userThreads, "this user may start", "raise the limit: ulimit -u as root, or LimitNPROC= of a systemd unit"},
		{have.pids, "the cgroup (pids.max) allows", "raise the limit: docker run --pids-limit, TasksMax= of a systemd unit, podPidsLimit of Kubernetes"},
	} {
		f := Finding{Text: fmt.Sprintf("processes and threads: %s, up to %d threads; %s %s", report.Count(w.Local, "rank"), need, limit.what, more(limit.have))}
		switch {
		case limit.have < least:
			f.Level, f.Fix = Missing, limit.fix
		case limit.have < need:
			f.Level, f.Fix = Scarce, limit.fix+"; a smaller GOMAXPROCS needs fewer threads"
		}
		list = append(list, f)
	}
	return list
}

func (w World) checkMemory(have uint64) Finding {
	text := "unlimited"
	if have != unlimited {
		text = humanize.IBytes(have)
	}
	f := Finding{Text: fmt.Sprintf("memory: %s, %s and the vectors; available: %s", report.Count(w.Local, "rank"), humanize.IBytes(w.memory()), text)}
	if have < w.memory() {
		f.Level, f.Fix = Scarce, "raise the memory limit of the cgroup or container, or run fewer ranks on this host"
	}
	return f
}

// more formats the limit of further threads.
func more(n uint64) string {
	if n == unlimited {
		return "any number of others"
	}
	return count(n) + " more"
}

// count formats a limit.
func count(n uint64) string {
	if n == unlimited {
		return "unlimited"
	}
	return strconv.FormatUint(n, 10)
}
