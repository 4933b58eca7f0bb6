package command

import (
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/command/internal/launch"
	"github.com/nexar-go/nexar/internal/command/internal/ranks"
)

// runFlags are the flags of nexar run.
type runFlags struct {
	peerFlags
	count    int
	seed     string
	world    int
	first    int
	env      []string
	topology string
	noPrefix bool
	stacks   bool
	elastic  bool
	min, max int
	grace    time.Duration
	http     string
	metrics  string
}

func newRun(s streams) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run -n COUNT [flags] [--] PROGRAM [ARGUMENT...]",
		Short: "Start a program as several ranks on this host",
		Long:  runHelp, Example: runExamples,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			title := cmd.CommandPath()
			f.detach(s.err, title)
			return guarded(s, title, f.grace, func(abandoned <-chan struct{}) error {
				cfg, err := f.config(cmd.Flags().Changed, args)
				if err != nil {
					return err
				}
				cfg.Title, cfg.Stdin, cfg.Stdout, cfg.Stderr, cfg.Abandoned = title, s.in, s.out, s.err, abandoned
				cfg.Serve = f.serve(s.err, title)
				warnOfEnv(s.err, title)
				warnOfIgnored(s.err, cfg)
				return ranks.Run(cmd.Context(), cfg)
			})
		},
	}
	f.define(cmd)
	return cmd
}

// define adds the flags to the command.
func (f *runFlags) define(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.SortFlags = false
	flags.IntVarP(&f.count, "processes", "n", 1, "number of processes on this host; also -np")
	flags.StringVar(&f.seed, "seed", "", "`address` of the seed of a larger cluster, or several separated by commas; its token is in NEXAR_CLUSTER_TOKEN or NEXAR_CLUSTER_TOKEN_FILE (default NEXAR_SEEDS)")
	flags.IntVar(&f.world, "world", 0, "number of ranks of the larger cluster")
	flags.IntVar(&f.first, "first-rank", 0, "rank of the first process in the larger cluster (default: chosen by the seed)")
	f.definePeers(cmd)
	flags.StringArrayVar(&f.env, "env", nil, "set a variable of the program, `NAME=VALUE`; may be repeated")
	flags.StringVar(&f.topology, "topology", "", "`neighbors` of each node: full, k-regular:K, hypercube (default NEXAR_TOPOLOGY, or full)")
	flags.BoolVar(&f.noPrefix, "no-prefix", false, "do not prefix lines of output with the rank")
	flags.BoolVar(&f.stacks, "stacks", false, "make SIGQUIT (Ctrl-\\) print the stacks of all goroutines too")
	flags.BoolVar(&f.elastic, "elastic", false, "continue when a process fails, and let more join")
	flags.IntVar(&f.min, "min", 0, "minimum `number` of nodes of an elastic world (default 1)")
	flags.IntVar(&f.max, "max", 0, "maximum `number` of nodes of an elastic world (default: no limit)")
	flags.StringVar(&f.http, "http", "", httpUsage)
	flags.StringVar(&f.metrics, "metrics", "", metricsUsage)
	flags.DurationVar(&f.grace, "grace", launch.DefaultGrace, "time for the other processes to end after the first failure, and for descendants after SIGTERM")
}

// serve returns the page and the metrics, as far as they are asked for.
func (f *runFlags) serve(w io.Writer, title string) (list []func(seeds, token string, ticket func() (string, error)) (stop func(), err error)) {
	of := func(seeds, token string) nexar.Config {
		return nexar.Config{Seeds: strings.Split(seeds, ","), Token: token}
	}
	if f.http != "" {
		list = append(list, func(seeds, token string, ticket func() (string, error)) (func(), error) {
			command, err := ticket()
			if err != nil {
				return nil, err
			}
			return servePage(w, title, f.http, command, of(seeds, token))
		})
	}
	if f.metrics != "" {
		list = append(list, func(seeds, token string, _ func() (string, error)) (func(), error) {
			return serveMetrics(w, title, f.metrics, of(seeds, token))
		})
	}
	return list
}

// detach makes a nexar run within a rank of another one independent of that. Without it, its processes would join the outer
// world in the place of other ranks, or be refused.
func (f *runFlags) detach(w io.Writer, title string) {
	outer := ranks.Nested()
	if outer == "" {
		return
	}
	own := f.seed == "" && len(f.peers) == 0
	if own {
		fmt.Fprintf(w, "%s: note: this is a process of a rank of another nexar run: the ranks are a world of their own (--seed %s would join that one)\n", title, outer)
	}
	ranks.Unset(own)
}

// processesMax is far more than a host has processors, and fewer than its process IDs.
const processesMax = 4096

// config checks the flags and returns the settings of the run. given reports whether a flag was given.
func (f *runFlags) config(given func(string) bool, program []string) (cfg ranks.Config, err error) {
	cfg = ranks.Config{
		Program: program, Count: f.count, Seeds: f.seed, World: f.world,
		Env: f.env, NoPrefix: f.noPrefix, Elastic: f.elastic, Min: f.min, Max: f.max, Grace: f.grace,
	}
	switch {
	case len(program) == 0:
		return cfg, usagef("PROGRAM is missing: nexar run -n %d -- PROGRAM", f.count)
	case f.count < 1:
		return cfg, usagef("-n %d: must be at least 1", f.count)
	case f.count > processesMax:
		return cfg, usagef("-n %d: must be at most %d", f.count, processesMax)
	case f.grace <= 0:
		return cfg, usagef("--grace %v: must be positive", f.grace)
	}
	for flag, value := range map[string]string{"--http": f.http, "--metrics": f.metrics} {
		if _, err := httpAddr(flag, value); err != nil {
			return cfg, err
		}
	}
	for _, pair := range f.env {
		if name, _, ok := strings.Cut(pair, "="); !ok || name == "" {
			return cfg, usagef("--env %q: want NAME=VALUE", pair)
		}
	}
	if err := checkEnv(); err != nil {
		return cfg, err
	}
	if f.stacks {
		cfg.Env = append([]string{"NEXAR_STACKS=1"}, cfg.Env...)
	}
	if err := f.checkTopology(); err != nil {
		return cfg, err
	}
	if f.topology != "" {
		cfg.Env = append([]string{"NEXAR_TOPOLOGY=" + f.topology}, cfg.Env...)
	}
	if err := f.seedFromEnv(); err != nil {
		return cfg, err
	}
	cfg.Seeds = f.seed
	if cfg.Token, err = clusterToken(f.env); err != nil {
		return cfg, err
	}
	if len(f.peers) > 0 {
		return f.among(cfg, given)
	}
	if f.stateDir != "" || f.advertise != "" || f.forget || f.caCert != "" || f.caKey != "" {
		return cfg, usagef("--state-dir, --advertise, --forget-state, --ca-cert and --ca-key need --peers: they are for one of several seeds")
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
	return cfg, f.checkPart(cfg.Token, given)
}

// checkEnv reports malformed variables that nexar run sets for the ranks, which do not see them. All
// others are for the ranks to report.
func checkEnv() error {
	_, err := nexar.ConfigFromEnv()
	for _, name := range []string{"NEXAR_LISTEN", "NEXAR_RANK"} {
		if err != nil && strings.Contains(err.Error(), name+"=") {
			return usagef("%w", err)
		}
	}
	return nil
}

// checkTopology checks the topology that the ranks get, so that it is refused once, before they start. In a world that is not
// elastic, its number of neighbors must fit the number of ranks, if this command knows it.
func (f *runFlags) checkTopology() error {
	what, value := "NEXAR_TOPOLOGY", os.Getenv("NEXAR_TOPOLOGY")
	if f.topology != "" {
		what, value = "--topology", f.topology
	}
	for _, pair := range f.env { // The last one decides.
		if v, ok := strings.CutPrefix(pair, "NEXAR_TOPOLOGY="); ok {
			what, value = "--env NEXAR_TOPOLOGY", v
		}
	}
	size := f.world
	if size == 0 && f.seed == "" && len(f.peers) == 0 && os.Getenv("NEXAR_SEEDS") == "" {
		size = f.count
	}
	if f.elastic {
		size = 0
	}
	if err := nexar.CheckTopology(value, size); err != nil {
		return usagef("%s %s: %w", what, value, err)
	}
	return nil
}

// warnOfIgnored warns of variables that the ranks do not get, because nexar run sets them.
func warnOfIgnored(w io.Writer, cfg ranks.Config) {
	note := func(name, why string) {
		fmt.Fprintf(w, "%s: note: %s=%q is ignored: %s\n", cfg.Title, name, os.Getenv(name), why)
	}
	whole := cfg.Seeds == ""
	if own := "127.0.0.1:0"; whole && os.Getenv("NEXAR_LISTEN") != "" && os.Getenv("NEXAR_LISTEN") != own {
		note("NEXAR_LISTEN", "the ranks of a world of this host alone listen on "+own+"; --env NEXAR_LISTEN=ADDRESS overrides that")
	}
	switch rank := os.Getenv("NEXAR_RANK"); {
	case rank == "":
	case whole:
		note("NEXAR_RANK", "the ranks of a world of this host alone are 0 to "+strconv.Itoa(cfg.Count-1))
	case cfg.First == nil:
		note("NEXAR_RANK", "the seed chooses the ranks; --first-rank "+rank+" sets them")
	case strconv.Itoa(*cfg.First) != rank:
		note("NEXAR_RANK", "--first-rank sets the ranks")
	}
}

// seedFromEnv makes NEXAR_SEEDS the default of --seed. Ranks that ignored it would form a world of
// their own beside the one that the user meant. The same addresses in another order, or without the
// default port, are no contradiction.
func (f *runFlags) seedFromEnv() error {
	env := os.Getenv("NEXAR_SEEDS")
	given, flag := f.seed, "--seed"
	if len(f.peers) > 0 {
		given, flag = strings.Join(f.peers, ","), "--peers"
	}
	switch {
	case env == "" || slices.Equal(seedSet(env), seedSet(given)):
	case given != "":
		return usagef("%s %s contradicts NEXAR_SEEDS=%s: unset the variable, or leave the flag out", flag, given, env)
	default:
		f.seed = env
	}
	return nil
}

// seedSet returns the addresses of a list of seeds, with ports, sorted and each once.
func seedSet(list string) []string {
	var set []string
	for _, addr := range strings.Split(list, ",") {
		if addr = strings.TrimSpace(addr); addr != "" {
			set = append(set, withSeedPort(addr))
		}
	}
	slices.Sort(set)
	return slices.Compact(set)
}

// among checks the flags of a part of a larger cluster that runs one of its seeds.
func (f *runFlags) among(cfg ranks.Config, given func(string) bool) (ranks.Config, error) {
	switch {
	case f.seed != "":
		return cfg, usagef("--seed and --peers: give one of them; --peers are the seeds")
	case f.world < 1:
		return cfg, usagef("--peers needs --world, the number of ranks of all hosts together")
	}
	if err := f.checkPeers(); err != nil {
		return cfg, err
	}
	if err := checkToken(cfg.Token); err != nil {
		return cfg, err
	}
	if err := checkElastic(f.elastic, true, f.min, f.max, f.world); err != nil {
		return cfg, err
	}
	peerToken, err := f.peerToken()
	if err != nil {
		return cfg, err
	}
	f.seed = strings.Join(f.peers, ",")
	cfg.Seeds = f.seed
	cfg.Own = &ranks.Seed{Listen: f.listen, Peers: f.peers, Advertise: f.advertise, StateDir: f.stateDir, Forget: f.forget, Token: peerToken, CACert: f.caCert, CAKey: f.caKey}
	if given("first-rank") {
		cfg.First = &f.first
	}
	return cfg, f.checkPart(cfg.Token, given)
}

// checkElastic checks the flags of an elastic world that forms with size nodes. ownSeed says that
// this command runs its seed.
func checkElastic(elastic, ownSeed bool, least, most, size int) error {
	switch {
	case least == 0 && most == 0:
	case !elastic:
		return usagef("--min and --max need --elastic")
	case !ownSeed:
		return usagef("--min and --max are for the seed: pass them to 'nexar seed'")
	case least < 0 || least > size:
		return usagef("--min %d: must be between 1 and the initial world size (%d)", least, size)
	case most < 0 || most > 0 && most < size:
		return usagef("--max %d: must be at least the initial world size (%d)", most, size)
	}
	return nil
}

// checkWhole checks the flags of a cluster on this host alone.
func (f *runFlags) checkWhole(given func(string) bool) error {
	switch {
	case given("first-rank"):
		return usagef("--first-rank needs --seed: it is for a part of a larger cluster")
	case given("world") && f.world < f.count:
		return usagef("--world %d: must be at least the number of processes on this host (-n %d)", f.world, f.count)
	case given("world") && f.world != f.count:
		return usagef("--world %d with -n %d: for a cluster of several hosts, start 'nexar seed --world %d' on one of them and pass its address as --seed", f.world, f.count, f.world)
	}
	return nil
}

// checkPart checks the flags of a part of a larger cluster.
func (f *runFlags) checkPart(token string, given func(string) bool) error {
	if err := checkAddrs(f.seed); err != nil {
		return err
	}
	switch {
	case token == "":
		return usagef("NEXAR_CLUSTER_TOKEN and NEXAR_CLUSTER_TOKEN_FILE are not set: the seed (--seed, NEXAR_SEEDS) needs the token that 'nexar seed' was started with or printed")
	case f.first < 0:
		return usagef("--first-rank %d: must not be negative", f.first)
	case given("world") && f.world < f.first+f.count:
		return usagef("--world %d: must be at least --first-rank plus the number of processes (%d)", f.world, f.first+f.count)
	}
	if _, port, err := net.SplitHostPort(os.Getenv("NEXAR_LISTEN")); err == nil && port != "0" && port != "" && f.count > 1 {
		return usagef("NEXAR_LISTEN=%q: %d processes cannot use one port: use port 0", os.Getenv("NEXAR_LISTEN"), f.count)
	}
	return nil
}
