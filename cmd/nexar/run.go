package main

import (
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nexar-go/nexar/cmd/nexar/internal/launch"
	"github.com/nexar-go/nexar/cmd/nexar/internal/ranks"
)

// A runFlags is what nexar run is told.
type runFlags struct {
	peerFlags
	count    int
	seed     string
	world    int
	first    int
	env      []string
	noPrefix bool
	elastic  bool
	min, max int
	grace    time.Duration
}

func newRun(s streams) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run -n COUNT [flags] [--] PROGRAM [ARGUMENT...]",
		Short: "Start a program as several ranks on this host",
		Long:  runHelp, Example: runExamples,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := f.config(cmd.Flags().Changed, args)
			if err != nil {
				return err
			}
			cfg.Title, cfg.Stdin, cfg.Stdout, cfg.Stderr = cmd.CommandPath(), s.in, s.out, s.err
			return guarded(s, cfg.Title, cfg.Grace, func(abandoned <-chan struct{}) error {
				warnOfEnv(s.err, cfg.Title)
				cfg.Abandoned = abandoned
				return ranks.Run(cmd.Context(), cfg)
			})
		},
	}
	f.define(cmd)
	return cmd
}

// define makes the flags of the command.
func (f *runFlags) define(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.SortFlags = false
	flags.IntVarP(&f.count, "processes", "n", 1, "number of processes to start on this host")
	flags.StringVar(&f.seed, "seed", "", "address of the seed of a larger cluster (its token is in NEXAR_CLUSTER_TOKEN)")
	flags.IntVar(&f.world, "world", 0, "ranks of the larger cluster, for NEXAR_WORLD")
	flags.IntVar(&f.first, "first-rank", 0, "rank of the first process in the larger cluster (the seed chooses if it is not given)")
	f.definePeers(cmd)
	flags.StringArrayVar(&f.env, "env", nil, "set a variable in the environment of the program, `NAME=VALUE`; may be repeated")
	flags.BoolVar(&f.noPrefix, "no-prefix", false, "do not begin lines of output with the rank")
	flags.BoolVar(&f.elastic, "elastic", false, "let the others go on when a process fails, and more join")
	flags.IntVar(&f.min, "min", 0, "fewest nodes of an elastic world (default 1)")
	flags.IntVar(&f.max, "max", 0, "most nodes of an elastic world (default: no limit)")
	flags.DurationVar(&f.grace, "grace", launch.DefaultGrace, "how long the others may run after the first failure, and processes that ranks have left after a SIGTERM")
}

// config checks the flags; given reports whether one was given.
// processesMax is far above what a host has processors for, and below what
// would use up its process numbers.
const processesMax = 4096

func (f *runFlags) config(given func(string) bool, program []string) (ranks.Config, error) {
	cfg := ranks.Config{
		Program: program, Count: f.count, Seeds: f.seed, World: f.world,
		Env: f.env, NoPrefix: f.noPrefix, Elastic: f.elastic, Min: f.min, Max: f.max, Grace: f.grace,
	}
	switch {
	case len(program) == 0:
		return cfg, usagef("no program given: nexar run -n %d -- PROGRAM", f.count)
	case f.count < 1:
		return cfg, usagef("-n %d: at least one process is needed", f.count)
	case f.count > processesMax:
		return cfg, usagef("-n %d: at most %d processes are started on one host", f.count, processesMax)
	case f.grace <= 0:
		return cfg, usagef("--grace %v: not more than no time", f.grace)
	}
	for _, pair := range f.env {
		if name, _, ok := strings.Cut(pair, "="); !ok || name == "" {
			return cfg, usagef("--env %q: not of the form NAME=VALUE", pair)
		}
	}
	if len(f.peers) > 0 {
		return f.among(cfg, given)
	}
	if f.stateDir != "" || f.advertise != "" || f.forget {
		return cfg, usagef("--state-dir, --advertise and --forget-state are for one of several seeds: they need --peers")
	}
	if err := checkElastic(f.elastic, f.seed == "", f.min, f.max, f.count); err != nil {
		return cfg, err
	}
	if f.seed == "" {
		return cfg, f.checkWhole(given)
	}
	if given("first-rank") {
		cfg.First = &f.first
	}
	return cfg, f.checkPart(given)
}

// among checks the flags of a part of a larger cluster that has one of its seeds.
func (f *runFlags) among(cfg ranks.Config, given func(string) bool) (ranks.Config, error) {
	switch {
	case f.seed != "":
		return cfg, usagef("--peers are the seeds: leave --seed out")
	case f.world < 1:
		return cfg, usagef("--peers needs --world: the number of ranks of all hosts together")
	}
	if err := f.checkPeers(); err != nil {
		return cfg, err
	}
	if err := checkToken(); err != nil {
		return cfg, err
	}
	if err := checkElastic(f.elastic, true, f.min, f.max, f.world); err != nil {
		return cfg, err
	}
	token, err := f.peerToken()
	if err != nil {
		return cfg, err
	}
	f.seed = strings.Join(f.peers, ",")
	cfg.Seeds = f.seed
	cfg.Own = &ranks.Seed{Listen: f.listen, Peers: f.peers, Advertise: f.advertise, StateDir: f.stateDir, Forget: f.forget, Token: token}
	if given("first-rank") {
		cfg.First = &f.first
	}
	return cfg, f.checkPart(given)
}

// checkElastic checks the flags of an elastic world of a size, which is that of a
// seed of this command, if it has one.
func checkElastic(elastic, whole bool, least, most, size int) error {
	switch {
	case least == 0 && most == 0:
	case !elastic:
		return usagef("--min and --max are for an elastic world: add --elastic")
	case !whole:
		return usagef("--min and --max are for the seed: give them to 'nexar seed'")
	case least < 0 || least > size:
		return usagef("--min %d: a world that forms with %d nodes has between 1 and %d at least", least, size, size)
	case most < 0 || most > 0 && most < size:
		return usagef("--max %d: a world that forms with %d nodes has no fewer at most", most, size)
	}
	return nil
}

// checkWhole checks the flags of a cluster within this host.
func (f *runFlags) checkWhole(given func(string) bool) error {
	switch {
	case given("first-rank"):
		return usagef("--first-rank is for a part of a larger cluster: it needs --seed")
	case given("world") && f.world != f.count:
		return usagef("--world %d with -n %d: for a cluster of several hosts start 'nexar seed --world %d' on one of them, and give its address as --seed", f.world, f.count, f.world)
	}
	return nil
}

// checkPart checks the flags of a part of a larger cluster.
func (f *runFlags) checkPart(given func(string) bool) error {
	if err := checkAddrs(f.seed); err != nil {
		return err
	}
	switch {
	case os.Getenv("NEXAR_CLUSTER_TOKEN") == "":
		return usagef("--seed needs the token of its cluster: set NEXAR_CLUSTER_TOKEN to what 'nexar seed' was started with, or has printed")
	case f.first < 0:
		return usagef("--first-rank %d: a rank is not negative", f.first)
	case given("world") && f.world < f.first+f.count:
		return usagef("--world %d has no room for %d processes from rank %d on", f.world, f.count, f.first)
	}
	if _, port, err := net.SplitHostPort(os.Getenv("NEXAR_LISTEN")); err == nil && port != "0" && port != "" && f.count > 1 {
		return usagef("NEXAR_LISTEN=%q: %d processes cannot listen at one port; use port 0", os.Getenv("NEXAR_LISTEN"), f.count)
	}
	return nil
}
