package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/deadline"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A path is one of the connections of a link.
type path struct {
	of       *attachment // nil before the connection is attached
	conn     transport.Conn
	can      transport.Capabilities // of conn
	over     string                 // the name in errors; "" for the first connection
	pipesMax int                    // that the peer may open
}

func newPath(c transport.Conn, pipesMax int) *path {
	return &path{conn: c, can: transport.CapabilitiesOf(c), pipesMax: pipesMax}
}

// firstPath makes a path of the first connection of a link with cfg.
func firstPath(c transport.Conn, cfg Config) *path {
	return newPath(c, int(wire.Lanes)+cfg.relayPipes())
}

// relayPipes returns the number of pipes for relay frames that each side opens.
func (cfg *Config) relayPipes() int {
	if cfg.Relay == nil {
		return 0
	}
	return 1
}

// wrap adds the name of the path to an error.
func (p *path) wrap(err error) error {
	if p.over == "" {
		return err
	}
	return &bulkError{p.over, err}
}

// A bulkError is an error of the second connection.
type bulkError struct {
	over string
	err  error
}

func (e *bulkError) Error() string { return e.over + ": " + e.err.Error() }

func (e *bulkError) Unwrap() error { return e.err }

// IsOfBulk reports whether the second connection of a link is the reason why both have ended.
func IsOfBulk(err error) bool {
	_, ok := errors.AsType[*bulkError](err)
	return ok
}

// open opens the pipe of a lane. Lanes with short frames in both directions are paired, and
// lanes with payloads get larger buffers.
func (p *path) open(ctx context.Context, lane wire.Lane) (transport.Sender, error) {
	open := p.conn.OpenPipe
	if p.can.PairOpener != nil && lane != wire.Bulk {
		open = p.can.PairOpener.OpenPaired
	} else if p.can.LargeOpener != nil && lane != wire.Control {
		open = p.can.LargeOpener.OpenLarge
	}
	s, err := open(ctx)
	if err != nil {
		return nil, fmt.Errorf("link: open the %v lane: %w", lane, err)
	}
	return s, nil
}

// secondPath makes a path of the second connection.
func (a *attachment) secondPath(c transport.Conn) *path {
	p := newPath(c, 1+wire.BulkPipesMax+a.cfg.relayPipes())
	p.of, p.over = a, "bulk"
	if a.cfg.BulkOver != "" {
		p.over += " over " + a.cfg.BulkOver
	}
	return p
}

// openLanes opens the pipe of the data lane, and the one for relay frames, if there is one, on one of the
// paths.
func (a *attachment) openLanes(ctx context.Context, p *path) (pipes []transport.Sender, err error) {
	return p.openEach(ctx, append([]wire.Lane{wire.Data}, slices.Repeat([]wire.Lane{wire.Relay}, a.cfg.relayPipes())...))
}

// openEach opens a pipe for each of the lanes.
func (p *path) openEach(ctx context.Context, lanes []wire.Lane) (pipes []transport.Sender, err error) {
	for _, lane := range lanes {
		s, err := p.open(ctx, lane)
		if err != nil {
			return nil, err
		}
		pipes = append(pipes, s)
	}
	return pipes, nil
}

// bulkPipes returns the number of pipes of the bulk lane of this node on a path.
func (a *attachment) bulkPipes(p *path) int {
	if p == a.first {
		return 1
	}
	return max(1, a.cfg.BulkPipes)
}

// bulkFailuresMax is the number of consecutive connections of a link whose bulk lane cannot be opened. The last
// one ends the link.
const bulkFailuresMax = 2

// lasts reports whether the connection ends only with the process of the peer: then what was sent is received.
func (p *path) lasts() bool { return p.can.Lasting && !p.of.link.common.disconnects }

// openBulk opens the pipes of the bulk lane on a path. If that fails, or takes longer than deadline.Handshake, the
// connection is broken, or the link fails after bulkFailuresMax connections.
func (a *attachment) openBulk(p *path) {
	limited, cancel := context.WithTimeout(a.life, deadline.Handshake)
	defer cancel()
	pipes, err := p.openEach(limited, slices.Repeat([]wire.Lane{wire.Bulk}, a.bulkPipes(p)))
	if err == nil {
		a.link.exchange().bulk.open(p, pipes)
		return
	}
	if limited.Err() != nil && a.life.Err() == nil {
		err = fmt.Errorf("link: open the %v lane: not within %v", wire.Bulk, deadline.Handshake)
	}
	if !a.awaitEnd(p, err) && a.link.exchange().bulk.addFailure() == bulkFailuresMax {
		a.link.Fail(p.wrap(fmt.Errorf("%w, on %d connections in a row", err, bulkFailuresMax)))
		return
	}
	a.broken(p, err)
}

// awaitEnd reports whether the connection has ended. After the error of a pipe that may mean that, it waits for deadline.Linger: a pipe
// that the network or the peer refuses can have the same error.
func (a *attachment) awaitEnd(p *path, err error) bool {
	wait := time.Duration(0)
	if isEnd(err) {
		wait = deadline.Linger
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-p.conn.Done():
	case <-a.done:
	case <-t.C:
	}
	return isClosed(p.conn.Done()) || isClosed(a.done)
}

// accept accepts the pipes of the peer on a path until the link or the connection ends. The
// end of the connection ends the link. The path has n pipes of the peer already.
func (a *attachment) accept(ctx context.Context, p *path, n int) {
	for ; ; n++ {
		pipe, err := p.conn.AcceptPipe(ctx)
		if err != nil {
			if ctx.Err() == nil {
				a.broken(p, fmt.Errorf("link: accept a lane: %w", err))
			}
			return
		}
		if n >= p.pipesMax {
			a.protocolError(p, fmt.Errorf("more than %d pipes", p.pipesMax))
			return
		}
		a.readers.Go(func() {
			if err := a.enter(ctx, p, pipe); err != nil {
				a.protocolError(p, err)
			}
		})
	}
}

// enter reads the preamble of a pipe of the peer, and then the pipe to its end.
func (a *attachment) enter(ctx context.Context, p *path, pipe transport.Receiver) error {
	pre, err := acceptLane(pipe)
	if err != nil {
		return err
	}
	return a.enterAs(ctx, p, pipe, pre)
}

// enterAs is enter after the preamble.
func (a *attachment) enterAs(ctx context.Context, p *path, pipe transport.Receiver, pre wire.Preamble) error {
	if p != a.first && pre.Lane == wire.Control {
		return fmt.Errorf("a %v lane on the second connection", pre.Lane)
	}
	if pre.Lane == wire.Relay && a.cfg.Relay == nil {
		return errors.New("a relay lane, but this node relays no frames on this link")
	}
	if err := a.named.add(pre); err != nil {
		return err
	}
	if pre.Lane == wire.Control {
		if err := a.settle(ctx, pre.Flags.Has(wire.PreambleApart)); err != nil {
			return err
		}
	}
	if pre.Lane == wire.Relay {
		a.addRelayPipe(nil, pipe)
		return nil
	}
	if err := a.link.read(a, pre, pipe); err != nil {
		return fmt.Errorf("%v lane: %w", pre.Lane, err)
	}
	return nil
}

// acceptLane reads the preamble of a pipe.
func acceptLane(p transport.Receiver) (wire.Preamble, error) {
	var b [wire.PreambleSize]byte
	p.SetReadDeadline(time.Now().Add(deadline.Handshake))
	if _, err := io.ReadFull(p, b[:]); err != nil {
		return wire.Preamble{}, fmt.Errorf("read the name of a lane: %w", err)
	}
	p.SetReadDeadline(time.Time{})
	return wire.ParsePreamble(b[:])
}

// settle handles the announcement whether the peer has made a second connection.
func (a *attachment) settle(ctx context.Context, apart bool) error {
	switch {
	case a.cfg.Await != nil:
		a.readers.Go(func() { a.openOn(ctx, apart) })
		return nil
	case apart:
		return errors.New("it announces a second connection, which this side does not await")
	}
	a.settled()
	return nil
}

// settled closes the channel of Link.Settled.
func (a *attachment) settled() {
	a.link.ending.Lock()
	defer a.link.ending.Unlock()
	a.link.settled.happen()
}

// openOn opens the data lane of this node on the connection that the peer uses for its own.
func (a *attachment) openOn(ctx context.Context, apart bool) {
	p := a.first
	if apart {
		if p = a.await(ctx); p == nil {
			return
		}
	}
	limited, cancel := context.WithTimeout(ctx, deadline.Handshake)
	defer cancel()
	pipes, err := a.openLanes(limited, p)
	if err != nil {
		a.broken(p, err)
		return
	}
	a.open(p, pipes)
	a.settled()
}

// open starts to send on the data lane. The bulk lane opens its pipes at the first transfer.
func (a *attachment) open(p *path, pipes []transport.Sender) {
	l := a.link
	if a.cfg.Relay != nil {
		relay := pipes[1]
		a.readers.Go(func() { a.openRelay(p, relay) })
	}
	l.exchange().data.open(p, pipes[0], wire.Preamble{Lane: wire.Data}.Append(nil))
	l.exchange().bulk.attach(p)
	a.payloads.Store(p)
	l.fast.Store(p != a.first)
}

// openRelay begins the pipe for relay frames of this node.
func (a *attachment) openRelay(p *path, s transport.Sender) {
	if _, err := s.Write(wire.Preamble{Lane: wire.Relay}.Append(nil)); err != nil {
		a.broken(p, fmt.Errorf("link: open the %v lane: %w", wire.Relay, err))
		return
	}
	a.addRelayPipe(s, nil)
}

// addRelayPipe keeps a pipe for relay frames, of this node or of the peer, until there are both.
func (a *attachment) addRelayPipe(s transport.Sender, r transport.Receiver) {
	a.link.ending.Lock()
	if s == nil {
		a.relayReceiver = r
		s = a.relaySender
	} else {
		a.relaySender = s
		r = a.relayReceiver
	}
	a.link.ending.Unlock()
	if s != nil && r != nil {
		a.cfg.Relay(a.link, s, r)
	}
}

// await waits for the second connection and makes it a path of the link. If it does not
// arrive, the first one is broken and await returns nil.
func (a *attachment) await(ctx context.Context) *path {
	limited, cancel := context.WithTimeout(ctx, deadline.Handshake)
	defer cancel()
	c, err := a.cfg.Await(limited)
	switch {
	case err != nil && ctx.Err() != nil: // The first connection has ended before.
		return nil
	case err != nil:
		if limited.Err() != nil {
			err = fmt.Errorf("not within %v, although the peer has announced it", deadline.Handshake)
		}
		a.broken(a.first, a.secondPath(nil).wrap(fmt.Errorf("the second connection has not arrived: %w", err)))
		return nil
	}
	p := a.secondPath(c)
	a.link.ending.Lock()
	ended := a.shut
	if !ended {
		a.paths = append(a.paths, p)
	}
	a.link.ending.Unlock()
	if ended {
		c.Close()
		return nil
	}
	a.readers.Go(func() { a.accept(ctx, p, 0) })
	return p
}

// laneSet records the preambles of the peer.
type laneSet struct {
	mu    sync.Mutex
	lanes [wire.Lanes]bool
	relay bool
	bulk  uint8 // a bit for each pipe of the bulk lane
	pipes int   // of the bulk lane; 0 before the first
}

func (n *laneSet) add(p wire.Preamble) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	bit, pipes := uint8(1)<<p.Index, int(p.Others)+1
	switch {
	case p.Lane == wire.Relay && n.relay:
		return fmt.Errorf("a second %v lane", p.Lane)
	case p.Lane == wire.Relay:
		n.relay = true
		return nil
	case p.Lane != wire.Bulk && n.lanes[p.Lane]:
		return fmt.Errorf("a second %v lane", p.Lane)
	case p.Lane != wire.Bulk:
		n.lanes[p.Lane] = true
		return nil
	case n.pipes != 0 && n.pipes != pipes:
		return fmt.Errorf("a bulk lane of %d pipes and of %d pipes", n.pipes, pipes)
	case n.bulk&bit != 0:
		return fmt.Errorf("a second bulk lane, or pipe %d of it", p.Index)
	}
	n.bulk |= bit
	n.pipes = pipes
	return nil
}

// protocolError ends the link because the peer has violated the protocol.
func (a *attachment) protocolError(p *path, err error) {
	if isEnd(err) || errors.Is(err, os.ErrDeadlineExceeded) { // The connection may have stalled.
		a.broken(p, fmt.Errorf("link: %w", err))
		return
	}
	a.link.Fail(p.wrap(fmt.Errorf("link: protocol error: %w", err)))
}

// isEnd reports whether the error of a pipe may mean the end of its connection. The error is
// the same if the peer closes a single pipe.
func isEnd(err error) bool {
	return errors.Is(err, transport.ErrClosed) || errors.Is(err, transport.ErrPeerClosed) || errors.Is(err, transport.ErrPeerGone)
}
