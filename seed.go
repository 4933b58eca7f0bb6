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

// SeedConfig says how a seed brings a world together.
type SeedConfig struct {
	// Listen is the UDP and TCP address ("host:port", or "host" with the port 7946) at which
	// nodes reach the seed. The default is any free port of all addresses.
	Listen string
	// Transports are the transports at which nodes reach the seed, as in
	// Config.Transports: it accepts them over QUIC and TCP, and over those of
	// Factories whose Conns have the capability TLSConn. The default is NEXAR_TRANSPORTS, and
	// otherwise all.
	Transports []string
	Factories  []transport.Factory
	// World is the number of nodes with which the world forms, at least 1.
	World int
	// Elastic lets nodes join after that, when the others call Node.Reconfigure, until
	// there are ElasticMax; 0 is without limit. ElasticMin is the least number with
	// which the world goes on when nodes have failed. By default they are
	// NEXAR_ELASTIC_ENABLED, NEXAR_ELASTIC_MIN_WORLD_SIZE and
	// NEXAR_ELASTIC_MAX_WORLD_SIZE, and otherwise off, 1 and 0.
	Elastic                bool
	ElasticMin, ElasticMax int
	// Token is the secret that admits nodes. It has at least 128 bits, unless
	// Listen is a loopback address; NewToken makes one. The default is
	// NEXAR_CLUSTER_TOKEN. TokenFile is the path of a file with the token in place of it,
	// as in Config; its default is NEXAR_CLUSTER_TOKEN_FILE.
	Token, TokenFile string
	// CACertFile and CAKeyFile are the paths of files with the certificate of a CA and its
	// private key (PEM, in one file or two), which signs the CA of the cluster. Its path length
	// is at least 1. Nodes that have the certificate in Config.CAFile accept no other seed. Only
	// the start reads the key: keep its file at mode 0600, where a seed that is started again
	// finds it. All Peers need the same CA. The default is a CA of the seed that signs itself.
	CACertFile, CAKeyFile string
	// StateDir is a directory where the seed keeps its certificate authority and, with
	// Consensus, who is in the world: then one that is started again goes on with the
	// same world, and its nodes come back to it by themselves. The default is to keep
	// it in memory.
	StateDir string
	// Consensus opens the replicated log of the seeds' decisions: use raft.Open of package
	// github.com/nexar-go/nexar/consensus/raft. By default, this seed decides alone and its
	// decisions are lost when it ends.
	Consensus consensus.OpenFunc
	// Peers are the addresses ("host:port", or "host" with the port 7946) of all seeds of the cluster, this one among
	// them, the same on each: three or five, of which fewer than half may fail. They
	// agree on everything that has to outlive one of them; the others go on by
	// themselves. Each needs a Consensus, and a StateDir of its own. One that has lost its
	// StateDir must not start without ForgetState. The default is one seed.
	Peers []string
	// ForgetState lets one of several Peers start with an empty or damaged StateDir: it
	// learns from the others, a majority of all Peers, and votes when it has caught up. A
	// StateDir that is not damaged is kept. Leave it out at the first start of a cluster:
	// no seed has a state to learn then.
	ForgetState bool
	// PeerToken is a secret that the Peers prove to each other, like Token. Nodes have
	// Token, and whoever holds it could pass for a seed; PeerToken keeps this to hosts
	// that have it. The default is Token.
	PeerToken string
	// Advertise is which of the Peers this seed is. The default is the one that leads
	// to Listen on this host.
	Advertise string
	// FormTimeout is how long the world may take to form: 5 minutes by
	// default, less than 0 for ever.
	FormTimeout time.Duration
	// Health, if not empty, is a TCP address ("host:port") at which the seed answers HTTP
	// requests for /healthz, with status 200 as long as it can go on, and for /readyz, with
	// status 200 as long as nodes can join or are redirected to the seed that leads. The
	// status is otherwise 503, with the reason as text. Requests need no token.
	Health string
	// Progress, if not nil, is called for each node that joins or goes, one
	// after the other. It must not close the Seed, which waits for it.
	Progress func(SeedEvent)
	// Log receives the events of the seed. Nil, the default, logs warnings and errors to
	// slog.Default, and NEXAR_LOG changes that, as for Config.Log.
	Log *slog.Logger
}

// A SeedEvent says that a node has joined or gone, or which seed leads.
type SeedEvent struct {
	// Leader, if not empty, is the address of the seed that leads from now on, of
	// several; then there is nothing else in the event. Nodes join and go at that one.
	Leader string

	Node NodeID
	Name string // of its process, for people: "hostname:pid"
	Addr string // where other nodes look for it first
	// Rank is the one it has, or as long as nodes are missing the one it
	// wants; -1 leaves that to the seed.
	Rank   int
	Back   bool   // it had a place already, and has another connection to the seed
	Gone   bool   // it has gone
	Left   bool   // it has gone in good order
	Reason string // why it has gone
	Joined int    // nodes that are there now
	World  int    // nodes that there will be
}

// A Seed admits nodes to a cluster. It is never on the way of data.
type Seed struct{ seed *node.Seed }

// NewToken makes a cluster token of 256 bits.
func NewToken() string { return pki.NewToken().Reveal() }

// ReadTokenFile returns the token in a file, as Config.TokenFile and SeedConfig.TokenFile do. It
// refuses a file that other users of the host can access; errors contain the path but not the
// token.
func ReadTokenFile(path string) (string, error) {
	t, err := pki.ReadTokenFile(path)
	if err != nil {
		return "", err
	}
	return t.Reveal(), nil
}

// StartSeed starts a seed, which runs until it is closed. ctx is only for the
// start.
func StartSeed(ctx context.Context, cfg SeedConfig) (*Seed, error) {
	s, err := startSeed(ctx, cfg)
	return s, opError("seed", explainJoin(err))
}

func startSeed(ctx context.Context, cfg SeedConfig) (*Seed, error) {
	env, err := parseEnv("Transports", "Token", "TokenFile", "Log")
	if err != nil {
		return nil, err
	}
	elastic, err := cfg.elastic()
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if cfg.World < 1 {
		return nil, fmt.Errorf("%w: a world of %d nodes", ErrConfig, cfg.World)
	}
	if len(cfg.Peers) > 0 && (cfg.StateDir == "" || cfg.Consensus == nil) {
		return nil, fmt.Errorf("%w: seeds that have Peers need a StateDir each, and a Consensus: raft.Open of package consensus/raft", ErrConfig)
	}
	if cfg.ForgetState && len(cfg.Peers) == 0 {
		return nil, fmt.Errorf("%w: ForgetState is for one of several Peers: a seed that has no others starts a new world in an empty StateDir", ErrConfig)
	}
	secret := &Config{Token: cfg.Token, TokenFile: cfg.TokenFile}
	if cfg.Token == "" && cfg.TokenFile == "" {
		secret = &env
	}
	token, err := secret.token()
	if err != nil {
		return nil, err
	}
	use, err := (&Config{Transports: cfg.Transports, Factories: cfg.Factories}).transports()
	if len(cfg.Transports) == 0 {
		use, err = (&Config{Transports: env.Transports, Factories: cfg.Factories}).transports()
	}
	if err != nil {
		return nil, err
	}
	peerToken, err := pki.ParsePeerToken(cfg.PeerToken, token)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	issuer, err := cfg.issuer()
	if err != nil {
		return nil, err
	}
	s, err := node.StartSeed(node.SeedConfig{
		Listen: cmp.Or(host.WithPort(cfg.Listen, SeedPort), defaultListen), Transports: use, StateDir: cfg.StateDir, Open: cfg.Consensus, Peers: host.WithPorts(cfg.Peers, SeedPort), ForgetState: cfg.ForgetState, PeerToken: peerToken, Advertise: host.WithPort(cfg.Advertise, SeedPort), Token: token, Issuer: issuer, World: cfg.World,
		Elastic: elastic.Elastic, Min: elastic.ElasticMin, Max: elastic.ElasticMax,
		FormTimeout: cfg.FormTimeout, Progress: cfg.follow, Health: cfg.Health,
		Log: cmp.Or(cfg.Log, env.Log, settings.Warnings(slog.Default())),
	})
	if err != nil {
		return nil, err
	}
	return &Seed{s}, nil
}

// issuer returns the CA of the user, or nil.
func (cfg *SeedConfig) issuer() (*pki.Issuer, error) {
	if cfg.CACertFile == "" && cfg.CAKeyFile == "" {
		return nil, nil
	}
	if cfg.CACertFile == "" || cfg.CAKeyFile == "" {
		return nil, fmt.Errorf("%w: CACertFile=%q, CAKeyFile=%q: a CA needs both", ErrConfig, cfg.CACertFile, cfg.CAKeyFile)
	}
	i, err := pki.ReadIssuer(cfg.CACertFile, cfg.CAKeyFile)
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
func (cfg *SeedConfig) follow(e server.Event) {
	if cfg.Progress == nil {
		return
	}
	if e.Leader != "" {
		cfg.Progress(SeedEvent{Leader: e.Leader})
		return
	}
	cfg.Progress(SeedEvent{
		Back: e.Back, Node: NodeID(e.Node.ID), Name: e.Node.Name, Addr: e.Node.Addr(), Rank: e.Rank,
		Gone: e.Gone, Left: e.Left, Reason: e.Reason, Joined: e.Here, World: cfg.World,
	})
}

// Addr is an address ("host:port") of the seed for NEXAR_SEEDS.
func (s *Seed) Addr() string { return s.seed.Addr() }

// HealthAddr is the address ("host:port") of SeedConfig.Health, with the port that was chosen
// if it is 0 there; empty if there is none.
func (s *Seed) HealthAddr() string { return s.seed.HealthAddr() }

// Wait returns nil when the world has formed, or the reason why it has not. A
// ctx that has ended does not keep it from saying what is known.
func (s *Seed) Wait(ctx context.Context) error { return opError("seed", explainJoin(s.seed.Wait(ctx))) }

// Err is why the seed cannot go on, as when its StateDir cannot be written; nil if it
// can, or has nothing more to do.
func (s *Seed) Err() error { return opError("seed", s.seed.Err()) }

// Done is closed when the seed has nothing more to do: the world did not
// form, all its nodes have gone, or Err is not nil.
func (s *Seed) Done() <-chan struct{} { return s.seed.Done() }

// Close ends the seed. Nodes that wait for the world are told that it will not
// form; a world that has formed goes on without it, until a node fails. If it has a
// StateDir or Peers, nodes wait until it is there again, or turn to the others.
func (s *Seed) Close() error { return s.seed.Close() }
