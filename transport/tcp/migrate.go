package tcp

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// When packets are lost, and their retransmissions too, a socket stands still for
// longer and longer. A new one does not. So the pipe of a stalled socket moves: its
// sender goes on with another socket from the first byte that the peer's kernel has
// not acknowledged, and the receiver reads the old socket up to there. The bytes are
// those that the old socket has got, records of TLS included, so that its session
// goes on.
//
// The side that has dialed the conn dials. If the sender is the other one it asks for
// that (msgMove). Both prove themselves as for a pipe in the clear. Then the sender
// says where the stream goes on (the header), and the receiver that it has the socket,
// and later that it reads from it. Before the header nothing has changed, so several
// sockets may be tried at once.

const (
	// moveDelay is how long a socket for a pipe may take to be connected before
	// another one is tried beside it.
	migrateDelay = 300 * time.Millisecond
	// moveTries is how many are tried.
	migrateAttempts = 4
	// moveTimeout is how long an attempt to move a pipe goes on.
	migrateTimeout = 30 * time.Second

	headerBytes = 4 + 4 + 8 + len(proof{})
)

// header returns the first bytes of a sender on a subflow.
func (f *subflow) header() []byte {
	b := binary.BigEndian.AppendUint32(nil, f.serial)
	b = binary.BigEndian.AppendUint32(b, f.after)
	b = binary.BigEndian.AppendUint64(b, f.start)
	sum := f.prover.mac("header    ", b)
	return append(b, sum[:]...)
}

// readHeader reads where the sender goes on.
func (f *subflow) readHeader() error {
	var b [headerBytes]byte
	if _, err := io.ReadFull(f.sock, b[:]); err != nil {
		return err
	}
	f.serial, f.after, f.start = binary.BigEndian.Uint32(b[:]), binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint64(b[8:])
	if sum := f.prover.mac("header    ", b[:16]); !hmac.Equal(sum[:], b[16:]) || f.serial <= f.after {
		return errors.New("it does not prove where the pipe goes on")
	}
	return nil
}

// startMove has a pipe of this side move to another socket, unless it cannot use one now. It
// does not wait.
func (c *conn) migrate(s *sender) {
	wanted, begun := s.requestSpare()
	switch {
	case !wanted:
		return
	case !c.dialed:
		c.send(message{kind: msgMigrate, pipe: s.id}) // again if the peer has failed before
		return
	case !begun:
		return // The attempt goes on.
	}
	c.spawn(func() {
		f, err := c.redial(s.id)
		if err != nil {
			s.cancelSpareRequest()
			c.t.cfg.Log.Debug("tcp: cannot move a pipe to another socket", "peer", c.peer, "pipe", s.id, "err", err)
			return
		}
		c.useFlow(s, f)
	})
}

// handOver gives a pipe of this side another socket, and waits until the peer has it and
// then reads from it, or the pipe ends. Before the first the peer may drop it with all
// that its kernel has acknowledged; then monitor has the pipe migrate again.
func (c *conn) useFlow(s *sender, f *subflow) {
	f.sock.SetDeadline(time.Time{})
	f.unconfirmed.Store(true)
	s.setSpare(f)
	if readYes(f.sock) != nil {
		f.failed.Store(true)
		return
	}
	f.unconfirmed.Store(false)
	if readYes(f.sock) == nil {
		s.confirm(f)
	}
}

// movesPeer is called when the peer asks for another socket for its pipe.
func (c *conn) handleMigrate(id uint32) error {
	if !c.dialed || c.owns(id) {
		return errors.New("it asks for a socket that it has to dial itself")
	}
	if r := c.receiver(id); r != nil && r.redialing.CompareAndSwap(false, true) {
		c.spawn(func() {
			defer r.redialing.Store(false)
			f, err := c.redial(id)
			if err == nil {
				c.attachFlow(r, f)
			} else {
				c.t.cfg.Log.Debug("tcp: cannot move a pipe of the peer to another socket", "peer", c.peer, "pipe", id, "err", err)
			}
		})
	}
	return nil
}

// follow has a pipe of the peer go on with another socket, after its header was read.
// It ends a socket that is of no use.
func (c *conn) attachFlow(r *receiver, f *subflow) {
	f.sock.SetDeadline(time.Time{})
	if drop := c.t.dropMigrated; drop != nil && drop() || !r.attach(f) {
		f.sock.Close()
	}
}

// redial connects another socket for a pipe. If that is one of the peer, it has got the
// header on it.
func (c *conn) redial(id uint32) (*subflow, error) {
	ctx, cancel := context.WithTimeout(c.ctx, migrateTimeout)
	defer cancel()
	var taken atomic.Bool
	won := make(chan *subflow, 1)
	lost := make(chan error, migrateAttempts)
	try := func() {
		f, err := c.dialFlow(ctx, id)
		switch {
		case err != nil:
			lost <- err
		case taken.CompareAndSwap(false, true):
			won <- f
		default:
			f.sock.Close()
		}
	}
	// giveUp returns err, unless an attempt has won by now.
	giveUp := func(err error) (*subflow, error) {
		if !taken.CompareAndSwap(false, true) {
			return <-won, nil
		}
		return nil, err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for tries, failures := 0, 0; ; {
		select {
		case f := <-won:
			return f, nil
		case err := <-lost:
			if failures++; failures == tries && tries == migrateAttempts || ctx.Err() != nil {
				return giveUp(err)
			}
		case <-timer.C:
			if tries++; !c.spawn(try) {
				return giveUp(errConnClosed)
			}
			if tries < migrateAttempts {
				timer.Reset(migrateDelay)
			}
		case <-ctx.Done():
			return giveUp(context.Cause(ctx))
		}
	}
}

// tryMove is one attempt of redial.
func (c *conn) dialFlow(ctx context.Context, id uint32) (f *subflow, err error) {
	limit, _ := ctx.Deadline()
	a, err := c.t.attempt(ctx, c.remote, magicMigrate, limit)
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
	rand.Read(f.prover.claim.nonce[:])
	if _, err := a.sock.Write(f.prover.claim.append(nil)); err != nil {
		return nil, err
	}
	got, err := readChallenge(a.sock)
	if err != nil {
		return nil, err
	}
	f.prover.nonce = got.nonce
	if !got.proof.equal(f.prover.mac("move to   ", nil)) {
		return nil, errors.New("it does not prove that it is the process of this conn")
	}
	mine := f.prover.mac("move from ", nil)
	if _, err := a.sock.Write(mine[:]); err != nil {
		return nil, err
	}
	if !c.owns(id) {
		if err := f.readHeader(); err != nil {
			return nil, err
		}
	}
	return f, a.commit()
}

// welcomeMove finds the pipe that is to move to a socket.
func (t *Transport) acceptMigration(sock socket) error {
	said, err := readClaim(sock)
	if err != nil {
		return err
	}
	c := t.connByID(said.conn)
	if c == nil {
		return errors.New("it claims to belong to a conn that is not known")
	}
	f := &subflow{sock: sock, prover: &prover{key: c.keys.proof, claim: said}}
	if f.raw, err = sock.SyscallConn(); err != nil {
		return err
	}
	rand.Read(f.prover.nonce[:])
	if _, err := sock.Write(challenge{f.prover.nonce, f.prover.mac("move to   ", nil)}.append(nil)); err != nil {
		return err
	}
	var got proof
	if _, err := io.ReadFull(sock, got[:]); err != nil {
		return err
	}
	if !got.equal(f.prover.mac("move from ", nil)) {
		return errors.New("it does not prove that it belongs to the conn that it claims")
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
