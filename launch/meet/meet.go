// Package meet lets the processes that a launcher has started find the seeds of their world. Package nexar uses it: programs call nexar.Join.
package meet

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/nexar-go/nexar/internal/wake"
	"github.com/nexar-go/nexar/launch"
)

// Options say how the processes of a world find its seeds; see [Meet].
type Options struct {
	// Seeds is the number of processes that run a seed: 1, 3 or 5; 0 means 1.
	Seeds int
	// Token is the secret that this process has been given, or "".
	Token string
	// NewToken makes a token, if the processes have been given none and can exchange one.
	NewToken func() string
	// Listen is the address without port at which a seed of this process listens; "" means all addresses.
	Listen string
	// Advertise is the address, with or without a port, at which other hosts reach this one; "" means that of Listen.
	Advertise string
	// Addrs returns the addresses ("host:port") at which other hosts reach an address of this one, the preferred one first.
	Addrs func(addr string) []string
	// Start starts a seed of this process and returns the address at which it listens. If the port is in use, its error wraps [syscall.EADDRINUSE].
	Start func(ctx context.Context, seed Seed) (addr string, err error)
	// Decided reports whether the world of the seed of this process has formed, or has failed to. Processes that ask later for its
	// address belong to the next world of the same job. It may be called at any time. Nil means that the world is never decided.
	Decided func() bool
	// Log receives a warning if a seed is awaited for long. Nil discards it.
	Log *slog.Logger
}

// A Seed has the parameters of the function Start of [Options].
type Seed struct {
	Listen string // the address ("host:port") at which it listens; port 0 means any free port
	Token  string
	// Self is the address of this seed and Peers are those of all, if there are several. Then State is a directory for its state,
	// which belongs to Start, also after an error.
	Self  string
	Peers []string
	State *StateDir
}

// A World is the result of [Meet].
type World struct {
	Seeds []string // addresses ("host:port"), among them those of all seeds
	Token string   // of the world
	// Shared reports that seeds of other worlds may listen at some of Seeds, since these are derived from the name of the job.
	Shared  bool
	release func() // may be nil
}

// Release ends the announcement of this process. Call it when this process leaves the world, as processes that
// start late need it.
func (w World) Release() {
	if w.release != nil {
		w.release()
	}
}

const (
	// choices is the number of ports at which a single seed may listen if it cannot announce its port.
	choices = 8
	// lateAfter is the time after which one process of each host warns that Meet waits.
	lateAfter = 10 * time.Second
	// pause is the time between two attempts to reach a process that may not have started yet.
	pause = 50 * time.Millisecond
	// failureTime is how long a process announces that its seed has not started.
	failureTime = time.Second
	// addressesMax and failureMax bound an announcement, so that the values of all process managers can contain it.
	addressesMax = 12
	failureMax   = 300 // bytes
	loopback     = "127.0.0.1"
)

// A process is a [launch.Process] that meets the others of its world.
type process struct{ launch.Process }

// Meet starts the seed that a process runs, if any, and returns the addresses of all seeds and the token.
//
// The processes exchange both if they can: over PMI, or on one host of Linux over a socket that only processes of
// the same user can use. Otherwise all of them need the token, the launcher has to name the hosts, and the ports follow from
// the Job of the process.
//
// Meet waits until ctx ends for the processes that run seeds. Its error names what is missing and what to do.
// A seed that has been started before the error belongs to the caller.
func Meet(ctx context.Context, of launch.Process, m Options) (World, error) {
	p := process{of}
	m.Seeds = max(1, m.Seeds)
	if m.Log == nil {
		m.Log = slog.New(slog.DiscardHandler)
	}
	if m.Decided == nil {
		m.Decided = func() bool { return false }
	}
	switch onHosts := len(p.Hosts) * max(1, p.LocalSize); {
	case m.Seeds%2 == 0:
		return World{}, fmt.Errorf("%w: %d seeds: expected 1, 3 or 5, since an even number of seeds can lose no more of them than one seed less: correct NEXAR_LAUNCH_SEEDS", launch.ErrLaunch, m.Seeds)
	case m.Seeds > p.Size:
		return World{}, fmt.Errorf("%w: %d seeds in a world of %d processes: each seed needs a process", launch.ErrLaunch, m.Seeds, p.Size)
	case p.Hosts != nil && p.Tasks == nil && m.Seeds > onHosts:
		return World{}, fmt.Errorf("%w: %d seeds, but %s names %d of the hosts, with %d processes: each seed needs one of these: set NEXAR_LAUNCH_SEEDS=1, or start seeds by 'nexar seed' and set NEXAR_SEEDS to their addresses",
			launch.ErrLaunch, m.Seeds, p.Launcher, len(p.Hosts), onHosts)
	}
	if p.OneHost() {
		m.Listen, m.Advertise, m.Addrs = loopback, "", func(addr string) []string { return []string{addr} }
	}
	if p.canExchange() {
		level := slog.LevelInfo
		if p.warns(m.Seeds) {
			level = slog.LevelWarn
		}
		defer wake.Remind(lateAfter, func(waited time.Duration) {
			m.Log.Log(ctx, level, "a process that runs a seed of this world has not announced it yet", "job", p.Job, "rank", p.Rank, "size", p.Size, "seeds", m.Seeds, "waited", waited)
		}).Stop()
		return p.meetByExchange(ctx, m)
	}
	return p.meetByName(ctx, m)
}

// meetByName uses addresses that all processes know from their launcher.
func (p process) meetByName(ctx context.Context, m Options) (World, error) {
	switch {
	case len(p.Hosts) == 0 && !p.OneHost():
		return World{}, fmt.Errorf("%w: %s does not tell its processes the address of rank 0: start a seed by 'nexar seed --world %d' and set NEXAR_SEEDS to its address", launch.ErrLaunch, p.Launcher, p.Size)
	case m.Token == "":
		return World{}, fmt.Errorf("%w: the processes of this world have no secret: %s", launch.ErrLaunch, p.secretHint())
	}
	met := World{Seeds: p.addresses(m.Seeds), Token: m.Token, Shared: m.Seeds == 1}
	seed, runs := p.runsSeed(m.Seeds)
	if !runs {
		return met, nil
	}
	start := Seed{Token: m.Token}
	if m.Seeds > 1 {
		start.Self, start.Peers = met.Seeds[seed], met.Seeds
	}
	return met, p.start(ctx, m, seed, start)
}

// addresses returns those of n seeds, each with portsOfSeed(n) ports.
func (p process) addresses(n int) (addrs []string) {
	for k := range n {
		host := p.seedHost(k)
		if p.OneHost() {
			host = loopback
		}
		for _, port := range p.ports(k, portsOfSeed(n)) {
			addrs = append(addrs, address(host, port))
		}
	}
	return addrs
}

// Seeds returns the addresses ("host:port") at which the processes of a world look for n seeds, if these follow from the name of the job. It is nil if the
// processes exchange the addresses instead, or cannot find each other.
func Seeds(of launch.Process, n int) []string {
	p := process{of}
	if p.canExchange() || len(p.Hosts) == 0 && !p.OneHost() {
		return nil
	}
	return p.addresses(min(max(1, n), p.Size))
}

func address(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// portsOfSeed is the number of ports at which each of n seeds may listen. Several seeds have to know each other's before they start.
func portsOfSeed(n int) int {
	if n > 1 {
		return 1
	}
	return choices
}

// run starts a seed and returns its port.
func (m Options) run(ctx context.Context, seed Seed) (port int, err error) {
	if len(seed.Peers) > 0 {
		if seed.State, err = NewStateDir(); err != nil {
			return 0, fmt.Errorf("%w: the directory for the state of a seed, which several seeds (NEXAR_LAUNCH_SEEDS) need, cannot be made: set TMPDIR to a directory that this process can write to: %w", launch.ErrLaunch, err)
		}
	}
	addr, err := m.Start(ctx, seed)
	if err != nil {
		return 0, err
	}
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

// reach returns the addresses at which other hosts reach a port of this one.
func (m Options) reach(port int) []string {
	host := cmp.Or(m.Advertise, m.Listen)
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return m.Addrs(address(host, port))
}

// start starts the seed with a number at the first of its ports that is free.
func (p process) start(ctx context.Context, m Options, number int, seed Seed) (err error) {
	ports := p.ports(number, portsOfSeed(m.Seeds))
	for _, port := range ports {
		seed.Listen = address(m.Listen, port)
		if _, err = m.run(ctx, seed); !errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
	}
	return p.portsInUse(number, ports, err)
}

func (p process) portsInUse(seed int, ports []int, err error) error {
	return fmt.Errorf("seed %d of job %s: its ports %v, derived from the name of the job, are in use on this host: start seeds by 'nexar seed' and set NEXAR_SEEDS to their addresses: %w", seed, p.job(), ports, err)
}

// An announcement is what a process that runs a seed tells all processes.
type announcement struct {
	Rank, Size int      // as its launcher says
	Seeds      []string // the addresses of the seed
	Token      string   `json:",omitempty"` // if the processes have been given none
	Failure    []byte   `json:",omitempty"` // why the seed has not started; as base64, since values of PMI have no spaces
}

// announce starts the only seed of a world, or reserves the port of one of several seeds, which start when they know each other. It returns what the
// other processes need to know, also after an error.
func (p process) announce(ctx context.Context, m Options, seed int) (own announcement, port *reservation, err error) {
	own = announcement{Rank: p.Rank, Size: p.Size}
	token := m.Token
	if seed == 0 && token == "" {
		token = m.NewToken()
		own.Token = token
	}
	most, number := addressesMax, 0
	if m.Seeds > 1 {
		most = 1 // the one that the seeds know each other by
		if port, err = p.reserve(m, seed); err == nil {
			number = port.number
		}
	} else {
		number, err = m.run(ctx, Seed{Listen: address(m.Listen, 0), Token: token})
	}
	if err == nil {
		if own.Seeds = m.reach(number); len(own.Seeds) == 0 {
			err = fmt.Errorf("%w: this host has no address that other hosts can reach: set NEXAR_ADVERTISE to one", launch.ErrLaunch)
		}
	}
	if err != nil {
		text := err.Error()
		return announcement{Rank: p.Rank, Size: p.Size, Failure: []byte(text[:min(len(text), failureMax)])}, port, err
	}
	own.Seeds = own.Seeds[:min(len(own.Seeds), most)]
	return own, port, nil
}

// A reservation is a port that no other program can take before the seed starts.
type reservation struct {
	net.Listener
	number int
}

// reserve reserves a port for one of several seeds. Without the name of a job, the seeds of several jobs would try the same ports.
func (p process) reserve(m Options, seed int) (*reservation, error) {
	if p.Job == "" {
		p.Job = rand.Text()
	}
	ports := p.ports(seed, choices)
	for _, port := range ports {
		l, err := net.Listen("tcp", address(m.Listen, port))
		switch {
		case err == nil:
			return &reservation{l, port}, nil
		case !errors.Is(err, syscall.EADDRINUSE):
			return nil, err
		}
	}
	return nil, p.portsInUse(seed, ports, syscall.EADDRINUSE)
}

// meetByExchange announces the seed of this process to the other processes.
func (p process) meetByExchange(ctx context.Context, m Options) (World, error) {
	seed, runs := p.runsSeed(m.Seeds)
	var own announcement
	var port *reservation
	var failure error
	if runs {
		if own, port, failure = p.announce(ctx, m, seed); port != nil {
			defer port.Close()
		}
	}
	all, release, err := p.exchange(ctx, seed, runs, own, m.Seeds, m.Decided)
	if err := errors.Join(failure, err); err != nil {
		if failure != nil && !p.HasPMI && p.Size > 1 { // The others learn of it, if they start soon.
			select {
			case <-time.After(failureTime):
			case <-ctx.Done():
			}
		}
		release()
		return World{}, err
	}
	met, err := p.combine(m, all)
	if err == nil && runs && m.Seeds > 1 {
		port.Close()
		_, err = m.run(ctx, Seed{Listen: address(m.Listen, port.number), Token: met.Token, Self: met.Seeds[seed], Peers: met.Seeds})
	}
	if met.release = release; err != nil {
		release()
	}
	return met, err
}

// combine checks the announcements of all seeds.
func (p process) combine(m Options, all []announcement) (World, error) {
	met := World{Token: cmp.Or(m.Token, all[0].Token)}
	for _, a := range all {
		switch {
		case len(a.Failure) > 0:
			return met, fmt.Errorf("rank %d could not start the seed of this world: %s", a.Rank, a.Failure)
		case a.Size != p.Size:
			return met, fmt.Errorf("%w: rank %d has been told that the world has %d processes, rank %d that it has %d: start all processes with the same number", launch.ErrLaunch, a.Rank, a.Size, p.Rank, p.Size)
		}
		met.Seeds = append(met.Seeds, a.Seeds...)
	}
	first, has, lacks := all[0], p.Rank, all[0].Rank
	if m.Token == "" {
		has, lacks = first.Rank, p.Rank
	}
	if wasGiven := first.Token == ""; wasGiven != (m.Token != "") && p.Rank != first.Rank {
		return met, fmt.Errorf("%w: rank %d has a token and rank %d has none: set NEXAR_CLUSTER_TOKEN or NEXAR_CLUSTER_TOKEN_FILE on all ranks or on none", launch.ErrLaunch, has, lacks)
	}
	return met, nil
}

// secretHint says how the processes of this launcher get a token.
func (p process) secretHint() string {
	switch p.Launcher {
	case launch.Slurm:
		return "put 'export NEXAR_CLUSTER_TOKEN=$(nexar token)' into the batch script before srun, or start them by 'srun --mpi=pmi2'"
	case launch.Kubernetes:
		return "mount a Secret with a token of 'nexar token', and set NEXAR_CLUSTER_TOKEN_FILE to its file"
	}
	return "set NEXAR_CLUSTER_TOKEN_FILE on all hosts to a file with the same token, which 'nexar token' makes"
}
