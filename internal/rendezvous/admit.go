package rendezvous

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// serve is the life of one conn.
func (s *Server) serve(conn transport.Conn) {
	defer conn.Close()
	stop := context.AfterFunc(s.open, func() { conn.Close() })
	defer stop()

	l := &line{conn: conn}
	deadline := time.Now().Add(s.lim.hello)
	if err := s.authenticate(l, deadline); err != nil {
		s.turnAway(l, err)
		return
	}
	m, err := l.read(time.Now().Add(s.lim.step), wire.JoinBytesMax)
	if err != nil {
		s.turnAway(l, readError(err))
		return
	}
	if peer, ok := m.(wire.JoinPeer); ok {
		s.attendPeer(l, peer)
		return
	}
	if leader, here := s.leader(); !here {
		s.sendOn(l, leader)
		return
	}
	if _, asks := m.(wire.JoinStatus); asks {
		if err := s.inform(l); err != nil {
			s.turnAway(l, err)
		}
		return
	}
	g, err := s.admit(l, m)
	if err != nil {
		s.turnAway(l, err)
		return
	}
	stop() // from here on Close says goodbye first
	s.host(g)
}

// authenticate makes sure that the peer holds the cluster token, and then
// proves the same to it. Until it knows, it says nothing but why it refuses.
func (s *Server) authenticate(l *line, deadline time.Time) error {
	secured := l.secured()
	if secured == nil {
		return fmt.Errorf("conn over %s is not secured by TLS", s.cfg.Transport.Name())
	}
	if err := l.accept(s.open, deadline); err != nil {
		return err
	}
	m, err := l.read(deadline, wire.HelloBytesMax)
	if err != nil {
		return readError(err)
	}
	hello, ok := m.(wire.JoinHello)
	if !ok {
		return refuse(wire.RefusedMalformed, "the first message was %T", m)
	}
	state := secured.ConnectionState()
	answer := wire.JoinAnswer{Cluster: s.cluster()}
	switch token := s.cfg.Token; {
	case token.IsZero() && len(hello.Proof) > 0:
		return refuse(wire.RefusedToken, "the node has a cluster token (NEXAR_CLUSTER_TOKEN), this cluster has none")
	case token.IsZero():
	case len(hello.Proof) == 0:
		return refuse(wire.RefusedToken, "the node has no cluster token (NEXAR_CLUSTER_TOKEN)")
	default:
		if ok, err := token.Verify(hello.Proof, pki.NodeRole, state); err != nil {
			return err
		} else if !ok {
			return refuse(wire.RefusedToken, "wrong cluster token (NEXAR_CLUSTER_TOKEN)")
		}
		if answer.Proof, err = token.Proof(pki.SeedRole, state); err != nil {
			return err
		}
	}
	if p := transport.CapabilitiesOf(l.conn).Prover; p != nil && !p.Proved() {
		return cmp.Or(l.conn.Err(), transport.ErrClosed) // It was evicted a moment ago.
	}
	ctx, cancel := context.WithDeadline(s.open, deadline)
	defer cancel()
	if err := l.open(ctx); err != nil {
		return err
	}
	return l.write(deadline, answer)
}

// readError turns what could not be read into a refusal, and leaves a conn
// that broke alone.
func readError(err error) error {
	if v, ok := errors.AsType[*wire.VersionError](err); ok {
		return refuse(wire.RefusedVersion, "the node speaks version %d of the nexar protocol, this cluster version %d", v.Theirs, v.Ours)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.Is(err, transport.ErrClosed) || errors.Is(err, transport.ErrPeerClosed) || errors.Is(err, transport.ErrPeerGone) {
		return err
	}
	return refuse(wire.RefusedMalformed, "not a message of nexar: %w", err)
}

// admit gives the peer, who holds the token, a certificate and a place.
func (s *Server) admit(l *line, m wire.JoinMessage) (*guest, error) {
	req, ok := m.(wire.JoinRequest)
	if !ok {
		return nil, refuse(wire.RefusedMalformed, "asked for nothing, but sent %T", m)
	}
	observed := l.conn.RemoteAddr()
	authority := s.authority()
	cert, id, err := authority.Sign(req.CSR, s.cfg.CertificateLife)
	if err != nil {
		return nil, &refusal{wire.RefusedMalformed, err}
	}
	if req.Again && !pki.Bound(req.CSR, l.secured().ConnectionState()) {
		return nil, refuse(wire.RefusedMalformed, "the request of a node that is back was made for another conn")
	}
	node := membership.Node{ID: id, Host: req.Host, Name: req.Name, Endpoints: endpointsOf(req.Endpoints)}
	if node.Host == "" {
		node.Host = hostOf(observed)
	}
	if node.Addrs, err = addresses(observed, req); err != nil {
		return nil, &refusal{wire.RefusedAddress, err}
	}
	admitted, err := wire.AppendJoin(nil, wire.JoinAdmitted{
		Certificate: cert,
		CA:          authority.Certificate(),
		ID:          id,
		Observed:    observed,
		World:       uint32(s.cfg.World),
		Lasting:     s.peers != nil,
		Seeds:       s.addrs(),
	})
	if err != nil {
		return nil, err
	}
	g := &guest{line: l, node: node, wanted: int(req.Rank), spare: req.Spare, origin: originOf(observed), out: newOutbox()}
	g.out.post(admitted)
	return g, s.takePlace(g, req.Again, req.Epoch)
}

// takePlace adds g to those who are told how the world stands. It may have been
// there before, and have the view of an epoch.
func (s *Server) takePlace(g *guest, again bool, epoch uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := g.node.ID
	switch {
	case !s.office.held || !s.office.begun || s.office.ending && s.form.Phase() < membership.Failed:
		return refuse(wire.RefusedBusy, "who leads, or the world, is changing")
	case again && epoch > s.record.view.Epoch:
		return refuse(wire.RefusedBusy, "it does not know yet of view %d", epoch)
	case again && s.record.over && s.record.state.Knows(id):
		s.sendOff(g)
		return nil
	}
	if _, in := s.record.view.Rank(id); again && in {
		s.takeBack(g, epoch)
		return nil
	}
	if again && s.record.state.Knows(id) {
		s.sendOff(g)
		return nil
	}
	if old := s.guests[id]; again && old != nil {
		s.drop(old)
	}
	switch {
	case s.record.over && s.form.Phase() < membership.Failed:
		return refusalOf(fmt.Errorf("%w: the world is over", membership.ErrOver))
	case s.guests[id] != nil || s.record.state.Knows(id):
		return refusalOf(fmt.Errorf("node %v: %w", id, membership.ErrReused))
	case s.isDeserted():
		return refuse(wire.RefusedBusy, "it waits up to %v for the nodes of a world that it knows of", s.lim.back)
	}
	if p := s.form.Phase(); p < membership.Failed && (g.spare || p > membership.Gathering && s.cfg.Elastic || p == membership.Formed) {
		return s.takeSeat(g)
	}
	step, err := s.form.Admit(time.Now(), g.node, g.wanted)
	if err == nil {
		s.guests[id] = g
		s.log.Info("node joined", "node", id, "addr", g.node.Addrs[0], "name", g.node.Name,
			"joined", s.form.Joined(), "world", s.cfg.World)
		g.out.post(s.progress())
	}
	s.apply(step)
	if err == nil {
		s.note(g, Event{})
	}
	if err != nil {
		return refusalOf(err)
	}
	return nil
}

// takeSeat lets g wait in the pending. The lock is held.
func (s *Server) takeSeat(g *guest) error {
	if err := s.pending.Admit(g.node, g.wanted, g.spare, g.origin); err != nil {
		return refusalOf(err)
	}
	s.guests[g.node.ID] = g
	s.log.Info("node waits for its place", "node", g.node.ID, "addr", g.node.Addrs[0], "name", g.node.Name,
		"spare", g.spare, "waiting", s.pending.Waiting(), "world", s.record.view.Size())
	g.out.post(s.progress())
	s.note(g, Event{})
	s.hear(func(time.Time) {})
	return nil
}

// turnAway logs why a client is not admitted and, if it speaks the protocol at
// all, tells it.
func (s *Server) turnAway(l *line, err error) {
	if s.open.Err() != nil {
		return
	}
	addr := l.conn.RemoteAddr()
	r, ok := errors.AsType[*refusal](err)
	if !ok {
		s.warnOfStranger("client did not ask to join", addr, l.reason(err))
		return
	}
	s.warnOfStranger("node refused", addr, r.Error())
	deadline := time.Now().Add(s.lim.linger)
	ctx, cancel := context.WithDeadline(s.open, deadline)
	defer cancel()
	if l.open(ctx) != nil || l.write(deadline, wire.JoinRefusal{Code: r.code, Text: r.err.Error()}) != nil {
		return
	}
	l.finish(s.lim.linger)
}
