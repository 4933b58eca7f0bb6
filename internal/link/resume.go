package link

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// resume returns what this side of a pending link has received, with a number.
func (l *Link) resume(number uint64) wire.Resume {
	x := l.exchange()
	l.ending.Lock()
	if x.self == (wire.LinkID{}) {
		x.self = wire.LinkID{Process: l.common.process, Link: l.common.numbers.Add(1)}
	}
	r := wire.Resume{Number: number, From: x.self, To: x.peer}
	l.ending.Unlock()
	for i := range x.in {
		r.Received[i] = x.in[i].State()
	}
	r.Bulk = x.bulked.Load()
	x.grants.state(&r)
	return r
}

// checkResume checks whether a connection that the peer has proposed or accepted belongs to the link. What was received before a connection that
// the link has used says nothing. If the peer has another link, this one ends.
func (a *attachment) checkResume(theirs wire.Resume) error {
	l, x := a.link, a.link.exchange()
	l.ending.Lock()
	defer l.ending.Unlock()
	if l.running || l.turn != a.turn || theirs.Number != 0 && theirs.Number < x.newest {
		return errOld
	}
	var err error
	unknown := wire.LinkID{}
	switch {
	case theirs.From == unknown && theirs.To == x.self:
		err = fmt.Errorf("%w: it has ended the link", transport.ErrPeerClosed)
	case theirs.From == unknown:
		return fmt.Errorf("%w: the peer does not name its link", transport.ErrPeerClosed)
	case theirs.To != unknown && theirs.To != x.self:
		return errEarlier
	case x.peer == unknown || theirs.From == x.peer:
	case theirs.From.Process == x.peer.Process && theirs.From.Link < x.peer.Link:
		return errOld
	default:
		err = fmt.Errorf("%w: it has ended link %d, and this is its link %d", transport.ErrPeerClosed, x.peer.Link, theirs.From.Link)
	}
	if err == nil {
		return nil
	}
	x.newest = max(x.newest, theirs.Number)
	l.failPendingLocked(err)
	return err
}

// resumeLocked prepares for a connection. r says what the peer has received. It returns the transfers that are delivered.
func (a *attachment) resumeLocked(r *wire.Resume) (delivered []*Transfer, err error) {
	x := a.link.exchange()
	x.newest, x.peer = max(x.newest, r.Number), cmp.Or(r.From, x.peer)
	if err := x.control.resume(r.Received[wire.Control]); err != nil {
		return nil, err
	}
	if err := x.data.resume(r.Received[wire.Data]); err != nil {
		return nil, err
	}
	return x.bulk.resume(r)
}

// readResume reads the Resume behind a preamble. Without one it is zero.
func readResume(pipe transport.Receiver, pre wire.Preamble) (r wire.Resume, err error) {
	if !pre.Flags.Has(wire.PreambleResumes) {
		return r, nil
	}
	b := make([]byte, wire.ResumeSize)
	pipe.SetReadDeadline(time.Now().Add(peerTimeout))
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
