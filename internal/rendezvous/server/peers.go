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

// A Quorum describes the seeds that agree on the decisions of a Server: they do as long as a
// majority of them reach each other, and forget none.
type Quorum struct {
	// Self is the address at which nodes and other seeds reach this one, and Seeds
	// are those of all, the same everywhere.
	Self  string
	Seeds []string
	// Dir is where this seed keeps its log.
	Dir string
	// ForgetState lets the seed start with an empty or damaged Dir: it learns the log from
	// the others before it votes.
	ForgetState bool
	// Open opens the log of their decisions.
	Open consensus.OpenFunc
	// Token is proved by seeds to each other; none: that of the cluster. Nodes hold that one,
	// and could pass for seeds with it.
	Token pki.Token
	// Dial connects to one of the others, under the credentials pki.Joining.
	Dial func(ctx context.Context, addr string) (transport.Conn, error)
}

// check refuses an invalid Quorum.
func (q *Quorum) check() error {
	switch {
	case len(q.Seeds) == 0 || !slices.Contains(q.Seeds, q.Self):
		return fmt.Errorf("%q is none of the seeds %q", q.Self, q.Seeds)
	case q.Dir == "":
		return errors.New("seeds that agree need a directory each, in which they keep what they have agreed on")
	case q.Open == nil:
		return errors.New("seeds that agree need a log by which they do")
	case q.Dial == nil && len(q.Seeds) > 1:
		return errors.New("seeds that agree need a way to each other")
	case len(slices.Compact(slices.Sorted(slices.Values(q.Seeds)))) != len(q.Seeds):
		return fmt.Errorf("a seed is twice among %q", q.Seeds)
	}
	ids := make(map[uint64]string)
	for _, addr := range q.Seeds {
		if other, ok := ids[idOf(addr)]; ok {
			return fmt.Errorf("the addresses %q and %q have the same hash: give one of the seeds another port", other, addr)
		}
		ids[idOf(addr)] = addr
	}
	return nil
}

const (
	// messageBytesMax bounds a message of the log, which comes in parts.
	messageBytesMax = 64 << 20
	// backlogMax is how many messages to a seed wait at the most. The log sends
	// lost messages again.
	backlogMax = 256
	// redialMin and redialMax bound the pause between two attempts to reach a seed.
	redialMin = 50 * time.Millisecond
	redialMax = time.Second
)

// alone is the name of a seed that has no peers.
const alone = "alone"

// peers are the connections between this seed and the others. They carry the messages of the
// log, which sends lost ones again.
type peers struct {
	s     *Server
	self  uint64
	addrs map[uint64]string // of all seeds

	mu  sync.Mutex
	out map[uint64]*handshake.Outbox // of the seeds that this one has dialled
	in  map[uint64]*handshake.Conn   // connections of seeds that have dialled this one
}

// idOf is the ID of a seed in the log. Its lower half is 0.
func idOf(addr string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(addr))
	return (h.Sum64()>>33 | 1) << 32
}

func newPeers(s *Server) *peers {
	p := &peers{
		s: s, self: idOf(s.cfg.Quorum.Self), addrs: make(map[uint64]string),
		out: make(map[uint64]*handshake.Outbox), in: make(map[uint64]*handshake.Conn),
	}
	for _, addr := range s.cfg.Quorum.Seeds {
		p.addrs[idOf(addr)] = addr
	}
	return p
}

// ids returns the IDs of all seeds.
func (p *peers) ids() []uint64 { return slices.Sorted(maps.Keys(p.addrs)) }

// others reports whether there are other seeds.
func (p *peers) others() bool { return len(p.addrs) > 1 }

// nodeAddrs returns the addresses at which nodes find the seeds, if there are several.
func (p *peers) nodeAddrs() []string {
	if !p.others() {
		return nil
	}
	return p.s.cfg.Quorum.Seeds
}

// reaches reports whether there is a connection between this seed and another one.
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

// send sends a message of the log to another seed, if there is a connection to it.
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

// keep dials another seed again and again.
func (p *peers) keep(id uint64) {
	pause, said := redialMin, ""
	for {
		began := time.Now()
		err := p.dial(id)
		if p.s.ctx.Err() != nil {
			return
		}
		if _, mismatched := err.(*mismatchError); mismatched {
			if pause = redialMax; said != err.Error() {
				p.s.log.Error("another seed is not to be talked to", "seed", p.addrs[id], "err", err)
			}
			said = err.Error()
		} else {
			p.s.log.Debug("no conn to another seed", "seed", p.addrs[id], "err", err)
			if p.lost(id, err); time.Since(began) > redialMax {
				pause, said = redialMin, ""
			}
		}
		if !handshake.Sleep(p.s.ctx, pause) {
			return
		}
		pause = min(2*pause, redialMax)
	}
}

// lost tells the log that a seed has died, if that is why a connection has ended. A busy one
// lives.
func (p *peers) lost(id uint64, err error) {
	if !errors.Is(err, transport.ErrBusy) && (errors.Is(err, transport.ErrPeerGone) || errors.Is(err, transport.ErrPeerClosed)) {
		p.s.replica.Gone(id)
	}
}

// dial connects to another seed, and writes the messages of the log until the connection ends.
func (p *peers) dial(id uint64) error {
	ctx, cancel := context.WithTimeout(p.s.ctx, p.s.lim.Step)
	defer cancel()
	conn, err := p.s.cfg.Quorum.Dial(ctx, p.addrs[id])
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
	p.set(id, out)
	defer p.set(id, nil)
	c.Run(out, p.s.lim, p.s.lim.Ping, func() { out.Post(handshake.Frame(p.s.ping())) })
	return conn.Err()
}

// A mismatchError reports that the process at the address of a seed is not that seed.
type mismatchError struct{ err error }

func (e *mismatchError) Error() string { return e.err.Error() }
func (e *mismatchError) Unwrap() error { return e.err }

// introduce authenticates both seeds to each other: the messages of the log contain the key of
// the cluster.
func (p *peers) introduce(ctx context.Context, c *handshake.Conn, id uint64) error {
	if _, err := c.Call(ctx, p.s.cfg.Token, p.s.lim.Step); err != nil {
		return err
	}
	deadline := time.Now().Add(p.s.lim.Step)
	self, err := p.introduction(c, pki.CallingPeerRole)
	if err == nil {
		err = c.Write(deadline, self)
	}
	if err != nil {
		return err
	}
	m, err := c.ReadReply(deadline)
	if err != nil {
		return err
	}
	other, ok := m.(wire.JoinSeedHello)
	if !ok || other.Seed != id {
		return fmt.Errorf("it is not the seed %s, but sent %T", p.addrs[id], m)
	}
	return p.check(c, other, pki.AnsweringPeerRole)
}

// introduction is the first message of this seed to another one.
func (p *peers) introduction(c *handshake.Conn, role pki.Role) (m wire.JoinSeedHello, err error) {
	m = wire.JoinSeedHello{Seed: p.self, World: uint32(p.s.cfg.World)}
	if token := p.token(); !token.IsZero() {
		m.Proof, err = token.Proof(role, c.Secured().ConnectionState())
	}
	return m, err
}

// token is the secret of the seeds.
func (p *peers) token() pki.Token {
	if t := p.s.cfg.Quorum.Token; !t.IsZero() {
		return t
	}
	return p.s.cfg.Token
}

// check refuses a seed of another cluster, or one with other settings.
func (p *peers) check(c *handshake.Conn, m wire.JoinSeedHello, role pki.Role) error {
	switch {
	case !p.others():
		return handshake.Refuse(wire.RefusedMalformed, "this seed was not told of others (--peers)")
	case m.Seed == p.self:
		return handshake.Refuse(wire.RefusedMalformed, "the other seed has the address of this one; --peers has to be the same on all seeds")
	case p.addrs[m.Seed] == "":
		return handshake.Refuse(wire.RefusedMalformed, "the other seed is none of those that this one was told of; --peers has to be the same on all seeds")
	case int(m.World) != p.s.cfg.World:
		return handshake.Refuse(wire.RefusedMalformed, "seed %s was started for a world of %d, and seed %s for one of %d", p.addrs[m.Seed], m.World, p.addrs[p.self], p.s.cfg.World)
	}
	if token := p.token(); !token.IsZero() {
		if ok, err := token.Verify(m.Proof, role, c.Secured().ConnectionState()); err != nil || !ok {
			return handshake.Refuse(wire.RefusedToken, "seed %s does not hold the token of the seeds (--peer-token-file)", p.addrs[m.Seed])
		}
	}
	return nil
}

func (p *peers) set(id uint64, out *handshake.Outbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if out == nil {
		delete(p.out, id)
	} else {
		p.out[id] = out
	}
}

// serve reads messages of another seed until the connection ends or the seed has another one.
func (p *peers) serve(c *handshake.Conn, m wire.JoinSeedHello) {
	err := p.check(c, m, pki.CallingPeerRole)
	if err == nil {
		var self wire.JoinSeedHello
		if self, err = p.introduction(c, pki.AnsweringPeerRole); err == nil {
			err = c.Write(time.Now().Add(p.s.lim.Step), self)
		}
	}
	if err != nil {
		p.s.turnAway(c, err)
		return
	}
	p.enter(m.Seed, c)
	err = p.read(c, m.Seed)
	if current := p.leave(m.Seed, c); p.s.ctx.Err() == nil && current {
		p.s.log.Debug("conn of another seed has ended", "seed", p.addrs[m.Seed], "err", err)
		p.lost(m.Seed, c.Err())
	}
}

// enter replaces the connection of a seed by a newer one.
func (p *peers) enter(id uint64, c *handshake.Conn) {
	p.mu.Lock()
	old := p.in[id]
	p.in[id] = c
	p.mu.Unlock()
	if old != nil {
		old.Close()
	}
}

// leave removes a connection, and reports whether it was the current one of its seed.
func (p *peers) leave(id uint64, c *handshake.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.in[id] != c {
		return false
	}
	delete(p.in, id)
	return true
}

// read hands messages of a seed to the log until an error.
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
