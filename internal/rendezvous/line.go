package rendezvous

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A line is a joining conn with its two pipes, one each way.
type line struct {
	conn transport.Conn
	in   transport.Receiver // nil until the peer has opened it
	out  transport.Sender   // nil until this side has
}

// secured is the TLS session of the conn, or nil if there is none.
func (l *line) secured() transport.Secured { return transport.CapabilitiesOf(l.conn).Secured }

// open opens this side's pipe.
func (l *line) open(ctx context.Context) (err error) {
	if l.out == nil {
		l.out, err = l.conn.OpenPipe(ctx)
	}
	return err
}

// accept waits until deadline for the peer's pipe.
func (l *line) accept(ctx context.Context, deadline time.Time) (err error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	l.in, err = l.conn.AcceptPipe(ctx)
	return err
}

// read returns the next message, which has to be complete by the deadline.
func (l *line) read(deadline time.Time, limit int) (wire.JoinMessage, error) {
	if err := l.in.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	return wire.ReadJoin(l.in, limit)
}

// patienceParts is into how many parts the time is cut for which a peer may be silent.
const patienceParts = 4

// hear returns the next message of a peer that may be silent for so long. Time for which
// this process was stopped, or its machine, hardly counts: the peer may have been stopped
// with it, and is heard as soon as both go on. Of the parts that the time is cut into,
// one at the most passes meanwhile.
func (l *line) hear(silence time.Duration) (wire.JoinMessage, error) {
	var first [1]byte
	for part := 1; ; part++ {
		if err := l.in.SetReadDeadline(time.Now().Add(silence / patienceParts)); err != nil {
			return nil, err
		}
		_, err := l.in.Read(first[:])
		if err == nil {
			break
		}
		if part == patienceParts || !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, err
		}
	}
	if err := l.in.SetReadDeadline(time.Now().Add(silence)); err != nil {
		return nil, err
	}
	return wire.ReadJoin(io.MultiReader(bytes.NewReader(first[:]), l.in), wire.JoinBytesMax)
}

// write writes one message at once, for those who have no outbox yet.
func (l *line) write(deadline time.Time, m wire.JoinMessage) error {
	b, err := wire.AppendJoin(nil, m)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return l.writeFrame(deadline, b)
}

func (l *line) writeFrame(deadline time.Time, frame []byte) error {
	if err := l.out.SetWriteDeadline(deadline); err != nil {
		return err
	}
	_, err := l.out.Write(frame)
	return err
}

// finish ends this side's pipe and gives the peer until the deadline to read
// what is in it, which Close would drop. A peer that has read its last message
// ends the conn.
func (l *line) finish(wait time.Duration) {
	if l.out.Close() != nil {
		return
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-l.conn.Done():
	case <-t.C:
	}
}

// reason says in few words why a line has ended with err.
func (l *line) reason(err error) string {
	if cause := l.conn.Err(); cause != nil && !errors.Is(cause, transport.ErrClosed) {
		err = cause
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "too slow"
	case errors.Is(err, io.EOF):
		return "ended the conn"
	default:
		return err.Error()
	}
}

// An outbox holds what is still to be written to a line. Those who post never
// wait, and a peer that reads slowly holds up nobody but itself. What a peer
// is sent is little and bounded by the course of the formation.
type outbox struct {
	wake chan struct{} // one token: there is something to do

	mu     sync.Mutex
	queue  [][]byte
	closed bool // nothing comes after queue
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// post has a frame written.
func (o *outbox) post(frame []byte) { o.put(frame, false) }

// close has a last frame written, or none, and then the pipe ended.
func (o *outbox) close(frame []byte) { o.put(frame, true) }

func (o *outbox) put(frame []byte, last bool) {
	o.mu.Lock()
	if !o.closed {
		if frame != nil {
			o.queue = append(o.queue, frame)
		}
		o.closed = last
	}
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// waiting is how many frames are still to be written.
func (o *outbox) waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue)
}

func (o *outbox) take() (frames [][]byte, last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	frames, o.queue = o.queue, nil
	return frames, o.closed
}

// run writes what is posted until the outbox is closed or the conn ends. At
// every interval it calls tick, which may post. Then it closes the conn.
func (l *line) run(o *outbox, lim limits, interval time.Duration, tick func()) {
	defer l.conn.Close()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		frames, last := o.take()
		for _, f := range frames {
			if err := l.writeFrame(time.Now().Add(lim.write), f); err != nil {
				return
			}
		}
		if last {
			l.finish(lim.linger)
			return
		}
		select {
		case <-o.wake:
		case <-ticker.C:
			tick()
		case <-l.conn.Done():
			return
		}
	}
}

// frame encodes a message that cannot be too long.
func frame(m wire.JoinMessage) []byte {
	b, err := wire.AppendJoin(nil, m)
	if err != nil {
		panic(err)
	}
	return b
}
