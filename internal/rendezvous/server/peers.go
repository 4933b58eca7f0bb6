package server

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nexar-go/nexar/consensus"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A Replication describes the seeds that agree on the decisions of a Server. They make progress as
// long as a majority of them reach each other, and none loses its state.
type Replication struct {
	// Self is the address at which nodes and other seeds reach this one, and Seeds
	// are the addresses of all seeds, the same everywhere, which contain Self.
	Self  string
	Seeds []string
	// Dir is the directory for the log of this seed.
	Dir string
	// ForgetState lets the seed start with an empty or damaged Dir: it learns the log from
	// the others before it votes.
	ForgetState bool
	// Open opens the replicated log.
	Open consensus.OpenFunc
	// Token is the secret that seeds prove to each other. If it is zero, they prove the cluster
	// token, so that a node could impersonate a seed.
	Token pki.Token
	// Dial connects to another seed, under the credentials pki.Joining.
	Dial func(ctx context.Context, addr string) (transport.Conn, error)
}

// check refuses a list of Seeds whose logs would take one for another.
func (q *Replication) check() error {
	addrs := make(map[uint64]string)
	for _, addr := range q.Seeds {
		switch other, ok := addrs[idOf(addr)]; {
		case ok && other == addr:
			return fmt.Errorf("seed %q is twice among %q", addr, q.Seeds)
		case ok:
			return fmt.Errorf("the addresses %q and %q have the same hash: give one of the seeds another port", other, addr)
		}
		addrs[idOf(addr)] = addr
	}
	return nil
}

const (
	// messageBytesMax is the maximum length of a message of the log, which is sent in parts.
	messageBytesMax = 64 << 20
	// backlogMax is the maximum number of queued messages for a peer. The log repeats lost
	// messages.
	backlogMax = 256
)

// alone is the address of a seed without a Replication.
const alone = "alone"

// peers are the connections between this seed and the others. They carry the messages of the
// log, which repeats lost ones. Each seed sends over the connections that it has dialed.
type peers struct {
	s     *Server
	self  uint64
	addrs map[uint64]string // of all seeds

	mu  sync.Mutex
	out map[uint64]*handshake.Outbox // of dialled connections
	in  map[uint64]*handshake.Conn   // accepted connections
}

// idOf returns the ID of a seed in the log. Its lower half is 0.
func idOf(addr string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(addr))
	return (h.Sum64()>>33 | 1) << 32
}

func newPeers(s *Server) *peers {
	p := &peers{
		s: s, self: idOf(s.cfg.Replication.Self), addrs: make(map[uint64]string),
		out: make(map[uint64]*handshake.Outbox), in: make(map[uint64]*handshake.Conn),
	}
	for _, addr := range s.cfg.Replication.Seeds {
		p.addrs[idOf(addr)] = addr
	}
	return p
}

// ids returns the IDs of all seeds.
func (p *peers) ids() []uint64 { return slices.Sorted(maps.Keys(p.addrs)) }

// others reports whether there are other seeds.
func (p *peers) others() bool { return len(p.addrs) > 1 }

// nodeAddrs returns the addresses of the seeds for nodes, if there are several.
func (p *peers) nodeAddrs() []string {
	if !p.others() {
		return nil
	}
	return p.s.cfg.Replication.Seeds
}

// reaches reports whether this seed has a connection with another one.
func (p *peers) reaches(id uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out[id] != nil || p.in[id] != nil
}

// start keeps a connection to each of the others.
func (p *peers) start() {
	for id := range p.addrs {
		if id != p.self {
			p.s.conns.Go(func() { p.keep(id) })
		}
	}
}

// send sends a message of the log to another seed, if they are connected.
func (p *peers) send(to uint64, message []byte) {
	p.mu.Lock()
	out := p.out[to]
	p.mu.Unlock()
	if out == nil || out.Len() > backlogMax {
		return
	}
	var frames []byte
	for more := true; more; {
		part := message[:min(len(message), wire.LogBytesMax)]
		message = message[len(part):]
		more = len(message) > 0
		frames = append(frames, handshake.Frame(wire.JoinLog{More: more, Data: part})...)
	}
	out.Post(frames)
}

// keep dials another seed whenever they are not connected.
func (p *peers) keep(id uint64) {
	pause, reported := handshake.PauseMin, ""
	for {
		began := time.Now()
		err := p.dial(id)
		if p.s.ctx.Err() != nil {
			return
		}
		if time.Since(began) > handshake.PauseMax {
			pause, reported = handshake.PauseMin, ""
		}
		if _, mismatched := errors.AsType[*mismatchError](err); !mismatched {
			p.s.log.Debug("cannot connect to another seed", "seed", p.addrs[id], "err", err)
			p.lost(id, err)
		} else if pause = handshake.PauseMax; reported != err.Error() {
			p.s.log.Error("another seed does not match this one", "seed", p.addrs[id], "err", err)
			reported = err.Error()
		}
		if !handshake.Sleep(p.s.ctx, pause) {
			return
		}
		pause = min(2*pause, handshake.PauseMax)
	}
}

// lost reports to the log that the process of a seed has ended, if that has ended the
// connection. A seed that refuses connections because it is busy is alive.
func (p *peers) lost(id uint64, err error) {
	if !errors.Is(err, transport.ErrBusy) && (errors.Is(err, transport.ErrPeerGone) || errors.Is(err, transport.ErrPeerClosed)) {
		p.s.replica.Gone(id)
	}
}

// dial connects to another seed, and writes the messages of the log until the connection ends.
func (p *peers) dial(id uint64) error {
	ctx, cancel := context.WithTimeout(p.s.ctx, p.s.lim.Step)
	defer cancel()
	conn, err := p.s.cfg.Replication.Dial(ctx, p.addrs[id])
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(p.s.ctx, func() { conn.Close() })
	defer stop()
	c := handshake.New(conn)
	if err := p.introduce(ctx, c, id); err != nil {
		return &mismatchError{err}
	}
	out := handshake.NewOutbox()
	p.mu.Lock()
	p.out[id] = out
	p.mu.Unlock()
	c.Run(out, p.s.lim, p.s.lim.Ping, func() { out.Post(handshake.Frame(wire.JoinPing{})) })
	p.mu.Lock()
	delete(p.out, id)
	p.mu.Unlock()
	return conn.Err()
}

// A mismatchError reports that the process at the address of a seed is not that seed.
type mismatchError struct{ err error }

func (e *mismatchError) Error() string { return e.err.Error() }

// introduce authenticates both seeds to each other, since messages of the log contain the key
// of the cluster.
func (p *peers) introduce(ctx context.Context, c *handshake.Conn, id uint64) error {
	if _, err := c.Call(ctx, p.s.cfg.Token, p.s.lim.Step); err != nil {
		return err
	}
	if err := p.hello(c, pki.CallingPeerRole); err != nil {
		return err
	}
	m, err := c.ReadReply(time.Now().Add(p.s.lim.Step))
	if err != nil {
		return err
	}
	other, ok := m.(wire.JoinSeedHello)
	if !ok || other.Seed != id {
		return fmt.Errorf("it is not the seed %s, but sent %T", p.addrs[id], m)
	}
	return p.check(c, other, pki.AnsweringPeerRole)
}

// hello writes the first message of this seed to another one.
func (p *peers) hello(c *handshake.Conn, role pki.Role) (err error) {
	m := wire.JoinSeedHello{Seed: p.self, World: uint32(p.s.cfg.World)}
	if token := p.token(); !token.IsZero() {
		if m.Proof, err = token.Offered().Proof(role, c.Secured().ConnectionState()); err != nil {
			return err
		}
	}
	return c.Write(time.Now().Add(p.s.lim.Step), m)
}

// token returns the secret of the seeds.
func (p *peers) token() pki.Token {
	if t := p.s.cfg.Replication.Token; !t.IsZero() {
		return t
	}
	return p.s.cfg.Token
}

// check refuses a seed of another cluster, or with other settings.
func (p *peers) check(c *handshake.Conn, m wire.JoinSeedHello, role pki.Role) error {
	switch {
	case !p.others():
		return handshake.Refuse(wire.RefusedMalformed, "this seed was not told of others (--peers)")
	case m.Seed == p.self:
		return handshake.Refuse(wire.RefusedMalformed, "the other seed has the address of this one; --peers has to be the same on all seeds")
	case p.addrs[m.Seed] == "":
		return handshake.Refuse(wire.RefusedMalformed, "the other seed is not among the peers of this one; --peers has to be the same on all seeds")
	case int(m.World) != p.s.cfg.World:
		return handshake.Refuse(wire.RefusedMalformed, "seed %s was started for a world of %d, and seed %s for one of %d", p.addrs[m.Seed], m.World, p.addrs[p.self], p.s.cfg.World)
	}
	if token := p.token(); !token.IsZero() {
		proves := func(t pki.Token) bool {
			ok, err := t.Verify(m.Proof, role, c.Secured().ConnectionState())
			return err == nil && ok
		}
		if !slices.ContainsFunc(token.Accepted(), proves) {
			return handshake.Refuse(wire.RefusedToken, "seed %s does not hold the token of the seeds (--peer-token-file)", p.addrs[m.Seed])
		}
	}
	return nil
}

// serve reads messages of another seed until the connection ends or a newer one replaces it.
// It returns the reason if it refuses that seed.
func (p *peers) serve(c *handshake.Conn, m wire.JoinSeedHello) error {
	if err := p.check(c, m, pki.CallingPeerRole); err != nil {
		return err
	}
	if err := p.hello(c, pki.AnsweringPeerRole); err != nil {
		return err
	}
	p.mu.Lock()
	old := p.in[m.Seed]
	p.in[m.Seed] = c
	p.mu.Unlock()
	if old != nil {
		old.Close()
	}
	err := p.read(c, m.Seed)
	p.mu.Lock()
	current := p.in[m.Seed] == c
	if current {
		delete(p.in, m.Seed)
	}
	p.mu.Unlock()
	if current && p.s.ctx.Err() == nil {
		p.s.log.Debug("connection of another seed has ended", "seed", p.addrs[m.Seed], "err", err)
		p.lost(m.Seed, c.Err())
	}
	return nil
}

// read passes messages of a seed to the log until an error.
func (p *peers) read(c *handshake.Conn, from uint64) error {
	var message []byte
	for {
		m, err := c.ReadWithin(p.s.lim.Silence)
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case wire.JoinPing:
		case wire.JoinLog:
			if len(message)+len(m.Data) > messageBytesMax {
				return fmt.Errorf("message of more than %d bytes", messageBytesMax)
			}
			message = append(message, m.Data...)
			if m.More {
				continue
			}
			if err := p.s.replica.Step(from, message); err != nil {
				return err
			}
			message = nil
		default:
			return fmt.Errorf("it sent a %T", m)
		}
	}
}
