package nexar

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nexar-go/nexar/consensus"
	"github.com/nexar-go/nexar/internal/host"
	"github.com/nexar-go/nexar/internal/node"
	"github.com/nexar-go/nexar/internal/selector"
	"github.com/nexar-go/nexar/internal/settings"
	"github.com/nexar-go/nexar/internal/topology"
	"github.com/nexar-go/nexar/transport"
)

//go:generate go run ./internal/settings/table config.go docs/config.md

// Config is the configuration of a node for [Join], or of ranks in one process for [Local]. A field with
// the zero value is taken from the environment, or else has its default.
//
// The comment of each field names its environment variable, and docs/config.md has a table of all.
type Config struct {
	// # Joining a cluster

	// Seeds are the addresses of one or more seeds of the cluster ("host:port", or "host" for
	// the port 7946). The node tries all of them. "NAME=ADDR" is an address of the transport
	// NAME in Factories. NEXAR_SEEDS, separated by commas.
	Seeds []string `env:"NEXAR_SEEDS"`

	// Token is the secret that admits nodes, the same for the whole cluster. It is never sent over
	// the network. Make one with "nexar token" or NewToken. NEXAR_CLUSTER_TOKEN.
	Token string `env:"NEXAR_CLUSTER_TOKEN"`

	// TokenFile is the path of a file with the token, in place of Token. Its owner is this user or
	// root, and no other user may have access to it (mode 0600). If root owns it, a group of this
	// process may read it (mode 0440 or 0640). It may be a pipe that ends within 10 s. Seeds and nodes read a regular
	// file again when they authenticate others: after a change they accept the token before for 5 minutes. NEXAR_CLUSTER_TOKEN_FILE.
	TokenFile string `env:"NEXAR_CLUSTER_TOKEN_FILE"`

	// AllowWeakToken accepts a token that "nexar token" and NewToken did not make. Others may guess
	// it: an attacker that poses as a seed can test millions of guesses a second. The default is
	// off. NEXAR_ALLOW_WEAK_TOKEN=1.
	AllowWeakToken bool `env:"NEXAR_ALLOW_WEAK_TOKEN"`

	// CAFile is the path of a PEM file of this user or root with the certificates of one or more CAs. The node accepts a
	// seed only if one of these CAs has signed the CA of its cluster (SeedConfig.CACertFile).
	// Otherwise joining fails with an error that names both CAs, before the node has proved the
	// token. The token is still required. By default the node accepts any seed that proves the
	// token. NEXAR_CA_FILE.
	CAFile string `env:"NEXAR_CA_FILE"`

	// CertificateGrace is the time for which members of the world accept each other's expired
	// certificates while no seed answers, so that a connection that breaks is made again: 24 hours by
	// default, none if negative. A certificate is valid for 24 hours, and a seed renews it.
	// NEXAR_CERTIFICATE_GRACE_SECS.
	CertificateGrace time.Duration `env:"NEXAR_CERTIFICATE_GRACE_SECS" default:"24h"`

	// Listen is the address ("host:port") at which other nodes reach this one, over UDP and TCP.
	// An empty host means all addresses, port 0 any free port. The default is ":0".
	// NEXAR_LISTEN.
	Listen string `env:"NEXAR_LISTEN" default:":0"`

	// Advertise is the address that other nodes get for this one ("host:port", or "host" for the
	// port of Listen). The default is the address from which the seed sees the node.
	// NEXAR_ADVERTISE.
	Advertise string `env:"NEXAR_ADVERTISE"`

	// AdvertiseUnchecked makes the seed admit this node without a check of Advertise. By default
	// the seed dials that address over UDP and TCP while the node joins, and refuses the node if
	// it does not answer within 3 seconds. Set AdvertiseUnchecked if other nodes can reach the
	// address and the seed cannot, for example because of a firewall between seed and nodes, or
	// a NAT without hairpinning. The default is off. NEXAR_ADVERTISE_UNCHECKED=1.
	AdvertiseUnchecked bool `env:"NEXAR_ADVERTISE_UNCHECKED"`

	// Rank, if not nil, is the wanted rank of the node, from 0 to the size of the world less 1.
	// Joining fails with ErrRankTaken if another node has it. By default it is the rank that a Launcher tells, if its world has the size of
	// that of the seed, and otherwise the seed assigns a rank.
	// NEXAR_RANK is ignored if NEXAR_SEEDS is set and has none of the Seeds of the Config.
	Rank *int `env:"NEXAR_RANK" min:"0"`

	// FormTimeout limits the time that Join waits for the world to form: 5 minutes by default,
	// no limit if negative. NEXAR_FORM_TIMEOUT_SECS.
	FormTimeout time.Duration `env:"NEXAR_FORM_TIMEOUT_SECS" default:"5m"`

	// Launcher says which launcher has started this process, if Seeds is empty: "auto", the default, any that is recognized; "slurm", "kubernetes",
	// "torchrun", "pmi" (MPICH, Intel MPI) or "openmpi"; "none" ignores launchers. The launcher tells the rank, the
	// size of the world and, if it can, the hosts. The process of rank 0 starts the seed. With NEXAR_SEEDS the launcher is only asked for
	// the rank. See package launch. NEXAR_LAUNCHER.
	Launcher string `env:"NEXAR_LAUNCHER" default:"auto" one:"auto,slurm,kubernetes,torchrun,pmi,openmpi,none"`

	// LaunchSeeds is the number of seeds that the processes of a Launcher start: 1, the default, 3 or 5. Of 3 seeds one may
	// fail with its process, of 5 two. Several seeds need Consensus. NEXAR_LAUNCH_SEEDS.
	LaunchSeeds int `env:"NEXAR_LAUNCH_SEEDS" default:"1" min:"0" max:"5"`

	// Consensus opens the replicated log of LaunchSeeds, as SeedConfig.Consensus does: use raft.Open of package
	// github.com/nexar-go/nexar/consensus/raft.
	Consensus consensus.OpenFunc `env:"-" set:"program"`

	// # Transports

	// Transports are the transports that this node may use: "shm", "tcp", "quic"
	// and the names of Factories; by default all of them. Their order has no meaning.
	// Two nodes use the best that both have. Processes of one user on one host use
	// shared memory. Other nodes use QUIC for control and TCP, at the same port, for
	// payloads; if one of them lacks QUIC, they use TCP for everything. With "tcp" or
	// "shm,tcp" nexar needs no UDP. If a seed answers over TCP but not over QUIC, the
	// node assumes that UDP is filtered, logs this and uses no QUIC; on a fast network
	// this takes less than a second. If no other transport in the list connects hosts,
	// QUIC is added. NEXAR_TRANSPORTS, separated by commas; "tcp" is removed if
	// NEXAR_ENABLE_TCP_BULK_SIDECAR, 1 by default, is 0.
	Transports []string `env:"NEXAR_TRANSPORTS" also:"NEXAR_ENABLE_TCP_BULK_SIDECAR" default:"shm,tcp,quic"`

	// Factories add transports of the program to the built-in ones. If Transports is not the default, it has to
	// name them; otherwise the node logs a warning and does not use them. Two nodes use such a transport if both
	// have a factory of its name. It is preferred to built-in transports of the same
	// locality, and earlier factories to later ones. nexar relies on the contract of package transport, which
	// package transport/transporttest checks: it does not recover panics of a transport.
	Factories []transport.Factory `env:"-" set:"program"`

	// PlainBulk sends payloads over TCP without TLS. Everyone on the path can then read and change
	// them, and only the checksum of TCP detects damage. Nodes still authenticate each other. If
	// only one of two nodes sets it, they send everything over QUIC. NEXAR_PLAIN_BULK=1 or
	// NEXAR_ENCRYPT_BULK_TRANSPORT=0; the defaults are 0 and 1. It is an error if both variables
	// contradict each other, or if one of them requires encryption and the program sets PlainBulk.
	PlainBulk bool `env:"NEXAR_PLAIN_BULK" also:"NEXAR_ENCRYPT_BULK_TRANSPORT"`

	// Topology selects the neighbors of this node, the nodes that it connects to.
	// "full", the default, or "full_mesh": all other nodes.
	// "k-regular:K" or "k_regular:K": K nodes, among them the ranks before and after this one.
	// "hypercube": the nodes with ranks that differ from this one in one bit.
	// K is at least 2. Each topology works for any number n of nodes. If K is n-1 or more, all nodes are neighbors; if
	// K and n are odd, one node has K-1 neighbors. A topology that is not full is sparse: a node watches its
	// neighbors and connects to no other node. It reaches the others through relays, nodes that forward its sealed
	// data. All operations work, at a distance of at most 64 links: "k-regular:2" has room for 129 nodes,
	// "k-regular:3" for about 250, "k-regular:4" for more than 1,000. The seed
	// refuses a node if paths would become longer.
	// Must be the same on all nodes: the seed refuses a node with another topology. NEXAR_TOPOLOGY.
	Topology string `env:"NEXAR_TOPOLOGY" default:"full"`

	// Links says when this node connects to the other nodes of the world: "demand", the default, to
	// another node when an operation first needs it, or "eager", to all of them when it joins.
	// On demand, a world of many nodes forms sooner. The first operation between two nodes takes
	// longer by the time of a handshake, and only then does a node notice that it cannot reach the other.
	// Nodes that watch each other for failures, up to 12 for each node, are connected in any
	// case. Nodes that share the memory of one host need no connection for collectives. Nodes of one
	// world may have different values. NEXAR_LINKS.
	Links string `env:"NEXAR_LINKS" default:"demand" one:"demand,eager"`

	// LinkIdleTimeout is the time without traffic after which two nodes close their connection, until an
	// operation needs it again: by default and if negative, never. Nodes that watch each other stay
	// connected, and so do nodes with a connection in shared memory. Either of two nodes may close the connection.
	// NEXAR_LINK_IDLE_TIMEOUT.
	LinkIdleTimeout time.Duration `env:"NEXAR_LINK_IDLE_TIMEOUT"`

	// # Collectives

	// Algorithms fixes the algorithms of collectives, such as "all_reduce=ring", or
	// "all_reduce=ring/4" with four parallel channels, which use links even between ranks that
	// share memory. By default a cost model selects the fastest algorithm for each call. It also
	// does so for calls that the fixed algorithm cannot carry out: because of the number of
	// ranks, because no host has several ranks, or because the call or Deterministic needs a
	// fixed order of operands. "all_reduce=swing-2d" and others that begin with "swing" are for hosts on a torus in
	// the order of the ranks, "all_gather=pat" and "reduce_scatter=pat" for oversubscribed networks; they are used only
	// if they are fixed. Must be the same on all ranks. NEXAR_ALGORITHMS, separated by commas.
	Algorithms []string `env:"NEXAR_ALGORITHMS"`

	// Deterministic makes the results of reductions depend on the vectors and the number of ranks
	// only, not on the algorithm, the transports, the number of channels or the length. All ranks
	// always get the same bits; with Deterministic they are also the same in other runs and on
	// other machines. Operands are combined in a fixed order, which may take longer. Must be the
	// same on all ranks. The default is off. NEXAR_DETERMINISTIC=1.
	Deterministic bool `env:"NEXAR_DETERMINISTIC"`

	// CollectiveTimeout limits the time that a collective makes no progress on this rank: 30 minutes
	// by default, no limit if negative. A collective ends at once if a rank has failed, left or called
	// another collective, and after DeadlockTimeout in a deadlock. After 10 seconds a warning names the
	// ranks that it waits for. NEXAR_COLLECTIVE_TIMEOUT_SECS.
	CollectiveTimeout time.Duration `env:"NEXAR_COLLECTIVE_TIMEOUT_SECS" default:"30m"`

	// BarrierTimeout limits the time that a Barrier makes no progress on this rank: 30 minutes by
	// default, no limit if negative. NEXAR_BARRIER_TIMEOUT_SECS.
	BarrierTimeout time.Duration `env:"NEXAR_BARRIER_TIMEOUT_SECS" default:"30m"`

	// MessageTimeout limits the time that a send waits for its receive, and a receive or probe for
	// a message of a rank that it names: 30 minutes by default, no limit if negative. The time of
	// an operation with a Handle begins with the first Handle.Wait or Handle.Done. Receives from
	// AnyRank have no limit, since a rank that serves others may be idle for long. Time of this
	// rank in the function of a reduction with the other rank does not count: nothing reads
	// their connection then. NEXAR_MESSAGE_TIMEOUT.
	MessageTimeout time.Duration `env:"NEXAR_MESSAGE_TIMEOUT" default:"30m"`

	// DeadlockTimeout limits the time that ranks wait for each other, with nothing in flight
	// between them. Then their calls fail with a DeadlockError. It is 60 seconds by default, and
	// no limit if negative. Each call that a goroutine of one of the ranks begins restarts the
	// time. A deadlock is logged within 3 seconds in worlds of up to 100 ranks, and later in larger
	// ones. NEXAR_DEADLOCK_TIMEOUT.
	DeadlockTimeout time.Duration `env:"NEXAR_DEADLOCK_TIMEOUT" default:"60s"`

	// BucketBytes is the size in bytes of the buckets of AllReduceBuckets: 4 MiB by default, at most
	// 512 GiB. Must be the same on all ranks. NEXAR_BUCKET_BYTES.
	BucketBytes int `env:"NEXAR_BUCKET_BYTES" default:"4194304" min:"0" max:"549755813888"`

	// CompressedMaxBytes limits the memory, in bytes, for the encodings of all ranks in an
	// AllReduceCompressed: 4 GiB by default, 512 GiB if negative, and at most 512 GiB.
	// NEXAR_COMPRESSED_ALLREDUCE_MAX_BYTES, where 0 has the same meaning as a negative value.
	CompressedMaxBytes int `env:"NEXAR_COMPRESSED_ALLREDUCE_MAX_BYTES" default:"4294967296" max:"549755813888"`

	// LargeMessageBytes is the length in bytes, at most 512 GiB, from which on AllReduce uses a
	// ring, in place of the algorithm that the cost model selects. Algorithms and calls that need
	// a fixed order of operands take precedence. Must be the same on all ranks. The default, 0,
	// leaves the choice to the model. NEXAR_LARGE_MSG_BYTES.
	LargeMessageBytes int `env:"NEXAR_LARGE_MSG_BYTES" min:"0" max:"549755813888"`

	// PipelineSegmentBytes is the length in bytes, at most 512 GiB, of the slices of a large vector
	// that AllReduce sends along a ring in parallel, each on a channel. A vector is large from
	// LargeMessageBytes on or, if that is 0, from 8 MiB on. It has no effect on ranks that share
	// memory. Must be the same on all ranks. The default, 0, leaves the number of channels to the
	// model. NEXAR_PIPELINE_SEGMENT_BYTES.
	PipelineSegmentBytes int `env:"NEXAR_PIPELINE_SEGMENT_BYTES" min:"0" max:"549755813888"`

	// RingMaxWorld is the largest number of ranks with which AllReduce uses a ring for vectors of at
	// least 64 KiB, under the conditions of LargeMessageBytes. Must be the same on all ranks. The
	// default, 0, leaves the choice to the model. NEXAR_RING_MAX_WORLD.
	RingMaxWorld int `env:"NEXAR_RING_MAX_WORLD" min:"0"`

	// # Calls of functions

	// CallTimeout limits the time of a Call without a deadline: 30 seconds by default, no
	// limit if negative. NEXAR_RPC_TIMEOUT_SECS.
	CallTimeout time.Duration `env:"NEXAR_RPC_TIMEOUT_SECS" default:"30s"`

	// MaxConcurrentCalls limits the Calls in progress from this node to each rank of a communicator,
	// and from each rank to this node: 1,024 by default, at most 262,144. The total length of their
	// arguments is limited to 1 GiB. Should be the same on all nodes: a rank with a lower limit refuses
	// calls above it with ErrBusy. NEXAR_RPC_IN_FLIGHT.
	MaxConcurrentCalls int `env:"NEXAR_RPC_IN_FLIGHT" default:"1024" min:"0" max:"262144"`

	// # Failures

	// HeartbeatInterval is half of the time between two beats of a node to its watchers, and the time
	// between two checks of silence: a second by default, no beats and no checks if negative.
	// NEXAR_HEARTBEAT_INTERVAL_SECS.
	HeartbeatInterval time.Duration `env:"NEXAR_HEARTBEAT_INTERVAL_SECS" default:"1s"`

	// HeartbeatTimeout is the time without beats after which a peer has failed: 5 seconds by default. The last beat may be two
	// HeartbeatIntervals old when the network fails, so that a silence lasts as much longer. Outages that are shorter than HeartbeatTimeout by a
	// HeartbeatInterval end nothing. HeartbeatTimeout must exceed HeartbeatInterval. On a host with more work than processors it grows, at most to twice
	// its length, and to four times that for a process that shares memory with this one, is silent, and
	// gets processor time. The end of a process is detected at once.
	// NEXAR_HEARTBEAT_TIMEOUT_SECS.
	HeartbeatTimeout time.Duration `env:"NEXAR_HEARTBEAT_TIMEOUT_SECS" default:"5s" min:"0" above:"HeartbeatInterval"`

	// Recovery selects the behavior of Node.Epochs after the failure of another node: Automatic by
	// default. Operations that need the failed node end with a PeerError in any case.
	// NEXAR_RECOVERY_POLICY, where "auto" means "automatic".
	Recovery RecoveryPolicy `env:"NEXAR_RECOVERY_POLICY" default:"automatic" one:"automatic,manual,abort"`

	// RecoveryTimeout limits the time that Node.Epochs waits for the next view of the seed, and then
	// for each node of that view: 30 seconds by default, no limit if negative.
	// NEXAR_RECOVERY_TIMEOUT_SECS.
	RecoveryTimeout time.Duration `env:"NEXAR_RECOVERY_TIMEOUT_SECS" default:"30s"`

	// DumpOnQuit makes the node handle SIGQUIT: it writes its Trace to standard error and exits the
	// process with status 131. Programs that handle SIGQUIT themselves must not set it. The default
	// is off. NEXAR_DUMP_ON_QUIT=1, which nexar run sets.
	DumpOnQuit bool `env:"NEXAR_DUMP_ON_QUIT"`

	// DumpStacks makes DumpOnQuit write the stacks of all goroutines before the Trace. The default is
	// off. NEXAR_STACKS=1, or nexar run --stacks.
	DumpStacks bool `env:"NEXAR_STACKS"`

	// ProfileLabels labels a goroutine in an operation for CPU profiles: nexar_op, nexar_comm, as in Trace, and nexar_rank. It costs about
	// half a microsecond an operation, and replaces labels of the goroutine that the context of the operation has not. The default is off.
	// NEXAR_PROFILE_LABELS=1. Tasks for execution traces (runtime/trace) need no setting.
	ProfileLabels bool `env:"NEXAR_PROFILE_LABELS"`

	// # Elastic worlds

	// ReconfigureTimeout limits the time that nodes wait for each other in Node.Reconfigure: 30
	// minutes by default, no limit if negative. NEXAR_ELASTIC_CHECKPOINT_TIMEOUT_SECS.
	ReconfigureTimeout time.Duration `env:"NEXAR_ELASTIC_CHECKPOINT_TIMEOUT_SECS" default:"30m"`

	// Spare makes Join wait, until its context ends, until the node can replace one that has failed
	// or left a world that was complete. The default is off. NEXAR_SPARE=1.
	Spare bool `env:"NEXAR_SPARE"`

	// LeaveOnTerm makes a node leave at the next Node.Reconfigure when the process gets SIGTERM, if
	// the node has called Reconfigure before. Otherwise, and at a second SIGTERM, the process ends.
	// The default is off. NEXAR_LEAVE_ON_SIGTERM=1, which nexar run --elastic sets.
	LeaveOnTerm bool `env:"NEXAR_LEAVE_ON_SIGTERM"`

	// # Buffers and logs

	// Buffers, if not nil, is the pool for buffers of collectives, in place of a pool of the node
	// with the tiers of Memory. Several nodes may share it.
	Buffers *BufferPool `env:"-" set:"program"`

	// Memory selects the number of buffers that a node keeps for reuse. A node starts without
	// buffers, and keeps as many as the collectives of all its communicators have used at the same
	// time, up to the limits. "training", the default: 256 of 64 KiB, 32 of 8 MiB, 16 of 64 MiB and 4
	// of 256 MiB, 2.3 GiB in total. "inference": 256 of 64 KiB, 16 of 8 MiB and 4 of 64 MiB, 400 MiB in
	// total. Longer buffers are allocated for each call. NEXAR_MEMORY.
	Memory string `env:"NEXAR_MEMORY" default:"training" one:"training,inference"`

	// Log receives the events of the node. Nil, the default, logs warnings and errors to
	// slog.Default. NEXAR_LOG=debug, info, warn or error logs to standard error from that level on,
	// NEXAR_LOG=off logs nothing.
	Log *slog.Logger `env:"-" also:"NEXAR_LOG" one:"debug,info,warn,error,off"`
}

// SeedPort, 7946, is the port of seed addresses that name no port.
const SeedPort = host.SeedPort

// linksEager is a value of Config.Links.
const linksEager = "eager"

// defaultListen is the default listen address of seeds.
const defaultListen = ":0"

// A RecoveryPolicy selects the behavior of [Node.Epochs] after the failure of another node. See
// [Config].Recovery.
type RecoveryPolicy string

// The values of [Config].Recovery.
const (
	// Automatic makes Epochs yield a communicator of the remaining nodes.
	Automatic RecoveryPolicy = "automatic"
	// Manual makes Epochs end with a PeerError of the failed node. The program then selects the
	// nodes that continue, by [Comm.Exclude].
	Manual RecoveryPolicy = "manual"
	// Abort makes Epochs end with a PeerError of the failed node.
	Abort RecoveryPolicy = "abort"
)

// check returns an error for an invalid value. It names fields by their variables.
func (cfg *Config) check() error {
	if err := settings.Check(*cfg); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	bad := func(field, value, why string) error {
		return fmt.Errorf("%w: %s=%q: %s", ErrConfig, variable(field), value, why)
	}
	for _, seed := range cfg.Seeds {
		if name, addr, named := strings.Cut(seed, "="); named && addr != "" && isTransportName(name) {
			continue // an address of a transport of Factories
		}
		if !host.IsAddr(host.WithPort(seed, SeedPort), false) {
			return bad("Seeds", seed, "must be an address of the form host:port or host")
		}
	}
	for _, name := range cfg.Transports {
		if !isTransportName(name) {
			return bad("Transports", strings.Join(cfg.Transports, ","), fmt.Sprintf("%q is not the name of a transport: lower-case letters, digits and hyphens", name))
		}
	}
	if !isPipe(cfg.TokenFile) {
		if _, err := cfg.token(context.Background()); err != nil {
			return err
		}
	}
	if !isPipe(cfg.CAFile) {
		if _, err := cfg.roots(context.Background()); err != nil {
			return err
		}
	}
	if _, err := selector.ParsePins(cfg.Algorithms); err != nil {
		return bad("Algorithms", strings.Join(cfg.Algorithms, ","), err.Error())
	}
	if _, err := topology.Parse(cfg.Topology); err != nil {
		return bad("Topology", cfg.Topology, err.Error())
	}
	switch {
	case cfg.Listen != "" && !host.IsAddr(cfg.Listen, true):
		return bad("Listen", cfg.Listen, "must be an address of the form host:port, :port or host:0")
	case cfg.Advertise != "" && !host.IsAddr(cfg.Advertise, false) && !host.IsAddr(net.JoinHostPort(cfg.Advertise, "1"), false):
		return bad("Advertise", cfg.Advertise, "must be an address of the form host:port or host")
	}
	return nil
}

// isPipe reports whether a file is a pipe, or a device such as a terminal, which can be read only once.
func isPipe(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&(fs.ModeNamedPipe|fs.ModeCharDevice) != 0
}

// transports returns the usable transports. With the default list they include those of Factories.
func (cfg *Config) transports() (node.Transports, error) {
	use := node.Transports{Names: cfg.Transports, Factories: cfg.Factories, PeerTimeout: max(0, cfg.HeartbeatTimeout)}
	local := os.Getenv(localRankVariable)
	use.Warned = local != "" && local != "0"
	if len(use.Names) == 0 {
		use.Names = node.BuiltIn()
	}
	known := node.BuiltIn()
	everything := slices.Equal(use.Names, known)
	for _, f := range cfg.Factories {
		if f.Listen == nil || !isTransportName(f.Name) || slices.Contains(known, f.Name) {
			return use, fmt.Errorf("%w: Factories: factory %q: must have a Listen function, and a name of at most %d lower-case letters, digits and hyphens that is not one of %s",
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

// localRankVariable has the number of a process among those of its host, if nexar run has started it.
const localRankVariable = envPrefix + "LOCAL_RANK"

// transportNameMax limits the length of the name of a transport, which every view contains.
const transportNameMax = 32

func isTransportName(name string) bool {
	return name != "" && len(name) <= transportNameMax && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	})
}

// fill returns cfg with its zero fields set from the environment or else to their defaults. It reads
// only the variables of the named fields, or all if it gets none.
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
	cfg.Seeds, e.Seeds = host.WithPorts(cfg.Seeds, SeedPort), host.WithPorts(e.Seeds, SeedPort)
	ofEnv := func(seed string) bool { return slices.Contains(e.Seeds, seed) }
	if len(cfg.Seeds) > 0 && len(e.Seeds) > 0 && !slices.ContainsFunc(cfg.Seeds, ofEnv) {
		e.Rank = nil // It is a rank of another cluster.
	}
	settings.Complete(&cfg, e)
	settings.Complete(&cfg, settings.Defaults[Config]())
	cfg.Log = cmp.Or(cfg.Log, settings.Warnings(slog.Default()))
	if _, err := cfg.transports(); err != nil {
		return cfg, err
	}
	return cfg, cfg.check()
}

// hints returns the settings that make AllReduce prefer a ring.
func (cfg *Config) hints() selector.Hints {
	return selector.Hints{LargeBytes: cfg.LargeMessageBytes, SegmentBytes: cfg.PipelineSegmentBytes, RingRanks: cfg.RingMaxWorld}
}
