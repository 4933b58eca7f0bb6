package link

import (
	"fmt"
	"io"
	"time"

	"github.com/nexar-go/nexar/internal/deadline"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// received returns what this side of a pending link has received, for a connection.
func (a *attachment) received() wire.Resume {
	x := a.link.exchange()
	a.link.ending.Lock()
	r := x.session.State(a.claim)
	a.link.ending.Unlock()
	for i := range x.in {
		r.Received[i] = x.in[i].Received()
	}
	r.Bulk = x.bulked.Load()
	x.grants.state(&r)
	return r
}

// checkResume checks whether a connection that the peer has proposed or accepted belongs to the link. If the link of the peer has ended, this one ends.
func (a *attachment) checkResume(theirs *wire.Resume) error {
	l, x := a.link, a.link.exchange()
	l.ending.Lock()
	defer l.ending.Unlock()
	hasEnded, err := x.session.Check(theirs)
	if hasEnded {
		err = fmt.Errorf("%w: %w", transport.ErrPeerClosed, err)
		l.failPendingLocked(err)
	}
	return err
}

// resumeLocked prepares for a connection. r says what the peer has received. It returns the transfers that are delivered.
func (a *attachment) resumeLocked(r *wire.Resume) (delivered []*Transfer, err error) {
	x := a.link.exchange()
	x.session.Use(r)
	if err := x.control.resume(r.Received[wire.Control]); err != nil {
		return nil, err
	}
	if err := x.data.resume(r.Received[wire.Data]); err != nil {
		return nil, err
	}
	if delivered, err = x.bulk.resume(r); err == nil {
		x.noteDelivery(r)
	}
	return delivered, err
}

// readResume reads the Resume behind a preamble. Without one it is zero.
func readResume(pipe transport.Receiver, pre wire.Preamble) (r wire.Resume, err error) {
	if !pre.Flags.Has(wire.PreambleResumes) {
		return r, nil
	}
	b := make([]byte, wire.ResumeSize)
	pipe.SetReadDeadline(time.Now().Add(deadline.Handshake))
	defer pipe.SetReadDeadline(time.Time{})
	if _, err = io.ReadFull(pipe, b); err == nil {
		var n int
		if n, err = wire.ResumeLength(b); err == nil {
			b = append(make([]byte, 0, n), b...)[:n]
			_, err = io.ReadFull(pipe, b[wire.ResumeSize:])
		}
	}
	if err != nil {
		return r, fmt.Errorf("read what the peer has received: %w", err)
	}
	return wire.ParseResume(b)
}
