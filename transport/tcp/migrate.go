package tcp

import (
	"context"
	"crypto/hmac"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nexar-go/nexar/internal/eyeballs"
)

// When retransmissions are lost too, a socket stalls for longer and longer. A new one
// does not. So a pipe migrates from a stalled socket: its sender continues on another one
// from the first byte that the kernel of the peer has not acknowledged, and the receiver
// reads the old socket up to there. The stream is that of the old socket, TLS records
// included, so the TLS session continues.
//
// The side that dialed the conn dials. The other side requests it by msgMigrate. Both
// prove themselves as for a pipe without TLS. Then the sender states in the header where
// the stream continues. The receiver confirms that it has the socket, and again when it
// reads from it. Nothing changes before the header is sent, so several sockets can be
// tried at once.

const (
	// migrateSockets is the number of sockets that a migration dials, each beside those that are not connected yet.
	migrateSockets = 4
	// migrateTimeout limits the time for one migration.
	migrateTimeout = 30 * time.Second

	headerBytes = 4 + 4 + 8 + len(proof{})
)

// header returns the first bytes of the sender on a subflow.
func (f *subflow) header() []byte {
	b := binary.BigEndian.AppendUint32(nil, f.serial)
	b = binary.BigEndian.AppendUint32(b, f.after)
	b = binary.BigEndian.AppendUint64(b, f.start)
	sum := f.prover.mac(roleHeader, b)
	return append(b, sum[:]...)
}

// readHeader reads and verifies the header of a subflow.
func (f *subflow) readHeader() error {
	var b [headerBytes]byte
	if _, err := io.ReadFull(f.sock, b[:]); err != nil {
		return err
	}
	f.serial, f.after, f.start = binary.BigEndian.Uint32(b[:]), binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint64(b[8:])
	if sum := f.prover.mac(roleHeader, b[:16]); !hmac.Equal(sum[:], b[16:]) || f.serial <= f.after {
		return errors.New("the peer sent an invalid header for a pipe that migrates")
	}
	return nil
}

// migrate starts to migrate a pipe of this side, unless it cannot use another socket now.
// It does not block.
func (c *conn) migrate(s *sender) {
	wanted, begun := s.requestSpare()
	switch {
	case !wanted:
		return
	case !c.dialed:
		c.send(message{kind: msgMigrate, pipe: s.id}) // repeated in case the peer has failed to dial
		return
	case !begun:
		return // an attempt is in progress
	}
	c.spawn(func() {
		f, err := c.redial(s.id)
		if err != nil {
			s.cancelSpareRequest()
			c.t.cfg.Log.Debug("tcp: cannot migrate a pipe to another socket", "peer", c.peer, "pipe", s.id, "err", err)
			return
		}
		c.useFlow(s, f)
	})
}

// useFlow gives a pipe of this side another subflow. It returns when the peer reads from
// it, or the socket ends. Until the peer confirms that it has the subflow, it may drop it
// with bytes that its kernel has acknowledged. Then monitor migrates the pipe again.
func (c *conn) useFlow(s *sender, f *subflow) {
	f.sock.SetDeadline(time.Time{})
	f.unconfirmed.Store(true)
	s.setSpare(f)
	c.t.monitoring.note()
	if readYes(f.sock) != nil {
		f.failed.Store(true)
		return
	}
	f.unconfirmed.Store(false)
	if readYes(f.sock) == nil {
		s.confirm(f)
	}
}

// handleMigrate dials another socket for a pipe of the peer.
func (c *conn) handleMigrate(id uint32) error {
	if !c.dialed || c.owns(id) {
		return errors.New("the peer requested a socket that it must dial itself")
	}
	if r := c.receiver(id); r != nil && r.redialing.CompareAndSwap(false, true) {
		c.spawn(func() {
			defer r.redialing.Store(false)
			f, err := c.redial(id)
			if err == nil {
				c.attachFlow(r, f)
			} else {
				c.t.cfg.Log.Debug("tcp: cannot migrate a pipe of the peer to another socket", "peer", c.peer, "pipe", id, "err", err)
			}
		})
	}
	return nil
}

// attachFlow adds a subflow, after its header was read, to a pipe of the peer, or closes it.
func (c *conn) attachFlow(r *receiver, f *subflow) {
	f.sock.SetDeadline(time.Time{})
	if drop := c.t.dropMigrated; drop != nil && drop() || !r.attach(f) {
		f.sock.Close()
	}
}

// redial dials another subflow for a pipe. If the pipe is of the peer, its header was
// read.
func (c *conn) redial(id uint32) (*subflow, error) {
	ctx, cancel := context.WithTimeout(c.ctx, migrateTimeout)
	defer cancel()
	winner, f, errs := eyeballs.Race[*subflow]{
		Attempts: eyeballs.Repeat(migrateSockets, func(ctx context.Context, _ func()) (*subflow, error) { return c.dialFlow(ctx, id) }),
		Discard:  func(f *subflow) { f.sock.Close() },
	}.Run(ctx)
	if winner < 0 {
		return nil, errs[0]
	}
	return f, nil
}

// dialFlow makes one attempt for redial.
func (c *conn) dialFlow(ctx context.Context, id uint32) (f *subflow, err error) {
	limit, _ := ctx.Deadline()
	a, err := c.t.attempt(ctx, c.remote, magicMigrate, limit, 1)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			a.fail()
		}
	}()
	f = &subflow{sock: a.sock, prover: &prover{key: c.keys.proof, claim: claim{conn: c.keys.id, pipe: id}}}
	if f.raw, err = a.sock.SyscallConn(); err != nil {
		return nil, err
	}
	if err := f.prover.claimTo(a.flight, roleMigrateAccept); err != nil {
		return nil, err
	}
	if err := f.prover.prove(a.flight, roleMigrateDial); err != nil {
		return nil, err
	}
	if err := a.flight.end(); err != nil {
		return nil, err
	}
	if !c.owns(id) {
		if err := f.readHeader(); err != nil {
			return nil, err
		}
	}
	return f, a.commit()
}

// acceptMigration completes the handshake on a socket that a pipe migrates to.
func (t *Transport) acceptMigration(sock socket) error {
	said, err := readClaim(sock)
	if err != nil {
		return err
	}
	c := t.connByID(said.conn)
	if c == nil {
		return errUnknownConn
	}
	f := &subflow{sock: sock, prover: &prover{key: c.keys.proof, claim: said}}
	if f.raw, err = sock.SyscallConn(); err != nil {
		return err
	}
	if err := f.prover.challenge(sock, roleMigrateAccept, roleMigrateDial); err != nil {
		return err
	}
	if !t.pending.release(sock) {
		return errEvicted
	}
	sock.SetReadDeadline(time.Now().Add(migrateTimeout))
	defer context.AfterFunc(c.ctx, func() { sock.SetReadDeadline(past()) })()
	if c.owns(said.pipe) {
		s := c.sender(said.pipe)
		if s == nil {
			return fmt.Errorf("it is for pipe %d, which has ended", said.pipe)
		}
		c.useFlow(s, f)
		return nil
	}
	r := c.receiver(said.pipe)
	if r == nil {
		return fmt.Errorf("it is for pipe %d, which has ended", said.pipe)
	}
	if err := f.readHeader(); err != nil {
		return err
	}
	c.attachFlow(r, f)
	return nil
}
