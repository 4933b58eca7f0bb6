package nexar

import (
	"context"
	"fmt"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/nexar-go/nexar/internal/collective"
	"github.com/nexar-go/nexar/internal/inspect"
	"github.com/nexar-go/nexar/internal/node"
	"github.com/nexar-go/nexar/internal/recorder"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
)

// QueryCluster asks a seed of cfg for the state of all nodes of its cluster, with a
// snapshot of the recent operations of each. This process needs the token of the cluster
// but does not join. QueryCluster uses Seeds, Token, TokenFile, AllowWeakToken, CAFile, Transports, Factories and
// Log of cfg; all but Factories default to the environment.
//
// A node that does not answer the seed within 2 seconds has no snapshot. QueryCluster
// returns within 20 seconds, and fails at once if no seed is configured.
func QueryCluster(ctx context.Context, cfg Config) (trace.Cluster, error) {
	return ClusterQuery{}.Query(ctx, cfg)
}

// A ClusterQuery has options for [QueryCluster], such as those for programs that ask again and again: a stopped node delays each answer by no
// more than Wait, and brief snapshots of 1,000 nodes have 4 MB.
type ClusterQuery struct {
	// Wait limits the time for the answers of nodes to the seed: from 100 milliseconds to 2 seconds; 0 means 2 seconds. A seed that
	// is asked by others at the same time may wait for less.
	Wait time.Duration
	// Brief limits each snapshot to 4 KiB: the operations that run, or six, and eight links.
	Brief bool
	// History fills each snapshot with operations, at most 128, and nothing else. For the next two seconds the nodes read the clock at the
	// beginning and at the end of each operation, so that no time is approximate. Brief has no effect then.
	History bool
}

// Query asks a seed of cfg, as [QueryCluster] does. It returns at once when ctx ends.
func (q ClusterQuery) Query(ctx context.Context, cfg Config) (trace.Cluster, error) {
	s, err := queryCluster(ctx, cfg, q)
	return s, opError("query cluster", explainJoin(err))
}

func queryCluster(ctx context.Context, cfg Config, q ClusterQuery) (s trace.Cluster, err error) {
	cfg, err = Config{
		Seeds: cfg.Seeds, Token: cfg.Token, TokenFile: cfg.TokenFile, AllowWeakToken: cfg.AllowWeakToken, CAFile: cfg.CAFile, Log: cfg.Log, Transports: cfg.Transports, Factories: cfg.Factories,
	}.fill("Seeds", "Token", "TokenFile", "AllowWeakToken", "CAFile", "Transports", "Log")
	if err != nil {
		return s, err
	}
	if len(cfg.Seeds) == 0 {
		return s, fmt.Errorf("%w: no seed: set NEXAR_SEEDS to the address of one", ErrConfig)
	}
	token, err := cfg.token(ctx)
	if err != nil {
		return s, err
	}
	use, err := cfg.transports()
	if err != nil {
		return s, err
	}
	if use.Roots, err = cfg.roots(ctx); err != nil {
		return s, err
	}
	detail := wire.Full
	switch {
	case q.History:
		detail = wire.History
	case q.Brief:
		detail = wire.Brief
	}
	return node.Status(ctx, cfg.Seeds, token, use, cfg.Log, wire.JoinStatusRequest{Wait: uint32(min(max(q.Wait, 0), time.Minute).Milliseconds()), Detail: detail})
}

// status returns the encoded trace for the seed, or nil before the node has joined.
func (n *Node) status(detail wire.Detail) []byte {
	if n.World() == nil {
		return nil
	}
	if detail == wire.History {
		n.node.Mesh.Engine().TimeExactly(2 * time.Second) // until the next query of a page or terminal that somebody watches
	}
	return recorder.Encode(n.Trace(), detail)
}

// Trace returns the recent operations of this node, on all its communicators. It may be
// called at any time, also while operations are running, which it hardly delays, and after
// [Node.Close].
func (n *Node) Trace() trace.Snapshot { return n.World().Trace() }

// Trace returns the recent operations of the node of this rank, on all its communicators,
// as [Node.Trace] does.
func (c *Comm) Trace() trace.Snapshot {
	view, mesh := c.impl.View.View, c.impl.View.Mesh()
	rank, _ := view.Rank(mesh.Self())
	self := view.Nodes[rank]
	list := append(collective.Operations(mesh.Engine().Traces()), c.node.calls.Operations()...)
	s := trace.Snapshot{
		Node: self.ID.String(), Name: self.Name, Rank: rank, Size: view.Size(), Epoch: view.Epoch,
		Time: time.Now(), Operations: recorder.Last(list, recorder.Length), Links: mesh.Traffic(view), Relayed: mesh.Relayed(),
		Counters: append(collective.Counters(mesh.Engine().Counters()), c.node.calls.Counters()...), Process: c.process(),
	}
	mesh.Engine().SetSites(&s)
	return s
}

// process returns the facts about this process.
func (c *Comm) process() trace.Process {
	mesh, heap := c.impl.View.Mesh(), []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(heap)
	p := trace.Process{Goroutines: runtime.NumGoroutine(), HeapBytes: heap[0].Value.Uint64(), SharedBytes: mesh.Reach().SharedBytes()}
	stats := c.node.factory.Pool.Stats()
	for _, t := range append(stats.Tiers, stats.Oversize) {
		p.LentBuffers, p.IdleBytes = p.LentBuffers+t.InUse, p.IdleBytes+t.BytesIdle
	}
	p.Dials, p.DialFailures = mesh.Dials()
	if n := c.node.node; n != nil {
		failures, _ := n.node.Failures(0)
		p.Failures, p.CertificateEnd = len(failures), n.node.Session.Identity.NotAfter()
		p.Recoveries, p.Recovery = n.follower.Recoveries()
	}
	return p
}

// A Diagnosis describes the sockets and transports that this machine has for a node; see
// [Diagnose].
type Diagnosis struct {
	Listen     string   // address at which a node would listen
	UDP        bool     // a UDP socket is available; without it nodes use TCP alone
	Advertised []string // addresses that other nodes would dial
	Transports []string // transports that work on this machine

	ReadBuffer, WriteBuffer int  // of the UDP socket, in bytes
	WantedBuffer            int  // recommended size of both, in bytes
	GSO                     bool // the kernel segments large sends
	DetectsProcessExit      bool // peers notice the end of the process at once; otherwise by its silence

	Problems []Problem
}

// A Problem is a defect of a machine or of its environment.
type Problem struct {
	Text  string
	Fix   string // how to fix it
	Fatal bool   // nodes cannot work on this machine
}

// Diagnose opens the sockets that [Join] would open with cfg, examines them, and closes them. Zero
// fields of cfg are taken from the environment. The error is [ErrConfig], for an invalid setting; other
// failures are in Diagnosis.Problems.
func Diagnose(cfg Config) (Diagnosis, error) {
	cfg, err := cfg.fill()
	if err != nil {
		return Diagnosis{}, opError("diagnose", err)
	}
	use, err := cfg.transports()
	if err != nil {
		return Diagnosis{}, opError("diagnose", err)
	}
	r := inspect.Machine(cfg.Listen, cfg.Advertise, use.Names)
	d := Diagnosis{
		Listen: r.Listen, UDP: r.UDP, Advertised: r.Advertised, Transports: r.Transports,
		ReadBuffer: r.ReadBuffer, WriteBuffer: r.WriteBuffer, WantedBuffer: r.WantedBuffer, GSO: r.GSO, DetectsProcessExit: r.Watched,
	}
	for _, p := range r.Problems {
		d.Problems = append(d.Problems, Problem{Text: p.Text, Fix: p.Fix, Fatal: p.Fatal})
	}
	return d, nil
}
