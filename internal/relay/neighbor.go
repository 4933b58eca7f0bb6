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

// A Tamper is the action of a hostile relay; see [Config]. Goroutines call it concurrently, one for each neighbor.
type Tamper func(to membership.NodeID, f forward.Frame) []forward.Frame

// A neighbor is the link to a neighbor: one pipe in each direction.
type neighbor struct {
	id       membership.NodeID
	sender   transport.Sender
	receiver transport.Receiver
	wake     chan struct{} // has a value if there may be something to write
	gone     chan struct{} // closed by detach
}

// Attach starts to relay over a link to a neighbor, which has been authenticated. It replaces an
// earlier link to the same neighbor. The endpoint closes both pipes when the link or the endpoint
// ends. If the neighbor violates the protocol, it calls violated with the reason afterwards.
func (e *Endpoint) Attach(id membership.NodeID, sender transport.Sender, receiver transport.Receiver, violated func(error)) error {
	if id == e.cfg.Self {
		return fmt.Errorf("relay: node %v cannot be its own neighbor", id)
	}
	v := &neighbor{id: id, sender: sender, receiver: receiver, wake: make(chan struct{}, 1), gone: make(chan struct{})}
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
	now := time.Now()
	e.carryOutLocked(now, e.node.NeighborUp(now, id))
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

// detach ends the link to a neighbor. Its frames take other paths.
func (e *Endpoint) detach(v *neighbor, reason error) {
	e.mu.Lock()
	if e.neighbors[v.id] != v {
		e.mu.Unlock()
		return
	}
	if delete(e.neighbors, v.id); len(e.neighbors) == 0 {
		close(e.alone)
	}
	now := time.Now()
	e.carryOutLocked(now, e.node.NeighborDown(now, v.id))
	e.mu.Unlock()
	close(v.gone)
	e.cfg.Log.Debug("relay: the link to a neighbor has ended", "neighbor", v.id, "reason", reason)
	v.sender.Close()
	v.receiver.Close()
}

// wakeUp makes writeTo look for output.
func (v *neighbor) wakeUp() {
	if v == nil {
		return
	}
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// writeTo writes frames and credit until the link ends.
func (e *Endpoint) writeTo(v *neighbor) error {
	buf := make([]byte, 0, forward.HeaderSize+forward.PayloadMax)
	for {
		e.mu.Lock()
		if e.neighbors[v.id] != v {
			e.mu.Unlock()
			return transport.ErrClosed
		}
		now := time.Now()
		out, ok, effects := e.node.Next(now, v.id)
		e.carryOutLocked(now, effects)
		e.mu.Unlock()
		if !ok {
			select {
			case <-v.wake:
			case <-v.gone:
				return transport.ErrClosed
			}
			continue
		}
		switch {
		case out.Credit.Bytes > 0:
			buf = out.Credit.Append(buf[:0])
		case e.cfg.Tamper != nil && out.Frame.Source != e.cfg.Self:
			buf = buf[:0]
			for _, f := range e.cfg.Tamper(v.id, out.Frame) {
				buf = append(f.AppendHeader(buf), f.Payload...)
			}
		default:
			buf = append(out.Frame.AppendHeader(buf[:0]), out.Frame.Payload...)
		}
		if len(buf) == 0 {
			continue
		}
		if _, err := v.sender.Write(buf); err != nil {
			return err
		}
	}
}

// errViolation is wrapped by the errors of readFrom that the neighbor has caused.
var errViolation = errors.New("protocol error")

// violation returns an error that wraps errViolation, or nil.
func violation(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errViolation, err)
}

// readFrom reads frames and credit until the link ends.
func (e *Endpoint) readFrom(v *neighbor) error {
	r := bufio.NewReaderSize(v.receiver, 64<<10)
	var header [forward.HeaderSize]byte
	for {
		kind, err := r.ReadByte()
		if err != nil {
			return err
		}
		size, err := forward.Size(kind)
		if err != nil {
			return violation(err)
		}
		header[0] = kind
		if _, err := io.ReadFull(r, header[1:size]); err != nil {
			return err
		}
		if size == forward.CreditSize {
			err = e.credit(v, header[:size])
		} else {
			err = e.readFrame(v, r, header[:])
		}
		if err != nil {
			return err
		}
	}
}

// readFrame reads the payload of a frame and handles the frame.
func (e *Endpoint) readFrame(v *neighbor, r io.Reader, header []byte) error {
	f, size, err := forward.ParseHeader(header)
	if err != nil {
		return violation(err)
	}
	f.Payload = make([]byte, size)
	if _, err := io.ReadFull(r, f.Payload); err != nil {
		return err
	}
	return e.receive(v, f)
}

// credit handles credit of a neighbor.
func (e *Endpoint) credit(v *neighbor, b []byte) error {
	c, err := forward.ParseCredit(b)
	if err != nil {
		return violation(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.neighbors[v.id] != v {
		return transport.ErrClosed
	}
	now := time.Now()
	effects, err := e.node.Credit(now, v.id, c)
	if err != nil {
		return violation(err)
	}
	e.carryOutLocked(now, effects)
	return nil
}
