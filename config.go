package nexar

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nexar-go/nexar/internal/host"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/node"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/selector"
	"github.com/nexar-go/nexar/internal/settings"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

//go:generate go run ./internal/settings/table config.go docs/config.md

// Config says how a node joins a cluster and how it behaves in it. The zero
// value takes everything from the environment, and otherwise the defaults.
//
// The tags of the fields have their variables, defaults and bounds, which
// docs/config.md has in tables.
type Config struct {
	// # Joining a cluster

	// Seeds are the addresses ("host:port", or "host" with the port 7946) of the seeds,
	// any of which admits the node. "NAME=ADDR" is an address in the form of the transport of
	// that name in Factories. NEXAR_SEEDS, separated by commas.
	Seeds []string `env:"NEXAR_SEEDS"`

	// Token is the secret that admits nodes, the same for the whole cluster.
	// It never crosses the network. NEXAR_CLUSTER_TOKEN.
	Token string `env:"NEXAR_CLUSTER_TOKEN"`

	// TokenFile is the path of a file with the Token, in place of it. Only the owner
	// of the file may access it (mode 0600). NEXAR_CLUSTER_TOKEN_FILE.
	TokenFile string `env:"NEXAR_CLUSTER_TOKEN_FILE"`

	// CAFile is the path of a file with the certificates (PEM) of CAs, of which one must have
	// signed the CA of the cluster, as by SeedConfig.CACertFile. Joining fails with an error that
	// names both CAs if another has, or if the seed has no such CA; the node tells it nothing
	// then. The token is needed all the same. By default any seed that has the token is
	// accepted. NEXAR_CA_FILE.
	CAFile string `env:"NEXAR_CA_FILE"`

	// Listen is the UDP address ("host:port") at which other nodes reach this
	// one; its host may be empty for all addresses, its port 0 for any. A TCP
	// socket at the same address notices the end of their processes. The
	// default is ":0". NEXAR_LISTEN.
	Listen string `env:"NEXAR_LISTEN" default:":0"`

	// Advertise is the address ("host:port", or "host" with the port of
	// Listen) that other nodes are told. The default is the one that the seed
	// sees. NEXAR_ADVERTISE.
	Advertise string `env:"NEXAR_ADVERTISE"`

	// AdvertiseUnchecked has the seed admit this node without a check of Advertise. By default
	// the seed dials that address, over UDP and TCP, while the node joins, and refuses the
	// node if it does not answer there within 3 seconds. Set it if other nodes can reach the
	// address and the seed cannot, as behind a NAT that does not return packets to its
	// inside, or a firewall between the seed and the nodes. The default is off.
	// NEXAR_ADVERTISE_UNCHECKED=1.
	AdvertiseUnchecked bool `env:"NEXAR_ADVERTISE_UNCHECKED"`

	// Rank, if not nil, is the rank that the node wants, from 0 on. Joining
	// fails if another node has it. NEXAR_RANK.
	Rank *int `env:"NEXAR_RANK" min:"0"`

	// FormTimeout is how long Join waits for the world to form: 5 minutes by
	// default, less than 0 for ever. NEXAR_FORM_TIMEOUT_SECS.
	FormTimeout time.Duration `env:"NEXAR_FORM_TIMEOUT_SECS" default:"5m"`

	// # Ways to other nodes

	// Transports are the transports that this node may use: "shm", "tcp", "quic"
	// and the names of Factories; by default all of them. Two nodes use the best
	// that both have: shared memory between processes of one user on one host;
	// otherwise QUIC, and beside it TCP, at the same port, for all payloads; TCP
	// alone where one of them lacks QUIC. With "tcp" or "shm,tcp" neither joining
	// nor anything else needs UDP. If a seed answers over TCP and not over QUIC,
	// UDP is taken to be filtered, and the node goes on without QUIC and logs so.
	// QUIC is used in any case if nothing else in the list crosses hosts. The order
	// means nothing. NEXAR_TRANSPORTS, separated by commas;
	// NEXAR_ENABLE_TCP_BULK_SIDECAR, which is 1 by default, takes "tcp" out if it
	// is 0.
	Transports []string `env:"NEXAR_TRANSPORTS" also:"NEXAR_ENABLE_TCP_BULK_SIDECAR" default:"shm,tcp,quic"`

	// Factories add transports of the program to the built-in ones. Nodes use one
	// with each other if both have a factory of its name; it is preferred to the
	// built-in transports between the same places, and earlier factories to later
	// ones. A transport that breaks its contract is contained: its Conn ends with
	// an error that names it, and a call that does not return is abandoned after
	// HeartbeatTimeout.
	Factories []transport.Factory `env:"-" set:"program"`

	// PlainBulk sends payloads over TCP without TLS: everyone on the path can read and
	// change them, and only the checksum of TCP detects damage. The nodes still prove their
	// identities. Two nodes that do not both set it send everything over QUIC.
	// NEXAR_PLAIN_BULK=1 or NEXAR_ENCRYPT_BULK_TRANSPORT=0; by default they are 0 and 1, and
	// payloads are protected. It is an error if they contradict each other, or if either
	// asks for protection and the program sets PlainBulk.
	PlainBulk bool `env:"NEXAR_PLAIN_BULK" also:"NEXAR_ENCRYPT_BULK_TRANSPORT"`

	// Topology says which nodes are connected: "full", the default, or "full_mesh", all of
	// them. Sparse topologies, such as "k-regular:K" and "hypercube", are refused.
	// NEXAR_TOPOLOGY.
	Topology string `env:"NEXAR_TOPOLOGY" default:"full"`

	// # Collectives

	// Algorithms fixes how collectives are carried out, each as
	// "all_reduce=ring", or "all_reduce=ring/4" for four channels side by side,
	// which are over links even where ranks share memory. All ranks need the
	// same. By default the fastest by a model of the ways between the ranks is
	// taken; so it is where an algorithm is not for so many ranks, or for hosts
	// with several of them and there are none, or would not keep the order of
	// operands that a call, or Deterministic, needs. NEXAR_ALGORITHMS, separated
	// by commas.
	Algorithms []string `env:"NEXAR_ALGORITHMS"`

	// Deterministic makes the results of reductions depend on nothing but the
	// vectors and the number of ranks: not on the algorithm, the way between the
	// ranks, the number of channels or the length. All ranks have the same bits
	// in any case; this makes them the same on other machines, too. Operands are
	// then combined in a fixed order, which may take longer. All ranks need the
	// same. The default is off. NEXAR_DETERMINISTIC=1.
	Deterministic bool `env:"NEXAR_DETERMINISTIC"`

	// CollectiveTimeout is the longest that a collective may make no
	// progress, on this rank: 30 seconds by default, less than 0 for ever.
	// NEXAR_COLLECTIVE_TIMEOUT_SECS.
	CollectiveTimeout time.Duration `env:"NEXAR_COLLECTIVE_TIMEOUT_SECS" default:"30s"`

	// BarrierTimeout is the longest that a Barrier may make no progress: 30
	// seconds by default, less than 0 for ever. NEXAR_BARRIER_TIMEOUT_SECS.
	BarrierTimeout time.Duration `env:"NEXAR_BARRIER_TIMEOUT_SECS" default:"30s"`

	// BucketBytes is the size, in bytes, of the buckets of AllReduceBuckets: 4
	// MiB by default, at most 512 GiB. All ranks need the same. NEXAR_BUCKET_BYTES.
	BucketBytes int `env:"NEXAR_BUCKET_BYTES" default:"4194304" min:"0" max:"549755813888"`

	// CompressedMaxBytes is how much memory, in bytes, the encodings of all ranks may
	// take in an AllReduceCompressed: 4 GiB by default, at most 512 GiB, less than
	// 0 without limit but that. NEXAR_COMPRESSED_ALLREDUCE_MAX_BYTES, where 0, too, is without limit.
	CompressedMaxBytes int `env:"NEXAR_COMPRESSED_ALLREDUCE_MAX_BYTES" default:"4294967296" max:"549755813888"`

	// LargeMessageBytes is the length in bytes, at most 512 GiB, from which an AllReduce
	// runs along a ring, unless Algorithms fixes another algorithm or the call needs the
	// order of operands: a hint that overrides the model. All ranks need the same. The
	// default, 0, leaves the choice to the model. NEXAR_LARGE_MSG_BYTES.
	LargeMessageBytes int `env:"NEXAR_LARGE_MSG_BYTES" min:"0" max:"549755813888"`

	// PipelineSegmentBytes is the length in bytes, at most 512 GiB, of the slices of a large
	// vector that go along the ring at the same time, each on a channel. Large are vectors
	// from LargeMessageBytes on or, if that is 0, from 8 MiB on. It has no effect on ranks
	// that share memory. All ranks need the same. The default, 0, leaves the number of
	// channels to the model. NEXAR_PIPELINE_SEGMENT_BYTES.
	PipelineSegmentBytes int `env:"NEXAR_PIPELINE_SEGMENT_BYTES" min:"0" max:"549755813888"`

	// RingMaxWorld is the largest number of ranks for which an AllReduce of 64 KiB and more
	// runs along a ring, as LargeMessageBytes has it. All ranks need the same. The default,
	// 0, leaves the choice to the model. NEXAR_RING_MAX_WORLD.
	RingMaxWorld int `env:"NEXAR_RING_MAX_WORLD" min:"0"`

	// # Calls of functions

	// CallTimeout limits a Call whose context has no deadline: 30 seconds by
	// default, less than 0 for ever. NEXAR_RPC_TIMEOUT_SECS.
	CallTimeout time.Duration `env:"NEXAR_RPC_TIMEOUT_SECS" default:"30s"`

	// MaxConcurrentCalls limits the Calls in progress from this node to each rank of a
	// communicator, and from each rank to this node: 1,024 by default, at most 262,144. Their
	// arguments have at most 1 GiB together. All nodes need the same. NEXAR_RPC_IN_FLIGHT.
	MaxConcurrentCalls int `env:"NEXAR_RPC_IN_FLIGHT" default:"1024" min:"0" max:"262144"`

	// # Failures

	// HeartbeatInterval is how often a silent peer is asked for a sign of
	// life: every second by default, less than 0 never.
	// NEXAR_HEARTBEAT_INTERVAL_SECS.
	HeartbeatInterval time.Duration `env:"NEXAR_HEARTBEAT_INTERVAL_SECS" default:"1s"`

	// HeartbeatTimeout is the silence after which a peer counts as failed: 5
	// seconds by default, and more than HeartbeatInterval. The end of a process
	// is noticed at once. NEXAR_HEARTBEAT_TIMEOUT_SECS.
	HeartbeatTimeout time.Duration `env:"NEXAR_HEARTBEAT_TIMEOUT_SECS" default:"5s" min:"0" above:"HeartbeatInterval"`

	// Recovery selects what Node.Epochs does when another node has failed: Automatic by
	// default. Operations that need the failed node end with a PeerError in any case.
	// NEXAR_RECOVERY_POLICY, where "auto" is "automatic".
	Recovery RecoveryPolicy `env:"NEXAR_RECOVERY_POLICY" default:"automatic" one:"automatic,manual,abort"`

	// RecoveryTimeout limits the wait of Node.Epochs for the next view of the seed, and
	// then for each node of that view: 30 seconds by default, less than 0 for no limit.
	// NEXAR_RECOVERY_TIMEOUT_SECS.
	RecoveryTimeout time.Duration `env:"NEXAR_RECOVERY_TIMEOUT_SECS" default:"30s"`

	// DumpOnQuit makes the node handle SIGQUIT: it writes its Trace to standard
	// error and ends the process with status 131. It is not for a program that
	// handles SIGQUIT itself. The default is off.
	// NEXAR_DUMP_ON_QUIT=1, which nexar run sets.
	DumpOnQuit bool `env:"NEXAR_DUMP_ON_QUIT"`

	// DumpStacks makes DumpOnQuit write the stacks of all goroutines before the
	// Trace. The default is off. NEXAR_STACKS=1, or nexar run --stacks.
	DumpStacks bool `env:"NEXAR_STACKS"`

	// # Worlds that grow and shrink

	// ReconfigureTimeout is how long nodes wait for each other in Node.Reconfigure,
	// at which others may join and leave: 60 seconds by default, less than 0 for
	// ever. NEXAR_ELASTIC_CHECKPOINT_TIMEOUT_SECS.
	ReconfigureTimeout time.Duration `env:"NEXAR_ELASTIC_CHECKPOINT_TIMEOUT_SECS" default:"60s"`

	// Spare has Join wait, for as long as its context allows, until the node can
	// replace one that has gone from a world that had all its nodes. The default is
	// off. NEXAR_SPARE=1.
	Spare bool `env:"NEXAR_SPARE"`

	// LeaveOnTerm has a node that has called Reconfigure leave at the next one when
	// the process gets a SIGTERM, in place of ending at once; a second one ends it.
	// The default is off. NEXAR_LEAVE_ON_SIGTERM=1, which nexar run --elastic sets.
	LeaveOnTerm bool `env:"NEXAR_LEAVE_ON_SIGTERM"`

	// # This process

	// Buffers, if not nil, is the pool of the buffers of collectives, in place of one of
	// the node's own with the tiers of Memory. Several nodes can share it.
	Buffers *BufferPool `env:"-" set:"program"`

	// Memory says how many buffers a node keeps for reuse. It has none at first,
	// and keeps what the collectives of all its communicators have needed at one
	// time: with "training", the default, at most 256 of 64 KiB, 32 of 8 MiB, 16
	// of 64 MiB and 4 of 256 MiB, 2.3 GiB together; with "inference" at most 256 of
	// 64 KiB, 16 of 8 MiB and 4 of 64 MiB, 400 MiB together. Larger ones are made
	// anew each time. NEXAR_MEMORY.
	Memory string `env:"NEXAR_MEMORY" default:"training" one:"training,inference"`

	// Log receives the events of the node. Nil, the default, logs warnings and errors to
	// slog.Default: no seed can be reached, the world is still forming, a transport is
	// not available. When operations fail because a rank has failed, by a timeout or
	// since calls do not match, the last operations of this rank are logged, once for a
	// communicator. NEXAR_LOG=debug, info, warn or error logs to standard error from that
	// level on; NEXAR_LOG=off logs nothing.
	Log *slog.Logger `env:"-" also:"NEXAR_LOG" one:"debug,info,warn,error,off"`
}

// SeedPort is the port of a seed whose address has none.
const SeedPort = host.SeedPort

// defaultListen is also where a seed listens by default.
const defaultListen = ":0"

// A RecoveryPolicy selects what Node.Epochs does when a node has failed.
type RecoveryPolicy string

// Recovery policies.
const (
	// Automatic: it yields a communicator of the nodes that are left.
	Automatic RecoveryPolicy = "automatic"
	// Manual: it ends with the error that names the failed node, and the program selects
	// the nodes that continue, by Comm.Exclude.
	Manual RecoveryPolicy = "manual"
	// Abort: it ends with the error that names the failed node.
	Abort RecoveryPolicy = "abort"
)

// check finds values that cannot be meant. It names fields by their variable.
func (cfg *Config) check() error {
	if err := settings.Check(*cfg); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	bad := func(field, value, why string) error {
		return fmt.Errorf("%w: %s=%q: %s", ErrConfig, variable(field), value, why)
	}
	for _, seed := range cfg.Seeds {
		if name, addr, named := strings.Cut(seed, "="); named && addr != "" && isTransportName(name) {
			continue // in the form of a transport of Factories
		}
		if !host.IsAddr(host.WithPort(seed, SeedPort), false) {
			return bad("Seeds", seed, "not an address of the form host:port or host")
		}
	}
	for _, name := range cfg.Transports {
		if !isTransportName(name) {
			return bad("Transports", strings.Join(cfg.Transports, ","), fmt.Sprintf("%q is not the name of a transport: lower-case letters, digits and hyphens", name))
		}
	}
	if _, err := cfg.token(); err != nil {
		return err
	}
	if _, err := cfg.roots(); err != nil {
		return err
	}
	if _, err := selector.ParsePins(cfg.Algorithms); err != nil {
		return bad("Algorithms", strings.Join(cfg.Algorithms, ","), err.Error())
	}
	if why := mesh.RefusedTopology(cfg.Topology); why != "" {
		return bad("Topology", cfg.Topology, why)
	}
	switch {
	case cfg.Listen != "" && !host.IsAddr(cfg.Listen, true):
		return bad("Listen", cfg.Listen, "not an address of the form host:port, :port or host:0")
	case cfg.Advertise != "" && !host.IsAddr(cfg.Advertise, false) && !host.IsAddr(net.JoinHostPort(cfg.Advertise, "1"), false):
		return bad("Advertise", cfg.Advertise, "neither host:port nor a host")
	}
	return nil
}

// transports says which transports may be used. Those of Factories are also used if
// the list is the default.
func (cfg *Config) transports() (node.Transports, error) {
	use := node.Transports{Names: cfg.Transports, Factories: cfg.Factories, Silence: max(0, cfg.HeartbeatTimeout)}
	var err error
	if use.Roots, err = cfg.roots(); err != nil {
		return use, err
	}
	if len(use.Names) == 0 {
		use.Names = node.BuiltIn()
	}
	known := node.BuiltIn()
	everything := slices.Equal(use.Names, known)
	for _, f := range cfg.Factories {
		if f.Listen == nil || !isTransportName(f.Name) || slices.Contains(known, f.Name) {
			return use, fmt.Errorf("%w: Factories: a factory named %q: it needs a Listen and a name of at most %d lower-case letters, digits and hyphens that is not one of %s",
				ErrConfig, f.Name, transportNameMax, strings.Join(known, ", "))
		}
		known = append(known, f.Name)
		if everything {
			use.Names = append(slices.Clone(use.Names), f.Name)
		}
	}
	for _, name := range use.Names {
		if !slices.Contains(known, name) {
			return use, fmt.Errorf("%w: %s=%q: %q is not one of %s",
				ErrConfig, variable("Transports"), strings.Join(use.Names, ","), name, strings.Join(known, ", "))
		}
	}
	return use, nil
}

// transportNameMax bounds the name of a transport, which is in every view.
const transportNameMax = 32

func isTransportName(name string) bool {
	return name != "" && len(name) <= transportNameMax && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	})
}

// roots returns the CAs of CAFile, or nil.
func (cfg *Config) roots() (*pki.Roots, error) {
	if cfg.CAFile == "" {
		return nil, nil
	}
	roots, err := pki.ReadRoots(cfg.CAFile)
	if err != nil {
		return nil, fmt.Errorf("%w: %s=%q: %w", ErrConfig, variable("CAFile"), cfg.CAFile, err)
	}
	return roots, nil
}

// token returns the token of Token or TokenFile. No error contains the token.
func (cfg *Config) token() (pki.Token, error) {
	switch {
	case cfg.Token != "" && cfg.TokenFile != "":
		return pki.Token{}, fmt.Errorf("%w: both %s and %s=%q are set: unset one of them", ErrConfig, variable("Token"), variable("TokenFile"), cfg.TokenFile)
	case cfg.TokenFile != "":
		t, err := pki.ReadTokenFile(cfg.TokenFile)
		if err != nil {
			err = fmt.Errorf("%w: %s: %w", ErrConfig, variable("TokenFile"), err)
		}
		return t, err
	case cfg.Token == "":
		return pki.Token{}, nil
	}
	t, err := pki.ParseToken(cfg.Token)
	if err != nil {
		return t, fmt.Errorf("%w: %s: %w", ErrConfig, variable("Token"), err)
	}
	return t, nil
}

// fill sets the zero fields of cfg from the environment, and then to the defaults. It reads
// only the variables of the named fields, or all if there are none.
func (cfg Config) fill(fields ...string) (Config, error) {
	e, vars, err := readEnv(fields)
	if err == nil {
		// A conflict about encryption is an error: neither setting may win silently.
		if err = settings.Overruled(cfg.PlainBulk, e.PlainBulk, "PlainBulk", variable("PlainBulk"), encryptVariable, vars); err != nil {
			err = fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	if err != nil {
		return Config{}, err
	}
	if cfg.Token != "" || cfg.TokenFile != "" {
		e.Token, e.TokenFile = "", ""
	}
	settings.Complete(&cfg, e)
	settings.Complete(&cfg, settings.Defaults[Config]())
	cfg.Seeds = host.WithPorts(cfg.Seeds, SeedPort)
	cfg.Log = cmp.Or(cfg.Log, settings.Warnings(slog.Default()))
	if _, err := cfg.transports(); err != nil {
		return cfg, err
	}
	return cfg, cfg.check()
}

// hints returns the preference for a ring.
func (cfg *Config) hints() selector.Hints {
	return selector.Hints{LargeBytes: cfg.LargeMessageBytes, SegmentBytes: cfg.PipelineSegmentBytes, RingRanks: cfg.RingMaxWorld}
}

// envPrefix is the prefix of the variables of this package.
const envPrefix = "NEXAR_"

// ConfigFromEnv reads a Config from the environment. Times, whose variables
// end in _SECS, are numbers of seconds, or as time.ParseDuration takes them
// ("250ms"), 0 or at least a nanosecond. A malformed value is an ErrConfig that names the variable.
// Variables that are empty or not set leave their fields zero.
func ConfigFromEnv() (Config, error) {
	cfg, err := parseEnv()
	return cfg, opError("environment", err)
}

// parseEnv reads the variables of some fields, or of all if it gets none.
func parseEnv(fields ...string) (Config, error) {
	cfg, _, err := readEnv(fields)
	return cfg, err
}

// readEnv also returns the variables that are set.
func readEnv(fields []string) (cfg Config, vars map[string]string, err error) {
	if cfg, vars, err = settings.Read[Config](os.Environ(), fields...); err != nil {
		return Config{}, nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if vars[variable("CompressedMaxBytes")] != "" && cfg.CompressedMaxBytes == 0 {
		cfg.CompressedMaxBytes = -1
	}
	if cfg.Recovery == "auto" {
		cfg.Recovery = Automatic
	}
	if cfg.Log, err = settings.Log(logVariable, vars[logVariable]); err != nil {
		return Config{}, nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	cfg.Transports, err = settings.Switch(cfg.Transports, settings.Defaults[Config]().Transports, "tcp", "quic", sidecarVariable, vars)
	if err == nil {
		cfg.PlainBulk, err = settings.Opposite(cfg.PlainBulk, variable("PlainBulk"), encryptVariable, vars)
	}
	if err != nil {
		return Config{}, nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return cfg, vars, cfg.check()
}

// variable is the environment variable of a field of Config.
func variable(field string) string { return settings.Variable[Config](field) }

// Variables that switch off TCP, and TLS over TCP. Both are on by default.
const (
	sidecarVariable = envPrefix + "ENABLE_TCP_BULK_SIDECAR"
	encryptVariable = envPrefix + "ENCRYPT_BULK_TRANSPORT"
)

// logVariable makes a Logger.
const logVariable = envPrefix + "LOG"

// CheckEnviron finds the variables of an environment, as os.Environ has it, that
// begin with NEXAR_ and mean nothing to this package or its commands: most
// likely they are misspelt. Join logs them as warnings.
func CheckEnviron(environ []string) []Problem {
	var list []Problem
	for _, u := range settings.Unknown(environ, envPrefix, knownEnv()) {
		list = append(list, Problem{Text: "unknown variable " + wire.Escape(u.Name), Fix: u.Fix})
	}
	return list
}

// knownEnv returns the variables that have a meaning: those of Config and of seeds, and those
// that nexar run sets.
func knownEnv() []string {
	names := []string{"NEXAR_WORLD", "NEXAR_LOCAL_RANK", "NEXAR_REQUIRE"}
	for _, f := range append(settings.Fields[Config](), settings.Fields[seedEnv]()...) {
		names = append(names, f.Variables()...)
	}
	return names
}
