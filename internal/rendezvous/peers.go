package rendezvous

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A Quorum says with which seeds a Server keeps what it decides: they agree on each
// change as long as most of them reach each other, and forget none.
type Quorum struct {
	// Self is the address at which nodes and other seeds reach this one, and Seeds
	// are those of all, the same everywhere.
	Self  string
	Seeds []string
	// Dir is where this seed keeps what was agreed on.
	Dir string
	// ForgetState lets the seed start with an empty or damaged Dir: it learns the log from
	// the others before it votes.
	ForgetState bool
	// Open opens the log by which they agree.
	Open func(LogConfig) (Log, error)
	// Token is what seeds prove to each other; none: that of the cluster. Nodes have that
	// one, and could pass for seeds with it.
	Token pki.Token
	// Dial connects to one of the others, under the credentials pki.Joining.
	Dial func(ctx context.Context, addr string) (transport.Conn, error)
}

// check refuses what is no quorum.
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
	// backlogMax is how many messages to a seed wait at the most. The log sends anew
	// what is lost.
	backlogMax = 256
	// redialMin and redialMax bound the pause between two attempts to reach a seed.
	redialMin = 50 * time.Millisecond
	redialMax = time.Second
)

// peers are the other seeds, and the log that they share with this one.
type peers struct {
	s     *Server
	addrs map[uint64]string // of all seeds

	mu  sync.Mutex
	log Log
	out map[uint64]*outbox // of those to whom there is a conn
	in  map[uint64]*line   // those from whom there is one
}

// idOf is the ID of a seed in the log. Its lower half is 0.
func idOf(addr string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(addr))
	return (h.Sum64()>>33 | 1) << 32
}

// assemble has this seed agree with the others.
func (s *Server) assemble() error {
	q := s.cfg.Quorum
	if err := q.check(); err != nil {
		return err
	}
	p := &peers{s: s, addrs: make(map[uint64]string), out: make(map[uint64]*outbox), in: make(map[uint64]*line)}
	var ids []uint64
	for _, addr := range q.Seeds {
		ids = append(ids, idOf(addr))
		p.addrs[idOf(addr)] = addr
	}
	s.mu.Lock()
	s.peers, s.office.self = p, idOf(q.Self)
	s.office.lonely = time.AfterFunc(lonelyAfter, s.complain)
	s.mu.Unlock()
	p.mu.Lock()
	var err error
	p.log, err = q.Open(LogConfig{
		Self: s.office.self, Seeds: ids, Dir: q.Dir, Machine: machine{s}, Send: p.send, Log: s.log, ForgetState: q.ForgetState,
	})
	p.mu.Unlock()
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.office.opened = true
	s.mu.Unlock()
	for _, id := range ids {
		if id != s.office.self {
			s.wg.Go(func() { p.keep(id) })
		}
	}
	s.wg.Go(p.watch)
	return nil
}

// addr is the address of a seed.
func (p *peers) addr(id uint64) string {
	if p == nil {
		return ""
	}
	return p.addrs[id]
}

// reaches reports whether there is a conn between this seed and another one.
func (p *peers) reaches(id uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out[id] != nil || p.in[id] != nil
}

// ids are the IDs of all seeds.
func (p *peers) ids() []uint64 { return slices.Collect(maps.Keys(p.addrs)) }

// ledger is the log. It may call the machine before it has been opened.
func (p *peers) ledger() Log {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log
}

// watch ends the Server's world if the log ends before the Server.
func (p *peers) watch() {
	select {
	case <-p.s.open.Done():
		return
	case <-p.ledger().Done():
	}
	if p.s.open.Err() != nil {
		return // Close has ended it.
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.s.lead(0, p.s.office.term)
	p.s.broken = p.ledger().Err()
	p.s.end()
}

// send has a message sent to another seed, if there is a conn to it.
func (p *peers) send(to uint64, message []byte) {
	p.mu.Lock()
	out := p.out[to]
	p.mu.Unlock()
	if out == nil || out.waiting() > backlogMax {
		return
	}
	var frames []byte
	for more := true; more; {
		part := message[:min(len(message), wire.LogBytesMax)]
		message = message[len(part):]
		more = len(message) > 0
		frames = append(frames, frame(wire.JoinLog{More: more, Data: part})...)
	}
	out.post(frames)
}

// keep keeps a conn to another seed.
func (p *peers) keep(id uint64) {
	pause, said := redialMin, ""
	for {
		began := time.Now()
		err := p.talk(id)
		if p.s.open.Err() != nil {
			return
		}
		if _, isStranger := err.(*strangerError); isStranger {
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
		if !sleep(p.s.open, pause) {
			return
		}
		pause = min(2*pause, redialMax)
	}
}

// lost tells the log that a seed has died, if that is why a conn has ended. One that is
// busy lives.
func (p *peers) lost(id uint64, err error) {
	if errors.Is(err, transport.ErrBusy) {
		return
	}
	if errors.Is(err, transport.ErrPeerGone) || errors.Is(err, transport.ErrPeerClosed) {
		p.ledger().Gone(id)
	}
}

// talk connects to another seed, and sends what there is for it until the conn ends.
func (p *peers) talk(id uint64) error {
	ctx, cancel := context.WithTimeout(p.s.open, p.s.lim.step)
	defer cancel()
	conn, err := p.s.cfg.Quorum.Dial(ctx, p.addrs[id])
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(p.s.open, func() { conn.Close() })
	defer stop()
	session := newSession(conn, Request{limits: p.s.lim})
	if err := p.introduce(ctx, session, id); err != nil {
		return &strangerError{err}
	}
	out := newOutbox()
	p.set(id, out)
	defer p.set(id, nil)
	session.line.run(out, p.s.lim, p.s.lim.ping, func() { out.post(frame(p.s.ping())) })
	return conn.Err()
}

// A strangerError says that what answers at the address of a seed is not the one that
// this seed is to talk to.
type strangerError struct{ err error }

func (e *strangerError) Error() string { return e.err.Error() }
func (e *strangerError) Unwrap() error { return e.err }

// introduce tells a seed who this one is, and makes sure of whom it is talking to: what
// it is sent has the key of the cluster in it.
func (p *peers) introduce(ctx context.Context, session *Session, id uint64) error {
	if _, err := session.authenticate(ctx, p.s.cfg.Token); err != nil {
		return err
	}
	l, deadline := session.line, time.Now().Add(p.s.lim.step)
	self, err := p.s.introduction(l, pki.CallingPeerRole)
	if err == nil {
		err = l.write(deadline, self)
	}
	if err != nil {
		return err
	}
	m, err := session.answer(deadline)
	if err != nil {
		return err
	}
	other, ok := m.(wire.JoinPeer)
	if !ok || other.Seed != id {
		return fmt.Errorf("it is not the seed %s, but sent %T", p.addrs[id], m)
	}
	return p.s.checkIntroduction(l, other, pki.AnsweringPeerRole)
}

// introduction is what this seed says of itself to another one.
func (s *Server) introduction(l *line, role pki.Role) (m wire.JoinPeer, err error) {
	m = wire.JoinPeer{Seed: s.office.self, World: uint32(s.cfg.World)}
	if token := s.peerToken(); !token.IsZero() {
		m.Proof, err = token.Proof(role, l.secured().ConnectionState())
	}
	return m, err
}

// peerToken is what seeds prove to each other.
func (s *Server) peerToken() pki.Token {
	if t := s.cfg.Quorum.Token; !t.IsZero() {
		return t
	}
	return s.cfg.Token
}

// checkIntroduction refuses a seed that is none of this cluster's, or would lead the
// nodes of this one to something else.
func (s *Server) checkIntroduction(l *line, m wire.JoinPeer, role pki.Role) error {
	p := s.peers
	switch {
	case p == nil:
		return refuse(wire.RefusedMalformed, "this seed was not told of others (--peers)")
	case m.Seed == s.office.self:
		return refuse(wire.RefusedMalformed, "the other seed has the address of this one; --peers has to be the same on all seeds")
	case p.addrs[m.Seed] == "":
		return refuse(wire.RefusedMalformed, "the other seed is none of those that this one was told of; --peers has to be the same on all seeds")
	case int(m.World) != s.cfg.World:
		return refuse(wire.RefusedMalformed, "seed %s was started for a world of %d, and seed %s for one of %d", p.addrs[m.Seed], m.World, p.addrs[s.office.self], s.cfg.World)
	}
	if token := s.peerToken(); !token.IsZero() {
		if ok, err := token.Verify(m.Proof, role, l.secured().ConnectionState()); err != nil || !ok {
			return refuse(wire.RefusedToken, "seed %s does not hold the token of the seeds (--peer-token-file)", p.addrs[m.Seed])
		}
	}
	return nil
}

func (p *peers) set(id uint64, out *outbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if out == nil {
		delete(p.out, id)
	} else {
		p.out[id] = out
	}
}

// attendPeer reads what another seed sends until the conn ends, or it has another one.
func (s *Server) attendPeer(l *line, m wire.JoinPeer) {
	p := s.peers
	err := s.checkIntroduction(l, m, pki.CallingPeerRole)
	if err == nil {
		err = s.answerPeer(l)
	}
	if err != nil {
		s.turnAway(l, err)
		return
	}
	p.enter(m.Seed, l)
	err = p.listen(l, m.Seed)
	if current := p.leave(m.Seed, l); s.open.Err() == nil && current {
		s.log.Debug("conn of another seed has ended", "seed", p.addrs[m.Seed], "err", err)
		p.lost(m.Seed, l.conn.Err())
	}
}

// answerPeer tells a seed who this one is.
func (s *Server) answerPeer(l *line) error {
	self, err := s.introduction(l, pki.AnsweringPeerRole)
	if err != nil {
		return err
	}
	return l.write(time.Now().Add(s.lim.step), self)
}

// enter has a seed one conn to this one, the newest.
func (p *peers) enter(id uint64, l *line) {
	p.mu.Lock()
	old := p.in[id]
	p.in[id] = l
	p.mu.Unlock()
	if old != nil {
		old.conn.Close()
	}
}

// leave reports whether a conn was the one that a seed has.
func (p *peers) leave(id uint64, l *line) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.in[id] != l {
		return false
	}
	delete(p.in, id)
	return true
}

// listen hands the log what a seed sends, until an error.
func (p *peers) listen(l *line, from uint64) error {
	var message []byte
	for {
		m, err := l.hear(p.s.lim.silence)
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
			if err := p.ledger().Step(from, message); err != nil {
				return err
			}
			message = nil
		default:
			return fmt.Errorf("it sent a %T", m)
		}
	}
}

// sendOn tells a client which seed leads.
func (s *Server) sendOn(l *line, leader string) {
	deadline := time.Now().Add(s.lim.linger)
	ctx, cancel := context.WithDeadline(s.open, deadline)
	defer cancel()
	if l.open(ctx) == nil && l.write(deadline, wire.JoinElsewhere{Leader: leader}) == nil {
		l.finish(s.lim.linger)
	}
}

// A machine makes the changes of the log.
type machine struct{ s *Server }

func (m machine) Apply(b []byte) {
	var c change
	if err := json.Unmarshal(b, &c); err != nil {
		m.s.log.Error("change cannot be read", "err", err)
		return
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.s.commit(c)
	m.s.hear(func(time.Time) {})
}

func (m machine) Lead(seed, term uint64) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if m.s.open.Err() == nil {
		m.s.lead(seed, term)
	}
}

func (m machine) Snapshot() []byte {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	b, err := m.s.record.marshal()
	if err != nil {
		panic("seed: " + err.Error())
	}
	return b
}

// Check reports why Restore would not take a state, or why this seed must not: it has
// handed out a later view.
func (m machine) Check(b []byte) error {
	r, err := parseRecord(b)
	if err != nil {
		return err
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if ours, theirs := m.s.record.state.View().Epoch, r.state.View().Epoch; theirs < ours {
		return fmt.Errorf("it ends with view %d, and this seed knows view %d", theirs, ours)
	}
	return nil
}

func (m machine) Restore(b []byte) error {
	r, err := parseRecord(b)
	if err != nil {
		return err
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if r.over && m.s.office.opened {
		m.s.office.overTerm = r.overTerm
	}
	m.s.record = r
	m.s.announce()
	return nil
}

func (m machine) Progress(behind []uint64) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if m.s.office.held {
		m.s.shareEnd(behind)
	}
}
