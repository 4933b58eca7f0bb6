package relay

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/transport"
)

// A Tamper is the action of a hostile relay; see [Config]. Goroutines call it concurrently, one for each neighbor. The payload of f is valid
// until the frames that it returns are written.
type Tamper func(to membership.NodeID, f forward.Frame) []forward.Frame

// A neighbor is the link to a neighbor: one pipe in each direction.
type neighbor struct {
	id       membership.NodeID
	sender   transport.Sender
	receiver transport.Receiver
	wake     chan struct{} // has a value if there may be something to write
	gone     chan struct{} // closed by detach
	writing  bool          // writeTo writes frames
	isSlow   bool          // a packet has waited in vain since the last frames were written
}

// Attach starts to relay over a link to a neighbor, which has been authenticated. It replaces an
// earlier link to the same neighbor. The endpoint closes both pipes when the link or the endpoint
// ends. If the neighbor violates the protocol, it calls violated with the reason afterwards.
func (e *Endpoint) Attach(id membership.NodeID, sender transport.Sender, receiver transport.Receiver, violated func(error)) error {
	if id == e.cfg.Self {
		return fmt.Errorf("relay: node %v cannot be its own neighbor", id)
	}
	v := &neighbor{id: id, sender: sender, receiver: receiver, wake: make(chan struct{}, 1), gone: make(chan struct{})}
	if q := transport.CapabilitiesOf(sender).QueueLimiter; q != nil {
		q.LimitQueue(unsentMax)
	}
	e.mu.Lock()
	before := e.neighbors[id]
	e.mu.Unlock()
	if before != nil {
		e.detach(before, fmt.Errorf("replaced by a new link: %w", transport.ErrClosed))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.neighbors[id] != nil {
		return fmt.Errorf("relay: attach neighbor %v: %w", id, transport.ErrClosed)
	}
	if len(e.neighbors) == 0 {
		e.alone = make(chan struct{})
	}
	e.neighbors[id] = v
	e.node.NeighborUp(id)
	e.tasks.Go(func() {
		err := e.readFrom(v)
		e.detach(v, err)
		if errors.Is(err, errViolation) {
			violated(err)
		}
	})
	e.tasks.Go(func() { e.detach(v, e.writeTo(v)) })
	return nil
}

// detach ends the link to a neighbor.
func (e *Endpoint) detach(v *neighbor, reason error) {
	e.mu.Lock()
	if e.neighbors[v.id] != v {
		e.mu.Unlock()
		return
	}
	if delete(e.neighbors, v.id); len(e.neighbors) == 0 {
		close(e.alone)
	}
	e.node.NeighborDown(v.id)
	e.wroteLocked()
	e.mu.Unlock()
	close(v.gone)
	e.cfg.Log.Debug("relay: the link to a neighbor has ended", "neighbor", v.id, "reason", reason)
	v.sender.Close()
	v.receiver.Close()
}

// wakeUp makes writeTo look for frames.
func (v *neighbor) wakeUp() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// unsentMax is the number of bytes that wait in the system for a neighbor, beyond those on the way: frames wait in their queues, which are fair.
const unsentMax = 64 << 10

// writeSize is the number of bytes that writeTo writes together.
const writeSize = 32 << 10

// writeTo writes frames until the link ends.
func (e *Endpoint) writeTo(v *neighbor) error {
	buf := make([]byte, 0, writeSize+forward.HeaderSize+forward.PayloadMax)
	var frames []forward.Frame
	for {
		e.mu.Lock()
		if e.neighbors[v.id] != v {
			e.mu.Unlock()
			return transport.ErrClosed
		}
		if v.writing {
			v.isSlow = false
		}
		frames = e.nextLocked(v, frames[:0])
		v.writing = len(frames) > 0
		e.wroteLocked()
		e.mu.Unlock()
		if len(frames) > 0 {
			buf = e.encode(v, frames, buf[:0])
			if _, err := v.sender.Write(buf); err != nil {
				return err
			}
			continue
		}
		select {
		case <-v.wake:
		case <-v.gone:
			return transport.ErrClosed
		}
	}
}

// nextLocked appends the next frames for a neighbor to frames.
func (e *Endpoint) nextLocked(v *neighbor, frames []forward.Frame) []forward.Frame {
	now := time.Now()
	for size := 0; size < writeSize; {
		f, ok := e.node.Next(now, v.id)
		if !ok {
			break
		}
		size += forward.HeaderSize + len(f.Payload)
		frames = append(frames, f)
	}
	return frames
}

// encode appends frames for a neighbor to buf, and frees their payloads.
func (e *Endpoint) encode(v *neighbor, frames []forward.Frame, buf []byte) []byte {
	for _, f := range frames {
		written := []forward.Frame{f}
		if e.cfg.Tamper != nil && f.Source != e.cfg.Self {
			written = e.cfg.Tamper(v.id, f)
		}
		for _, f := range written {
			buf = append(f.AppendHeader(buf), f.Payload...)
		}
		e.node.Free(f.Payload)
	}
	return buf
}

// errViolation is wrapped by the errors of readFrom that the neighbor has caused.
var errViolation = errors.New("protocol error")

// violation returns an error that wraps errViolation.
func violation(err error) error { return fmt.Errorf("%w: %w", errViolation, err) }

// readFrom reads frames until the link ends.
func (e *Endpoint) readFrom(v *neighbor) error {
	r := bufio.NewReaderSize(v.receiver, 64<<10)
	var header [forward.HeaderSize]byte
	for {
		if _, err := io.ReadFull(r, header[:]); err != nil {
			return err
		}
		f, size, err := forward.ParseHeader(header[:])
		if err != nil {
			return violation(err)
		}
		f.Payload = e.node.Payload(size)
		if _, err := io.ReadFull(r, f.Payload); err != nil {
			return err
		}
		if err := e.receive(v, f); err != nil {
			return err
		}
	}
}
