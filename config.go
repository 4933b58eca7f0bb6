package nexar

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/nexar-go/nexar/internal/host"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/recipe"
)

// Config says how a node joins a cluster and how it behaves in it. The zero
// value takes everything from the environment, and otherwise the defaults.
type Config struct {
	// Seeds are the addresses ("host:port") of the seeds, any of which
	// admits the node. NEXAR_SEEDS, separated by commas.
	Seeds []string `env:"NEXAR_SEEDS"`

	// Token is the secret that admits nodes, the same for the whole cluster.
	// It never crosses the network. NEXAR_CLUSTER_TOKEN.
	Token string `env:"NEXAR_CLUSTER_TOKEN"`

	// Listen is the UDP address ("host:port") at which other nodes reach this
	// one; its host may be empty for all addresses, its port 0 for any. A TCP
	// socket at the same address notices the end of their processes. The
	// default is ":0". NEXAR_LISTEN.
	Listen string `env:"NEXAR_LISTEN"`

	// Advertise is the address ("host:port", or "host" with the port of
	// Listen) that other nodes are told. The default is the one that the seed
	// sees. NEXAR_ADVERTISE.
	Advertise string `env:"NEXAR_ADVERTISE"`

	// Transports are the ways to reach other nodes that this one may use, of
	// "shm", "tcp" and "quic"; all by default. Two nodes use what both of them
	// may: shared memory within a host, between processes of the same user;
	// otherwise QUIC, and beside it TCP, at the same port, for all payloads.
	// QUIC is used where nothing else leads even if it is not in the list. The
	// order means nothing. NEXAR_TRANSPORTS, separated by commas.
	// NEXAR_ENABLE_TCP_BULK_SIDECAR=0 takes "tcp" out of it.
	Transports []string `env:"NEXAR_TRANSPORTS"`

	// PlainBulk leaves what goes over TCP unprotected: whoever is on the way
	// can read and change it. Who the nodes are is proved all the same. Either
	// all nodes have it or none; between two that do not agree everything goes
	// over QUIC. NEXAR_PLAIN_BULK=1.
	PlainBulk bool `env:"NEXAR_PLAIN_BULK"`

	// Algorithms fixes how collectives are carried out, each as
	// "all_reduce=ring", or "all_reduce=ring/4" for four channels side by side,
	// which are over links even where ranks share memory. All ranks need the
	// same. By default the fastest by a model of the ways between the ranks is
	// taken; so it is where an algorithm is not for so many ranks, or for hosts
	// with several of them and there are none, or would not keep the order of
	// operands that a call needs.
	// NEXAR_ALGORITHMS, separated by commas.
	Algorithms []string `env:"NEXAR_ALGORITHMS"`

	// Deterministic makes the results of reductions depend on nothing but the
	// vectors and the number of ranks: not on the algorithm, the way between the
	// ranks, the number of channels or the length. All ranks have the same bits
	// in any case; this makes them the same on other machines, too. Operands are
	// then combined in a fixed order, which may take longer. All ranks need the
	// same. NEXAR_DETERMINISTIC=1.
	Deterministic bool `env:"NEXAR_DETERMINISTIC"`

	// Rank, if not nil, is the rank that the node wants. Joining fails if
	// another node has it. NEXAR_RANK.
	Rank *int `env:"NEXAR_RANK"`

	// FormTimeout is how long Join waits for the world to form: 5 minutes by
	// default, less than 0 for ever. NEXAR_FORM_TIMEOUT_SECS.
	FormTimeout time.Duration `env:"NEXAR_FORM_TIMEOUT_SECS"`

	// CollectiveTimeout is the longest that a collective may make no
	// progress, on this rank: 30 seconds by default, less than 0 for ever.
	// NEXAR_COLLECTIVE_TIMEOUT_SECS.
	CollectiveTimeout time.Duration `env:"NEXAR_COLLECTIVE_TIMEOUT_SECS"`

	// BarrierTimeout is the longest that a Barrier may make no progress: 30
	// seconds by default, less than 0 for ever. NEXAR_BARRIER_TIMEOUT_SECS.
	BarrierTimeout time.Duration `env:"NEXAR_BARRIER_TIMEOUT_SECS"`

	// CallTimeout limits a Call whose context has no deadline: 30 seconds by
	// default, less than 0 for ever. NEXAR_RPC_TIMEOUT_SECS.
	CallTimeout time.Duration `env:"NEXAR_RPC_TIMEOUT_SECS"`

	// CallsInFlight is how many Calls this node has under way to each rank of a
	// communicator, and takes of each: 1,024 by default, at most 262,144. All
	// nodes need the same. NEXAR_RPC_IN_FLIGHT.
	CallsInFlight int `env:"NEXAR_RPC_IN_FLIGHT"`

	// HeartbeatInterval is how often a silent peer is asked for a sign of
	// life: every second by default, less than 0 never.
	// NEXAR_HEARTBEAT_INTERVAL_SECS.
	HeartbeatInterval time.Duration `env:"NEXAR_HEARTBEAT_INTERVAL_SECS"`

	// HeartbeatTimeout is after what silence a peer counts as failed: 5
	// seconds by default. The end of a process is noticed at once.
	// NEXAR_HEARTBEAT_TIMEOUT_SECS.
	HeartbeatTimeout time.Duration `env:"NEXAR_HEARTBEAT_TIMEOUT_SECS"`

	// BucketBytes is the size, in bytes, of the buckets of AllReduceBuckets: 4
	// MiB by default. All ranks need the same. NEXAR_BUCKET_BYTES.
	BucketBytes int `env:"NEXAR_BUCKET_BYTES"`

	// CompressedMax is how much memory, in bytes, the encodings of all ranks may
	// take in an AllReduceCompressed: 4 GiB by default, less than 0 without
	// limit. NEXAR_COMPRESSED_ALLREDUCE_MAX_BYTES, where 0, too, is without limit.
	CompressedMax int `env:"NEXAR_COMPRESSED_ALLREDUCE_MAX_BYTES"`

	// Memory says how many buffers a communicator keeps for reuse. It has
	// none at first, and keeps what its collectives have needed at one time:
	// with "training", the default, at most 256 of 64 KiB, 32 of 8 MiB, 16 of
	// 64 MiB and 4 of 256 MiB, 2.3 GiB together; with "inference" at most 256
	// of 64 KiB, 16 of 8 MiB and 4 of 64 MiB, 400 MiB together. Larger ones
	// are made anew each time. NEXAR_MEMORY.
	Memory string `env:"NEXAR_MEMORY"`

	// Log takes what the node notes; nil discards it. NEXAR_LOG=debug, info,
	// warn or error logs to standard error from that level on.
	Log *slog.Logger `env:"-"`
}

const (
	defaultListen            = ":0"
	defaultFormTimeout       = 5 * time.Minute
	defaultTimeout           = 30 * time.Second
	defaultCallsInFlight     = 1024
	defaultBucketBytes       = 4 << 20
	defaultCompressedMax     = 4 << 30
	defaultHeartbeatInterval = time.Second
	defaultHeartbeatTimeout  = 5 * time.Second
)

// ConfigFromEnv reads a Config from the environment. Times, whose variables
// end in _SECS, are numbers of seconds, or as time.ParseDuration takes them
// ("250ms"). A malformed value is an ErrConfig that names the variable.
// Variables that are empty or not set leave their fields zero.
func ConfigFromEnv() (Config, error) {
	cfg, err := parseEnv()
	return cfg, opError("environment", err)
}

// parseEnv reads the variables of some fields, or of all if it gets none.
func parseEnv(fields ...string) (Config, error) {
	var cfg Config
	vars := env.ToMap(os.Environ())
	maps.DeleteFunc(vars, func(name, value string) bool {
		return value == "" || len(fields) > 0 && !slices.ContainsFunc(fields, func(f string) bool { return variable(f) == name })
	})
	err := env.ParseWithOptions(&cfg, env.Options{
		Environment: vars,
		FuncMap:     map[reflect.Type]env.ParserFunc{reflect.TypeFor[time.Duration](): parseSeconds},
	})
	if err != nil {
		return Config{}, envError(err, vars)
	}
	if v := vars[variable("CompressedMax")]; v != "" && cfg.CompressedMax == 0 {
		cfg.CompressedMax = -1
	}
	if cfg.Log, err = logFromEnv(vars[variable("Log")]); err != nil {
		return Config{}, err
	}
	if cfg.Transports, err = withSidecar(cfg.Transports, vars[sidecarVariable]); err != nil {
		return Config{}, err
	}
	return cfg, cfg.check()
}

// envError names the variable that could not be parsed, and its value.
func envError(err error, vars map[string]string) error {
	p, ok := errors.AsType[env.ParseError](err)
	if !ok {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	name := variable(p.Name)
	return fmt.Errorf("%w: %s=%q: %w", ErrConfig, name, vars[name], p.Err)
}

// variable is the environment variable of a field of Config.
func variable(field string) string {
	if field == "Log" {
		return "NEXAR_LOG" // which is made a Logger of, not parsed
	}
	f, _ := reflect.TypeFor[Config]().FieldByName(field)
	return f.Tag.Get("env")
}

// parseSeconds parses a number of seconds, or a duration with a unit.
func parseSeconds(value string) (any, error) {
	if secs, err := strconv.ParseFloat(value, 64); err == nil {
		if math.IsNaN(secs) || math.Abs(secs) > math.MaxInt32 {
			return nil, errors.New("out of range")
		}
		return time.Duration(secs * float64(time.Second)), nil
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		return nil, errors.New("neither a number of seconds nor a duration such as 250ms")
	}
	return d, nil
}

func logFromEnv(level string) (*slog.Logger, error) {
	if level == "" {
		return nil, nil
	}
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("%w: NEXAR_LOG=%q: not one of debug, info, warn, error", ErrConfig, level)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l})), nil
}

// check finds values that cannot be meant. It names fields by their variable.
func (cfg *Config) check() error {
	bad := func(field string, value any, why string) error {
		return fmt.Errorf("%w: %s=%v: %s", ErrConfig, variable(field), value, why)
	}
	for _, seed := range cfg.Seeds {
		if !host.IsAddr(seed, false) {
			return bad("Seeds", seed, "not an address of the form host:port")
		}
	}
	if _, err := cfg.token(); err != nil {
		return err
	}
	if i := slices.IndexFunc(cfg.Transports, func(t string) bool { return !slices.Contains(allTransports(), t) }); i >= 0 {
		return bad("Transports", strings.Join(cfg.Transports, ","), fmt.Sprintf("%q is not one of %s", cfg.Transports[i], strings.Join(allTransports(), ", ")))
	}
	if _, err := recipe.ParsePins(cfg.Algorithms); err != nil {
		return bad("Algorithms", strings.Join(cfg.Algorithms, ","), err.Error())
	}
	switch {
	case cfg.Listen != "" && !host.IsAddr(cfg.Listen, true):
		return bad("Listen", cfg.Listen, "not an address of the form host:port, :port or host:0")
	case cfg.Advertise != "" && !host.IsAddr(cfg.Advertise, false) && !host.IsAddr(net.JoinHostPort(cfg.Advertise, "1"), false):
		return bad("Advertise", cfg.Advertise, "neither host:port nor a host")
	case cfg.Rank != nil && *cfg.Rank < 0:
		return bad("Rank", *cfg.Rank, "a rank is not negative")
	case cfg.CallsInFlight < 0 || cfg.CallsInFlight > 1<<18:
		return bad("CallsInFlight", cfg.CallsInFlight, "not from 1 to 262144")
	case cfg.BucketBytes < 0:
		return bad("BucketBytes", cfg.BucketBytes, "negative")
	case cfg.HeartbeatTimeout < 0:
		return bad("HeartbeatTimeout", cfg.HeartbeatTimeout, "negative")
	case cfg.HeartbeatTimeout > 0 && cfg.HeartbeatTimeout <= cfg.HeartbeatInterval:
		return bad("HeartbeatTimeout", cfg.HeartbeatTimeout, fmt.Sprintf("not more than the interval of %v", cfg.HeartbeatInterval))
	case cfg.Memory != "" && cfg.Memory != "training" && cfg.Memory != "inference":
		return bad("Memory", cfg.Memory, "not one of training, inference")
	}
	return nil
}

// token parses Token, whose text is in no error.
func (cfg *Config) token() (pki.Token, error) {
	if cfg.Token == "" {
		return pki.Token{}, nil
	}
	t, err := pki.ParseToken(cfg.Token)
	if err != nil {
		return t, fmt.Errorf("%w: %s: %w", ErrConfig, variable("Token"), err)
	}
	return t, nil
}

// fill takes what is zero in cfg from the environment, and then the defaults.
// Fields are those whose variables count; none are all.
func (cfg Config) fill(fields ...string) (Config, error) {
	e, err := parseEnv(fields...)
	if err != nil {
		return Config{}, err
	}
	if len(cfg.Seeds) == 0 {
		cfg.Seeds = e.Seeds
	}
	cfg.Token = cmp.Or(cfg.Token, e.Token)
	cfg.Listen = cmp.Or(cfg.Listen, e.Listen, defaultListen)
	cfg.Advertise = cmp.Or(cfg.Advertise, e.Advertise)
	if len(cfg.Algorithms) == 0 {
		cfg.Algorithms = e.Algorithms
	}
	if len(cfg.Transports) == 0 {
		cfg.Transports = e.Transports
	}
	if len(cfg.Transports) == 0 {
		cfg.Transports = allTransports()
	}
	cfg.PlainBulk = cfg.PlainBulk || e.PlainBulk
	cfg.Deterministic = cfg.Deterministic || e.Deterministic
	cfg.Rank = cmp.Or(cfg.Rank, e.Rank)
	cfg.FormTimeout = cmp.Or(cfg.FormTimeout, e.FormTimeout, defaultFormTimeout)
	cfg.CollectiveTimeout = cmp.Or(cfg.CollectiveTimeout, e.CollectiveTimeout, defaultTimeout)
	cfg.BarrierTimeout = cmp.Or(cfg.BarrierTimeout, e.BarrierTimeout, defaultTimeout)
	cfg.CallTimeout = cmp.Or(cfg.CallTimeout, e.CallTimeout, defaultTimeout)
	cfg.CallsInFlight = cmp.Or(cfg.CallsInFlight, e.CallsInFlight, defaultCallsInFlight)
	cfg.HeartbeatInterval = cmp.Or(cfg.HeartbeatInterval, e.HeartbeatInterval, defaultHeartbeatInterval)
	cfg.HeartbeatTimeout = cmp.Or(cfg.HeartbeatTimeout, e.HeartbeatTimeout, defaultHeartbeatTimeout)
	cfg.BucketBytes = cmp.Or(cfg.BucketBytes, e.BucketBytes, defaultBucketBytes)
	cfg.CompressedMax = cmp.Or(cfg.CompressedMax, e.CompressedMax, defaultCompressedMax)
	cfg.Memory = cmp.Or(cfg.Memory, e.Memory)
	cfg.Log = cmp.Or(cfg.Log, e.Log, slog.New(slog.DiscardHandler))
	return cfg, cfg.check()
}
