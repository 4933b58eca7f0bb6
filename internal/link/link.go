// Package link is everything to one peer: lanes, frames, credit, grants and
// an orderly end, over any transport.
//
// A Link sends small payloads at once, within the credit that TakeCredit
// hands out, and large ones when the peer has granted them: the receiver calls
// Grant with a Sink that says where the bytes go, tells the peer the number of
// the grant, and the peer sends with a Transfer. Bytes on the bulk lane thus
// always have a place to go, so that no lane ever waits for the application.
//
// Sending never blocks. What arrives is handed to a Handler by the goroutines
// of the Link, which the Handler must not block. All methods may be called
// from several goroutines.
//
// Frames of a lane are handled in the order in which they were sent; lanes do
// not wait for each other. Transfers take turns after each segment of at most
// wire.SegmentMax bytes. Recall and Ungrant return promptly, whatever the peer
// does, and from then on the memory is not touched; the lane stays in step.
//
// A link ends in one of two ways, about which the Handler hears last of all:
// Left, after the peer's Close, or Lost, with the reason: the end of the
// connection, or a peer that broke the protocol. It hears neither after Close
// or Abort.
//
// What a peer can make this node keep is bounded: creditBytes of each class
// that were not given to Consumed, the cost of frames included, and keptMax
// frames that cost no credit. To send more is a protocol error. Answers to a
// peer that does not read them are not sent. All else on the way to a peer is
// what this node has chosen to send.
package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// creditBytes is how much ungranted data of each class a peer may have sent
// that this node has not consumed.
const creditBytes = 1 << 20

// keptMax is how many frames that cost no credit, such as offers and grants, a
// peer may make the Handler keep: no program that works comes near it.
const keptMax = 1 << 18

// frameCharge is what a frame without payload costs of the credit, so that
// the number of frames is bounded, too.
const frameCharge = 64

// A Handler takes what arrives on a link. Its methods must not block, and
// payloads are valid only during the call.
type Handler interface {
	Message(l *Link, m wire.Message, payload []byte)
	Offer(l *Link, o wire.Offer)
	OfferGrant(l *Link, g wire.OfferGrant)
	OfferRefuse(l *Link, r wire.OfferRefuse)
	Step(l *Link, s wire.Step, payload []byte)
	StepOffer(l *Link, s wire.Step)
	StepGrant(l *Link, s wire.Step)
	Probe(l *Link, p wire.Probe)
	Where(l *Link, w wire.Where)
	Revoke(l *Link, r wire.Revoke, text string)
	Failed(l *Link, f wire.Failed, text string)

	// Left says that the peer has closed the link in good order, that
	// everything it sent has been handled, and that all that it has received
	// in full has been Delivered.
	Left(l *Link)
	// Lost says that the link has ended otherwise. It comes once and last.
	Lost(l *Link, err error)
}

// Config configures a Link.
type Config struct {
	// Peer is the number under which the Handler knows the peer.
	Peer int
	// Log takes notes about the link; nil discards them.
	Log *slog.Logger
}

// A Link is the connection to one peer.
type Link struct {
	// Peer is the number under which the Handler knows the peer.
	Peer int

	conn    transport.Conn
	handler Handler
	log     *slog.Logger

	control outbox
	data    outbox
	bulk    courier
	grants  grants

	credit [wire.Classes]atomic.Int64 // what we may send
	unread [wire.Classes]atomic.Int64 // received, and the credit not given back
	owed   [wire.Classes]atomic.Int64 // consumed, but not yet given back
	heard  atomic.Uint64              // frames received

	kept atomic.Int64 // frames without credit that the Handler keeps

	writers sync.WaitGroup
	cancel  context.CancelFunc // ends run, which closes the connection
	ended   chan struct{}      // closed when all goroutines have ended
	ending  sync.Mutex         // guards what follows
	failure error              // why we ended it ourselves
	closing bool               // by Close or Abort
	said    bool               // our goodbye
	byes    lanes              // on which the peer said goodbye
	acks    lanes              // on which it has read our goodbye
	acked   chan struct{}      // closed when it has on all
	left    chan struct{}      // closed when the peer has said goodbye on all
	linger  *time.Timer        // for the peer to close the connection
}

// New makes a link of a connection and starts it. It opens the pipe of each
// lane, which may fail.
func New(ctx context.Context, conn transport.Conn, h Handler, cfg Config) (*Link, error) {
	l := &Link{
		Peer: cfg.Peer, conn: conn, handler: h, log: cfg.Log,
		ended: make(chan struct{}), acked: make(chan struct{}), left: make(chan struct{}),
	}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	for c := range l.credit {
		l.credit[c].Store(creditBytes)
	}
	var pipes [wire.Lanes]transport.Sender
	for i := range pipes {
		p, err := conn.OpenPipe(ctx)
		if err != nil {
			return nil, fmt.Errorf("link: open the %v lane: %w", wire.Lane(i), err)
		}
		pipes[i] = p
	}
	if p, ok := pipes[wire.Control].(transport.Prioritizer); ok {
		p.Prioritize()
	}
	run, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	l.control.init(l, wire.Control, pipes[wire.Control])
	l.data.init(l, wire.Data, pipes[wire.Data])
	l.bulk.init(l, pipes[wire.Bulk])
	l.grants.init()
	go l.run(run)
	return l, nil
}

// run accepts the peer's lanes, and waits for the end of the connection and of
// all other goroutines of the link. When ctx ends it closes the connection.
func (l *Link) run(ctx context.Context) {
	defer close(l.ended)
	defer l.cancel()
	var readers sync.WaitGroup
	var seen [wire.Lanes]atomic.Bool
	for n := 0; ; n++ {
		p, err := l.conn.AcceptPipe(ctx)
		if err != nil {
			if ctx.Err() == nil {
				l.broken(fmt.Errorf("link: accept a lane: %w", err))
			}
			break
		}
		if n >= int(wire.Lanes) {
			l.protocolError(fmt.Errorf("more than %d pipes", wire.Lanes))
			continue
		}
		readers.Go(func() {
			lane, err := acceptLane(p)
			if err == nil && seen[lane].Swap(true) {
				err = fmt.Errorf("a second %v lane", lane)
			}
			if err != nil {
				l.protocolError(err)
				return
			}
			l.read(lane, p)
		})
	}
	if ctx.Err() != nil {
		l.conn.Close()
	}
	<-l.conn.Done()
	l.control.close()
	l.data.close()
	l.bulk.close()
	l.writers.Wait()
	readers.Wait()
	l.end()
}

// laneTimeout is how long a peer may take to name a lane it has opened.
const laneTimeout = 10 * time.Second

func acceptLane(p transport.Receiver) (wire.Lane, error) {
	var b [wire.PreambleSize]byte
	p.SetReadDeadline(time.Now().Add(laneTimeout))
	if _, err := io.ReadFull(p, b[:]); err != nil {
		return 0, fmt.Errorf("read the name of a lane: %w", err)
	}
	p.SetReadDeadline(time.Time{})
	pre, err := wire.ParsePreamble(b[:])
	return pre.Lane, err
}

// end tells the handler that the link has ended, unless we ended it.
func (l *Link) end() {
	l.ending.Lock()
	closing, err := l.closing, l.failure
	if l.linger != nil {
		l.linger.Stop()
	}
	l.ending.Unlock()
	if closing {
		return
	}
	select {
	case <-l.left:
		l.handler.Left(l)
		return
	default:
	}
	if err == nil {
		err = l.conn.Err()
	}
	l.handler.Lost(l, err)
}

// protocolError ends the link because the peer sent something it must not.
func (l *Link) protocolError(err error) {
	if isEnd(err) {
		l.broken(fmt.Errorf("link: %w", err))
		return
	}
	l.Fail(fmt.Errorf("link: protocol error: %w", err))
}

// isEnd reports whether an error is how a pipe tells of the end of its
// connection. A peer that stops to read a single pipe looks the same.
func isEnd(err error) bool {
	return errors.Is(err, transport.ErrClosed) || errors.Is(err, transport.ErrPeerClosed) || errors.Is(err, transport.ErrPeerGone)
}

// doneTimeout is how much later than its pipes a connection may say that it
// has ended.
const doneTimeout = time.Second

// broken ends the link because a lane can no longer be used. If that is so
// because the connection has ended, the connection knows better why.
func (l *Link) broken(err error) {
	wait := time.Duration(0)
	if isEnd(err) {
		wait = doneTimeout
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-l.conn.Done():
	case <-t.C:
		l.Fail(err)
	}
}

// Fail ends the link. The handler is told that it was lost for this reason.
// Fail does not wait for the end.
func (l *Link) Fail(err error) {
	l.ending.Lock()
	if l.failure == nil {
		l.failure = err
	}
	l.ending.Unlock()
	l.cancel()
}

// Conn is the connection under the link.
func (l *Link) Conn() transport.Conn { return l.conn }

// Heard is a number that grows with every frame that arrives.
func (l *Link) Heard() uint64 { return l.heard.Load() }
