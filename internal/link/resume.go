package link

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// ErrFramesLost is the reason for the end of a link whose last connection broke with frames in flight. The
// peer can be reached.
var ErrFramesLost = errors.New("frames were lost with a connection")

// resume returns the counts of this side, with a number.
func (l *Link) resume(number uint64) wire.Resume {
	r, x := wire.Resume{Number: number}, l.exchange()
	l.ending.Lock()
	r.Handled, r.Losses = x.handled, x.losses
	l.ending.Unlock()
	for _, o := range []*outbox{&x.control, &x.data} {
		o.mu.Lock()
		r.Sent[o.lane] = o.written
		o.mu.Unlock()
	}
	x.bulk.mu.Lock()
	r.Sent[wire.Bulk] = x.bulk.begun
	x.bulk.mu.Unlock()
	return r
}

// compareCounts returns [ErrFramesLost] with a lane if the counts of both sides differ.
func compareCounts(a, b wire.Resume) error {
	for lane := range wire.Lanes {
		switch {
		case a.Sent[lane] != b.Handled[lane]:
			return fmt.Errorf("%w: this node has sent %d frames on the %v lane, and the peer has received %d", ErrFramesLost, a.Sent[lane], lane, b.Handled[lane])
		case b.Sent[lane] != a.Handled[lane]:
			return fmt.Errorf("%w: the peer has sent %d frames on the %v lane, and this node has received %d", ErrFramesLost, b.Sent[lane], lane, a.Handled[lane])
		}
	}
	return nil
}

// checkResume compares the counts of both sides of a proposal. If frames were lost, it ends the link. Counts from before a connection that
// the link has used say nothing.
func (a *attachment) checkResume(ours, theirs wire.Resume) error {
	l := a.link
	newest := &l.exchange().newest
	l.ending.Lock()
	defer l.ending.Unlock()
	if l.running || l.turn != a.turn || theirs.Number != 0 && theirs.Number < *newest {
		return errOld
	}
	isNew := theirs.Number == 0 // The peer has no earlier link: this node has just joined, and the peer waits for its next link.
	if ours.Losses > theirs.Losses && !isNew {
		return errEarlier // The peer ends it when it has read the counts.
	}
	err := compareCounts(ours, theirs)
	if ours.Losses < theirs.Losses {
		err = fmt.Errorf("%w: the peer has ended %d links because of losses, and this node %d", ErrFramesLost, theirs.Losses, ours.Losses)
	}
	if err == nil {
		if isNew { // Both count from now on.
			l.exchange().losses = 0
		}
		return nil
	}
	if l.broke != nil {
		err = fmt.Errorf("%w; the connection ended because of: %v", err, l.broke)
	}
	err = fmt.Errorf("%w: %w", transport.ErrPeerGone, err)
	*newest = max(*newest, theirs.Number)
	l.failPendingLocked(err)
	return err
}

// Follow makes a pending link take the place of an earlier link to the same peer after a loss of frames. It ignores connections that the
// peer has proposed for that one before. If the peer does not know of the loss yet, the next connection ends the earlier link there.
func (l *Link) Follow(earlier *Link) {
	earlier.ending.Lock()
	newest, losses := earlier.exchange().newest, earlier.exchange().losses+1
	earlier.ending.Unlock()
	x := l.exchange()
	l.ending.Lock()
	defer l.ending.Unlock()
	x.newest, x.losses = newest, losses
}

// readResume reads the Resume behind a preamble. Without one all counts are 0.
func readResume(pipe transport.Receiver, pre wire.Preamble) (r wire.Resume, err error) {
	if !pre.Flags.Has(wire.PreambleResumes) {
		return r, nil
	}
	var b [wire.ResumeSize]byte
	pipe.SetReadDeadline(time.Now().Add(peerTimeout))
	defer pipe.SetReadDeadline(time.Time{})
	if _, err := io.ReadFull(pipe, b[:]); err != nil {
		return r, fmt.Errorf("read the counts of a link: %w", err)
	}
	return wire.ParseResume(b[:])
}
