package nexar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/host"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/launch"
	"github.com/nexar-go/nexar/launch/meet"
)

// JoinOrLocal calls [Join] if cfg or the environment names a seed, or if a launcher has started this process. Otherwise it returns the node of a
// world of one rank, so that a program runs with and without a launcher by the same calls:
//
//	node, err := nexar.JoinOrLocal(ctx, nexar.Config{})
//
// Alone it returns [ErrConfig] if a setting suggests that this process is one of several: a
// token, a rank, an address to advertise, [Config].Spare, an empty NEXAR_SEEDS, a misspelt NEXAR_
// variable, a variable of "nexar run", or some but not all variables of a launcher.
//
// A world of one rank has its own seed on the loopback interface, with a random token. [Node.Close]
// closes both. [Node.Epochs], [Node.Reconfigure] and [Node.Leave] behave as in larger worlds, but no
// other node can join.
func JoinOrLocal(ctx context.Context, cfg Config) (*Node, error) { return joinWorld(ctx, cfg, true) }

// A launched is the part of a node that takes the place of "nexar run": a process that a launcher has started may run a seed of its world.
type launched struct {
	process launch.Process
	token   pki.Token            // of its world; zero without a launcher
	seed    atomic.Pointer[Seed] // nil without one
	state   *meet.StateDir       // of the seed; may be nil
	world   meet.World
	// size is the size of the world for the rank of the configuration, if a launcher tells it beside NEXAR_SEEDS.
	size int
}

// askRank makes the node want the rank that a launcher tells, if NEXAR_SEEDS is set and no rank. The variables around "nexar run" are not
// about the processes that it starts.
func (cfg *Config) askRank() (l *launched, err error) {
	l = &launched{}
	if cfg.Rank != nil || cfg.Spare || os.Getenv(localRankVariable) != "" {
		return l, nil
	}
	p, err := meet.Rank(cfg.Launcher, cfg.Log)
	if err != nil {
		return l, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	l.process.LocalRank = p.LocalRank
	if l.size = p.Size; p.Size > 0 {
		cfg.Rank = &p.Rank
	}
	return l, nil
}

// launch finds the launcher of this process, and makes cfg the configuration of a node in its world.
func (cfg *Config) launch(ctx context.Context, mayBeAlone bool) (*launched, error) {
	p, findings, err := launch.Find(launch.Here(), cfg.Launcher)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	case p.Launcher != "" && cfg.CAFile != "":
		return nil, fmt.Errorf("%w: %s=%q: the seed that a process of %s runs has a CA of its own, which nodes with this setting refuse: unset it, or start seeds by 'nexar seed --ca-cert' and set %s to their addresses",
			ErrConfig, variable("CAFile"), cfg.CAFile, p.Launcher, variable("Seeds"))
	case p.Launcher != "":
	case !mayBeAlone:
		hints := meet.Hints(findings)
		for _, p := range CheckEnviron(os.Environ()) {
			hints += fmt.Sprintf(" (%s: %s)", p.Text, p.Fix)
		}
		return nil, fmt.Errorf("%w: no seed: set NEXAR_SEEDS to the address of one, or start this program with 'nexar run', srun, torchrun or mpirun%s", ErrConfig, hints)
	default:
		if err := cfg.checkAlone(os.LookupEnv, os.Environ()); err != nil {
			return nil, err
		}
		p, cfg.LaunchSeeds = launch.Process{Size: 1, LocalSize: 1}, 1
	}
	return cfg.meet(ctx, p)
}

// meet makes cfg the configuration of a node in the world of p, and starts the seed that this process runs, if any.
func (cfg *Config) meet(ctx context.Context, p launch.Process) (l *launched, err error) {
	l = &launched{process: p}
	if cfg.LaunchSeeds > 1 && cfg.Consensus == nil { // on all ranks, since others would wait for those that run seeds
		return l, fmt.Errorf("%w: %s=%d: several seeds need Config.Consensus: use raft.Open of package consensus/raft", ErrConfig, variable("LaunchSeeds"), cfg.LaunchSeeds)
	}
	token, err := cfg.token(ctx)
	if err != nil {
		return l, err
	}
	listen, _, _ := net.SplitHostPort(cfg.Listen)
	ended, end := context.WithCancel(context.Background())
	end()
	l.world, err = meet.Meet(ctx, p, meet.Options{
		Seeds: cfg.LaunchSeeds, Token: token.Reveal(), NewToken: NewToken, Listen: listen, Log: cfg.Log,
		Advertise: cfg.Advertise, Addrs: host.Addrs,
		Start: func(ctx context.Context, s meet.Seed) (string, error) {
			return l.start(ctx, cfg, s, l.tokenOf(token, s.Token))
		},
		Decided: func() bool {
			seed := l.seed.Load()
			return seed != nil && !errors.Is(seed.Wait(ended), context.Canceled)
		},
	})
	if errors.Is(err, launch.ErrLaunch) {
		err = fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if err != nil {
		return l, errors.Join(err, l.close())
	}
	if cfg.Rank == nil {
		cfg.Rank = &p.Rank
	}
	cfg.Seeds, cfg.TokenFile, l.token = l.world.Seeds, "", l.tokenOf(token, l.world.Token)
	if p.OneHost() && cfg.Listen == defaultListen {
		cfg.Listen = "127.0.0.1:0"
	}
	cfg.Log.Info("the launcher says which world this process belongs to", "launcher", p.Launcher, "job", p.Job, "rank", p.Rank, "size", p.Size, "seeds", cfg.Seeds)
	return l, nil
}

// tokenOf derives the token of the world from the one that this process has been given or, if it has none, from one that a process has made.
// Worlds of several jobs with the same secret cannot meet.
func (l *launched) tokenOf(given pki.Token, made string) pki.Token {
	if given.IsZero() {
		given, _ = pki.ParseToken(made) // It is one of NewToken.
	}
	return given.Of(l.process.Job)
}

// start starts a seed.
func (l *launched) start(ctx context.Context, cfg *Config, s meet.Seed, token pki.Token) (addr string, err error) {
	c := SeedConfig{
		Listen: s.Listen, Peers: s.Peers, Advertise: s.Self, World: l.process.Size,
		Transports: cfg.Transports, Factories: cfg.Factories, FormTimeout: cfg.FormTimeout, Log: cfg.Log,
	}
	if l.state = s.State; s.State != nil {
		c.Consensus, c.StateDir = cfg.Consensus, s.State.Path
	}
	seed, err := startSeed(ctx, c, token)
	if err != nil {
		return "", err
	}
	l.seed.Store(seed)
	return seed.Addr(), nil
}

// own makes the seed end after its world, which may be after the node.
func (l *launched) own(n *Node) {
	leave := n.departure.leave
	n.departure.leave = func(ctx context.Context) ([]mesh.Unread, error) {
		l.world.Release() // This process may join the next world of the job.
		unread, err := leave(ctx)
		seed := l.seed.Load()
		if seed == nil {
			return unread, errors.Join(err, l.close())
		}
		select {
		case <-seed.Done():
			return unread, errors.Join(err, l.close())
		case <-ctx.Done(): // Others need the seed, as long as this process runs.
			go func() {
				<-seed.Done()
				_ = l.close()
			}()
			return unread, err
		}
	}
}

// close ends the seed and its announcement.
func (l *launched) close() (err error) {
	l.world.Release()
	if seed := l.seed.Load(); seed != nil {
		err = seed.Close()
	}
	return errors.Join(err, l.state.Close())
}

// checkAlone finds settings that make no sense without a seed.
func (cfg *Config) checkAlone(lookup func(name string) (value string, ok bool), environ []string) error {
	refuse := func(name, sign string) error {
		return fmt.Errorf("%w: %s %s, but there is no seed: set %s to its address, or unset %s to run alone",
			ErrConfig, name, sign, variable("Seeds"), name)
	}
	if _, ok := lookup(variable("Seeds")); ok {
		return fmt.Errorf("%w: %s is empty: set it to the address of a seed, or unset it to run alone", ErrConfig, variable("Seeds"))
	}
	signs := []struct {
		field string
		isSet bool
	}{{"TokenFile", cfg.TokenFile != ""}, {"Token", cfg.Token != ""}, {"CAFile", cfg.CAFile != ""}, {"Rank", cfg.Rank != nil}, {"Advertise", cfg.Advertise != ""}, {"Spare", cfg.Spare}}
	for _, s := range signs {
		if s.isSet {
			return refuse(variable(s.field), "is set")
		}
	}
	for _, name := range []string{"NEXAR_WORLD", "NEXAR_LOCAL_RANK"} { // set by nexar run
		if value, _ := lookup(name); value != "" {
			return refuse(name, "is set")
		}
	}
	for _, p := range CheckEnviron(environ) {
		return fmt.Errorf("%w: %s (%s), and there is no seed", ErrConfig, p.Text, p.Fix)
	}
	return nil
}
