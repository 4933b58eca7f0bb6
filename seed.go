package nexar

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nexar-go/nexar/consensus"
	"github.com/nexar-go/nexar/internal/host"
	"github.com/nexar-go/nexar/internal/node"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/server"
	"github.com/nexar-go/nexar/internal/settings"
	"github.com/nexar-go/nexar/transport"
)

// SeedConfig is the configuration of a seed for [StartSeed].
type SeedConfig struct {
	// Listen is the UDP and TCP address ("host:port", or "host" with the port 7946) at which
	// nodes reach the seed. The default is any free port of all addresses.
	Listen string
	// Transports are the transports at which nodes reach the seed, as in
	// Config.Transports: it accepts them over QUIC and TCP, and over those of
	// Factories whose Conns have the capability TLSConn. The default is NEXAR_TRANSPORTS, and
	// otherwise all.
	Transports []string
	// Factories are as in Config.Factories. NEXAR_HEARTBEAT_TIMEOUT_SECS, 5 seconds by default, is their
	// Env.PeerTimeout.
	Factories []transport.Factory
	// World is the number of nodes with which the world forms, at least 1.
	World int
	// Elastic lets nodes join a world that has formed, when the others call Node.Reconfigure. ElasticMax
	// is the maximum number of nodes, 0 for no limit. ElasticMin is the minimum number of nodes with which
	// the world continues after failures. The defaults are NEXAR_ELASTIC_ENABLED,
	// NEXAR_ELASTIC_MAX_WORLD_SIZE and NEXAR_ELASTIC_MIN_WORLD_SIZE, or else off, 0 and 1.
	Elastic                bool
	ElasticMin, ElasticMax int
	// Token is the secret that admits nodes; NewToken makes one. TokenFile is the path of a file with the
	// token, in place of Token, as in Config. The defaults are NEXAR_CLUSTER_TOKEN and
	// NEXAR_CLUSTER_TOKEN_FILE.
	Token, TokenFile string
	// AllowWeakToken accepts a token that NewToken did not make, as in Config, also as PeerToken. If Listen
	// is a loopback address it also accepts that there is none. Then every user of this host can join. The default
	// is NEXAR_ALLOW_WEAK_TOKEN, or else off.
	AllowWeakToken bool
	// CACertFile and CAKeyFile are the paths of files with the certificate and the private key of a CA
	// (PEM, in one file or two). That CA signs the CA of the cluster, so its path length must be at
	// least 1. Nodes with the certificate in Config.CAFile accept no other seeds. The seed reads the key
	// only at its start. All Peers need the same CA. By default the CA of the cluster is self-signed.
	CACertFile, CAKeyFile string
	// StateDir is a directory for the CA of the cluster or, with Consensus, for the replicated log, which contains the CA.
	// With both, a seed that is started again continues with the same world, and its nodes reconnect.
	// By default the state is in memory.
	StateDir string
	// Consensus opens the replicated log of the decisions of the seeds: use raft.Open of package
	// github.com/nexar-go/nexar/consensus/raft. By default this seed decides alone, and its decisions
	// are lost when it ends.
	Consensus consensus.OpenFunc
	// Peers are the addresses ("host:port", or "host" for the port 7946) of all seeds of the cluster,
	// including this one, the same list on each seed. Of three or five seeds fewer than half may fail.
	// Each needs a Consensus and its own StateDir. A seed that has lost its StateDir must be started
	// with ForgetState. The default is a single seed.
	Peers []string
	// ForgetState lets one of several Peers start with an empty or damaged StateDir. It copies the state
	// from a majority of the Peers, and votes when it has caught up. An undamaged StateDir is kept. Do
	// not set it at the first start of a cluster, when no seed has a state to copy.
	ForgetState bool
	// PeerToken is a secret that the Peers prove to each other. Without it they prove Token, so that
	// every node could pose as a seed to the other seeds. The default is Token.
	PeerToken string
	// Advertise is the address of this seed in Peers. The default is the address of this host that
	// matches Listen.
	Advertise string
	// FormTimeout limits the time until the world has formed: 5 minutes by default, no limit if
	// negative.
	FormTimeout time.Duration
	// Health, if not empty, is a TCP address ("host:port") at which the seed answers HTTP requests
	// without a token. /healthz has status 200 as long as the seed works, and /readyz as long as nodes
	// can join here or are redirected to the leading seed. Otherwise the status is 503, with the reason
	// as text.
	Health string
	// Progress, if not nil, is called for each node that joins or goes and, at growing intervals, while nodes wait for a world that
	// forms; without it these waits are logged. Calls do not overlap. Progress must not close the Seed, since Close waits for it.
	Progress func(SeedEvent)
	// Log receives the events of the seed. Nil, the default, logs warnings and errors to
	// slog.Default, and NEXAR_LOG changes that, as for Config.Log.
	Log *slog.Logger
}

// A SeedEvent reports that a node has joined, reconnected or gone, that another seed leads, or that a world lacks nodes.
type SeedEvent struct {
	// Leader, if not empty, is the address of the seed that leads from now on. The other fields are
	// zero then. Only the leading seed reports nodes.
	Leader string

	// Forming, if not empty, is a sentence that says which nodes the forming world waits for, for the time Waited so far. The
	// other fields are zero then.
	Forming string
	Waited  time.Duration

	Node NodeID
	Name string // of the process: "hostname:pid"
	Addr string // the address that other nodes dial first
	// Rank is the rank of the node. Before the world has formed, it is the requested rank, or -1 if the
	// seed assigns one.
	Rank        int
	Reconnected bool   // the node had joined before, and has made another connection to the seed
	Gone        bool   // the node has left or failed
	Left        bool   // the node has left in good order
	Reason      string // the reason, if Gone
	Joined      int    // number of nodes that have joined
	World       int    // SeedConfig.World
}

// A Seed admits nodes to a cluster and decides which nodes are in the world. No data of the nodes goes
// through it. Its methods may be called concurrently.
type Seed struct{ seed *node.Seed }

// NewToken returns a random cluster token of 256 bits.
func NewToken() string { return pki.NewToken().Reveal() }

// JobToken returns the token of the world that processes of a job form, if a launcher has started them (package launch): it is derived
// from their token and the name of the job, so that two jobs with the same token cannot meet. [Join] derives it by itself; other
// programs need it to join such a world by its seeds, or to ask these for its status.
func JobToken(token, job string) (string, error) {
	t, err := pki.ParseToken(token)
	return t.Of(job).Reveal(), err
}

// ReadTokenFile returns the token in a file, as [Config].TokenFile and [SeedConfig].TokenFile do. It
// refuses a file that other users of the host own or can access, and accepts any token; errors contain the path but not the
// token. The file may be a pipe that its writer closes within 10 seconds.
func ReadTokenFile(path string) (string, error) {
	t, err := pki.ReadTokenFile(context.Background(), path)
	if err != nil {
		return "", err
	}
	return t.Reveal(), nil
}

// CheckToken returns an error unless the token is one that [NewToken] makes, as [Config].Token must be without AllowWeakToken.
// The error does not contain the token.
func CheckToken(token string) error {
	t, err := pki.ParseToken(token)
	if err == nil {
		err = t.CheckStrength()
	}
	return err
}

// StartSeed starts a seed, which runs until [Seed.Close]. The end of ctx after the start has no effect.
// The error is [ErrConfig] for an invalid setting, or that of a socket or file.
func StartSeed(ctx context.Context, cfg SeedConfig) (*Seed, error) {
	s, err := startSeed(ctx, cfg, pki.Token{})
	return s, opError("seed", explainJoin(err))
}

// startSeed starts a seed with a token, or with that of cfg if it is zero.
func startSeed(ctx context.Context, cfg SeedConfig, token pki.Token) (*Seed, error) {
	env, err := parseEnv("Transports", "Token", "TokenFile", "AllowWeakToken", "Log", "HeartbeatInterval", "HeartbeatTimeout")
	if err != nil {
		return nil, err
	}
	elastic, err := cfg.elastic()
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, cancelled(ctx)
	}
	if cfg.World < 1 {
		return nil, fmt.Errorf("%w: World is %d: must be at least 1", ErrConfig, cfg.World)
	}
	if len(cfg.Peers) > 0 && (cfg.StateDir == "" || cfg.Consensus == nil) {
		return nil, fmt.Errorf("%w: a seed with Peers needs a StateDir and a Consensus: use raft.Open of package consensus/raft", ErrConfig)
	}
	if cfg.ForgetState && len(cfg.Peers) == 0 {
		return nil, fmt.Errorf("%w: ForgetState needs Peers: a single seed starts a new world in an empty StateDir", ErrConfig)
	}
	secret := &Config{Token: cfg.Token, TokenFile: cfg.TokenFile}
	if cfg.Token == "" && cfg.TokenFile == "" {
		secret = &env
	}
	secret.AllowWeakToken = cfg.AllowWeakToken || env.AllowWeakToken
	if token.IsZero() {
		if token, err = secret.token(ctx); err != nil {
			return nil, err
		}
	}
	if token.IsZero() && !secret.AllowWeakToken {
		return nil, fmt.Errorf("%w: %s is not set: a seed needs a token, \"nexar token\" or NewToken makes one; on loopback, AllowWeakToken or NEXAR_ALLOW_WEAK_TOKEN=1 lets every user of this host join without one", ErrConfig, variable("Token"))
	}
	names := cfg.Transports
	if len(names) == 0 {
		names = env.Transports
	}
	use, err := (&Config{Transports: names, Factories: cfg.Factories, HeartbeatTimeout: env.HeartbeatTimeout}).transports()
	if err != nil {
		return nil, err
	}
	peerToken, err := pki.ParsePeerToken(cfg.PeerToken, token, secret.AllowWeakToken)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	issuer, err := cfg.issuer(ctx)
	if err != nil {
		return nil, err
	}
	log := cmp.Or(cfg.Log, env.Log, settings.Warnings(slog.Default()))
	s, err := node.StartSeed(node.SeedConfig{
		Listen: cmp.Or(host.WithPort(cfg.Listen, SeedPort), defaultListen), Transports: use, StateDir: cfg.StateDir, Open: cfg.Consensus, Peers: host.WithPorts(cfg.Peers, SeedPort), ForgetState: cfg.ForgetState, PeerToken: peerToken, Advertise: host.WithPort(cfg.Advertise, SeedPort), Token: token, Issuer: issuer, World: cfg.World,
		Elastic: elastic.Elastic, Min: elastic.ElasticMin, Max: elastic.ElasticMax,
		FormTimeout: cfg.FormTimeout, Progress: func(e server.Event) { cfg.follow(e, log) }, Health: cfg.Health,
		Log: log,
	})
	if err != nil {
		return nil, err
	}
	return &Seed{s}, nil
}

// issuer returns the CA of the user, or nil.
func (cfg *SeedConfig) issuer(ctx context.Context) (*pki.Issuer, error) {
	if cfg.CACertFile == "" && cfg.CAKeyFile == "" {
		return nil, nil
	}
	if cfg.CACertFile == "" || cfg.CAKeyFile == "" {
		return nil, fmt.Errorf("%w: CACertFile=%q, CAKeyFile=%q: set both or neither", ErrConfig, cfg.CACertFile, cfg.CAKeyFile)
	}
	i, err := pki.ReadIssuer(ctx, cfg.CACertFile, cfg.CAKeyFile)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return i, nil
}

// seedEnv has the variables of a seed, beside those that it shares with Config.
type seedEnv struct {
	Elastic    bool `env:"NEXAR_ELASTIC_ENABLED"`
	ElasticMin int  `env:"NEXAR_ELASTIC_MIN_WORLD_SIZE" min:"0"`
	ElasticMax int  `env:"NEXAR_ELASTIC_MAX_WORLD_SIZE" min:"0"`
}

// elastic returns the settings of an elastic world: fields that are zero come from the
// environment.
func (cfg *SeedConfig) elastic() (seedEnv, error) {
	env, _, err := settings.Read[seedEnv](os.Environ())
	if err != nil {
		return env, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	e := seedEnv{cfg.Elastic || env.Elastic, cmp.Or(cfg.ElasticMin, env.ElasticMin), cmp.Or(cfg.ElasticMax, env.ElasticMax)}
	if err := settings.Check(e); err != nil {
		return e, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if e.ElasticMax > 0 && e.ElasticMin > e.ElasticMax {
		return e, fmt.Errorf("%w: NEXAR_ELASTIC_MIN_WORLD_SIZE=%d: must be at most NEXAR_ELASTIC_MAX_WORLD_SIZE (%d)", ErrConfig, e.ElasticMin, e.ElasticMax)
	}
	return e, nil
}

// follow reports progress.
func (cfg *SeedConfig) follow(e server.Event, log *slog.Logger) {
	switch {
	case cfg.Progress == nil && e.Forming != "":
		log.Warn(e.Forming, "waited", e.Waited)
		return
	case cfg.Progress == nil:
		return
	case e.Leader != "" || e.Forming != "":
		cfg.Progress(SeedEvent{Leader: e.Leader, Forming: e.Forming, Waited: e.Waited})
		return
	}
	cfg.Progress(SeedEvent{
		Reconnected: e.Reconnected, Node: NodeID(e.Node.ID), Name: e.Node.Name, Addr: e.Node.Addr(), Rank: e.Rank,
		Gone: e.Gone, Left: e.Left, Reason: e.Reason, Joined: e.Here, World: cfg.World,
	})
}

// Addr returns an address of the seed for [Config].Seeds: "host:port", or "NAME=ADDR" if it can be
// reached only over a transport of Factories.
func (s *Seed) Addr() string { return s.seed.Addr() }

// HealthAddr returns the address ("host:port") of [SeedConfig].Health, with the actual port if that is 0
// there, or "".
func (s *Seed) HealthAddr() string { return s.seed.HealthAddr() }

// Wait blocks until the world has formed, and returns nil, or until it has failed to form, and returns
// the reason, a [NotFormedError]. If ctx ends first, it returns the error of ctx. The seed runs on.
func (s *Seed) Wait(ctx context.Context) error { return opError("seed", explainJoin(s.seed.Wait(ctx))) }

// Err returns nil while the seed works and after its world has ended. Otherwise it returns the error
// that has ended the seed, for example that StateDir cannot be written.
func (s *Seed) Err() error { return opError("seed", s.seed.Err()) }

// Done returns a channel that is closed when the seed has ended: the world did not form, all its nodes
// have gone, or [Seed.Err] is not nil. Close the seed then.
func (s *Seed) Done() <-chan struct{} { return s.seed.Done() }

// Close ends the seed. If the world has not formed, Join fails on its nodes. A world that has formed
// works without the seed until a node fails. Nodes of a seed with a replicated log
// ([SeedConfig].Consensus) wait until it is started again, or connect to another seed.
func (s *Seed) Close() error { return s.seed.Close() }
