// Package link is the connection to one peer: lanes, frames, credit, grants and an orderly end,
// over any transport.
//
// A [Link] sends small payloads immediately, within the credit of [Link.TakeCredit], and large
// ones after a grant of the peer: the receiver calls [Link.Grant] with a [Sink] for the payload
// and sends the number of the grant, and the peer sends a [Transfer]. A payload on the bulk
// lane therefore always has a destination, so that no lane waits for the application.
//
// Sending never blocks. The goroutines of the Link pass arriving frames to a [Handler]; so does
// a goroutine that polls inline while it waits ([Polling]). The Handler must not block. All
// methods may be called concurrently.
//
// The frames of a lane are handled in order; lanes do not wait for each other. Transfers take
// turns after each segment of at most wire.SegmentMax bytes. Recall and Ungrant always return
// promptly. The memory is not used afterwards, and the lane stays in sync.
//
// With Config.Bulk or Config.Await, the data and bulk lanes have a second connection, and the
// bulk lane may have several pipes there. A transfer uses one pipe. Both connections end
// together.
//
// The last call of the Handler reports the end of the link: Left, after the peer has called
// Close, or Lost, with a reason: the end of the connection or a protocol error. Neither is
// called after Close or Abort of this side.
//
// The memory that a peer can occupy is bounded: creditBytes of each class that have not been
// Consumed, including the charge for each frame, and keptMax frames without charge. More is a
// protocol error. A peer that does not read gets no answers. Other outgoing data is bounded by
// the calls of this node.
package link

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// creditBytes is the number of bytes of each class that a peer may have sent without a grant
// and this node has not consumed.
const creditBytes = 1 << 20

// keptMax is the maximum number of frames without charge, such as offers and grants, that the
// Handler keeps for a peer. Correct programs stay far below it.
const keptMax = 1 << 18

// frameCharge is the credit that each frame costs in addition to its payload, so that the
// number of frames is bounded as well.
const frameCharge = 64

// A Handler handles the frames of a link. Its methods must not block. Payloads are valid
// during the call only.
type Handler interface {
	Message(l *Link, m wire.Message, payload []byte)
	// Claim is called before the payload of a message is read. If ok is false, Message is
	// called with the complete payload. Otherwise the payload goes to the Sink with this number
	// of Link.Claim, or is discarded if the number is 0, and the link returns the credit.
	Claim(l *Link, m wire.Message) (claim uint64, ok bool)
	Offer(l *Link, o wire.Offer)
	OfferGrant(l *Link, g wire.OfferGrant)
	OfferRefuse(l *Link, r wire.OfferRefuse)
	Step(l *Link, s wire.Step, payload []byte)
	StepOffer(l *Link, s wire.Step)
	StepGrant(l *Link, s wire.Step)
	Probe(l *Link, p wire.Probe)
	Where(l *Link, w wire.Where)
	// Ask asks for the calls that wait, and Waits answers; list is valid during the call only.
	Ask(l *Link, a wire.Ask)
	Waits(l *Link, w wire.Waits, list []byte)
	// The text of the peer has been made printable by [wire.Escape].
	Revoke(l *Link, r wire.Revoke, text string)
	Failed(l *Link, f wire.Failed, text string)
	Reason(l *Link, r wire.Reason, text string)
	Gone(l *Link, g wire.Gone)
	Closed(l *Link, c wire.Closed)

	// Left is called after the peer has closed the link by a goodbye. All its frames have been
	// handled, and every transfer that it has received completely has been Delivered.
	Left(l *Link)
	// Lost is called once, as the last call, if the link has ended otherwise.
	Lost(l *Link, err error)
}

// Config configures a Link.
type Config struct {
	// Peer identifies the peer for the Handler.
	Peer int
	// Bulk, if not nil, is a second connection to the peer that this node has made. The data
	// and bulk lanes of both sides use it. The link announces it to the peer.
	Bulk transport.Conn
	// Await, if not nil, waits for the second connection of a peer that announces
	// one. Without it, the announcement is a protocol error. It excludes Bulk.
	Await func(ctx context.Context) (transport.Conn, error)
	// BulkOver names the transport of the second connection in errors.
	BulkOver string
	// BulkPipes is the number of pipes of the bulk lane of this node on a second
	// connection: 1 by default, at most wire.BulkPipesMax. On the first
	// connection it has one.
	BulkPipes int
	// IdleTimer is shared by the links of a node. By default the link has its own.
	IdleTimer *IdleTimer
	// Log defaults to a logger that discards.
	Log *slog.Logger
}

// A Link is the connection to one peer.
type Link struct {
	// Peer is Config.Peer.
	Peer int

	first   atomic.Pointer[path] // nil as long as the link is pending
	handler Handler
	cfg     Config
	log     *slog.Logger
	need    func()        // see NewPending
	purpose atomic.Uint32 // a Purpose; 0 before need was called

	control outbox
	data    outbox
	bulk    bulk
	grants  grants
	claims  grants  // for messages on the data lane
	named   laneSet // preambles of the peer

	credit [wire.Classes]atomic.Int64 // for sending
	unread [wire.Classes]atomic.Int64 // received, and the credit not returned
	owed   [wire.Classes]atomic.Int64 // consumed, and the credit not returned
	heard  atomic.Uint64              // frames received on the control lane

	received atomic.Uint64 // bytes on the data and bulk lanes

	laneReaders [laneReadersMax]atomic.Pointer[laneReader] // that can be polled; the bulk lane last
	bulkReaders atomic.Int32                               // number of those of the bulk lane
	pollings    atomic.Int32                               // number of active pollings
	idle        *IdleTimer

	fast atomic.Bool // replies use the data lane

	confirms confirms

	kept     atomic.Int64 // frames without charge that the Handler keeps
	buffered atomic.Int64 // bytes of granted payload that the Handler keeps; see Buffer

	writers sync.WaitGroup
	readers sync.WaitGroup
	settled chan struct{} // closed when the bulk lane of this node has its pipes
	life    context.Context
	done    <-chan struct{}    // of life
	cancel  context.CancelFunc // ends life, which makes run close the connections
	ended   chan struct{}      // closed when all goroutines have ended

	ending  sync.Mutex // guards the fields below
	running bool       // run was started
	paths   []*path
	shut    bool          // no path may be added
	failure error         // the reason of Fail
	closing bool          // Close or Abort was called
	byeSent bool          // our goodbye
	byes    lanes         // with a goodbye of the peer
	pipes   int           // of the bulk lane, with a goodbye of the peer
	acks    lanes         // where the peer has read our goodbye
	acked   chan struct{} // closed when acks is complete; nil as long as the link is pending, like left
	left    chan struct{} // closed when byes is complete
	linger  *time.Timer   // closes the connection if the peer does not
}

// New starts a link over one or two connections. It opens the pipe of each lane. If that
// fails, the caller keeps the connections.
func New(ctx context.Context, conn transport.Conn, h Handler, cfg Config) (*Link, error) {
	l := newLink(h, cfg)
	first := newPath(conn, int(wire.Lanes))
	control, err := first.open(ctx, wire.Control)
	if err != nil {
		return nil, err
	}
	lanes, err := l.openAll(ctx, first, control)
	if err != nil {
		return nil, err
	}
	l.startLocked(lanes, true, nil, wire.Preamble{}) // No other goroutine knows the link yet.
	return l, nil
}

// newLink returns a link without a connection.
func newLink(h Handler, cfg Config) *Link {
	l := &Link{
		Peer: cfg.Peer, handler: h, cfg: cfg, log: cfg.Log, settled: make(chan struct{}), ended: make(chan struct{}),
	}
	if l.idle = cfg.IdleTimer; l.idle == nil {
		l.idle = new(IdleTimer)
	}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	for c := range l.credit {
		l.credit[c].Store(creditBytes)
	}
	l.life, l.cancel = context.WithCancel(context.Background())
	l.done = l.life.Done()
	l.control.init(l, wire.Control)
	l.data.init(l, wire.Data)
	l.bulk.link = l
	l.grants.init()
	l.claims.init()
	return l
}

// openedLanes are the paths of a link and the pipes that this node has opened on them.
type openedLanes struct {
	first, second *path // second may be nil
	control       transport.Sender
	rest          []transport.Sender // of the data and bulk lanes; nil if the link awaits the second path
}

// openAll opens the pipes of the data and bulk lanes according to the Config, beside the control lane.
func (l *Link) openAll(ctx context.Context, first *path, control transport.Sender) (o openedLanes, err error) {
	if l.cfg.Bulk != nil && l.cfg.Await != nil || l.cfg.BulkPipes > wire.BulkPipesMax {
		panic("link: contradictory Config: both Bulk and Await, or invalid BulkPipes")
	}
	o = openedLanes{first: first, control: control}
	at := first
	if l.cfg.Bulk != nil {
		o.second = l.secondPath(l.cfg.Bulk)
		at = o.second
	}
	if l.cfg.Await == nil {
		if o.rest, err = l.openLanes(ctx, first, at); err != nil {
			return o, err
		}
	}
	if p := transport.CapabilitiesOf(control).Prioritizer; p != nil {
		p.Prioritize()
	}
	return o, nil
}

// startLocked gives the link its paths and starts its goroutines. With announce, it sends the
// preamble of the control lane. pipe, unless it is nil, is the first pipe of the peer, as the lane
// theirs.
func (l *Link) startLocked(o openedLanes, announce bool, pipe transport.Receiver, theirs wire.Preamble) {
	l.running = true
	l.acked, l.left = make(chan struct{}), make(chan struct{})
	l.first.Store(o.first)
	l.paths = []*path{o.first}
	at := o.first
	if o.second != nil {
		at = o.second
		l.paths = append(l.paths, at)
	}
	var pre *wire.Preamble
	if announce {
		pre = l.announcement()
	}
	l.control.open(o.first, o.control, pre)
	if o.rest != nil {
		l.open(at, o.rest)
	}
	if pipe != nil {
		l.readers.Go(func() {
			if err := l.enterAs(l.life, o.first, pipe, theirs); err != nil {
				l.protocolError(o.first, err)
			}
		})
	}
	for i, p := range l.paths {
		n := 0
		if i == 0 && pipe != nil {
			n = 1
		}
		l.readers.Go(func() { l.accept(l.life, p, n) })
	}
	go l.run()
}

// announcement returns the preamble of the control lane.
func (l *Link) announcement() *wire.Preamble {
	return &wire.Preamble{Lane: wire.Control, Apart: l.cfg.Bulk != nil}
}

// run waits for the end of the link, closes the connections, and waits for all other
// goroutines of the link.
func (l *Link) run() {
	defer close(l.ended)
	<-l.done
	l.ending.Lock()
	l.shut = true
	l.ending.Unlock()
	for _, p := range l.paths {
		p.conn.Close()
	}
	for _, p := range l.paths {
		<-p.conn.Done()
	}
	l.control.close()
	l.data.close()
	l.bulk.close()
	l.writers.Wait()
	l.readers.Wait()
	l.end()
}

// end notifies the handler of the end of the link, unless this side has ended it.
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
	l.handler.Lost(l, err)
}

// Fail ends the link. Handler.Lost is called with err. Fail does not wait for it.
func (l *Link) Fail(err error) {
	l.ending.Lock()
	if l.failure == nil {
		l.failure = err
	}
	l.stopPendingLocked()
	l.ending.Unlock()
	l.cancel()
}

// Conn returns the connection of the link, or the first of two, and nil if the link is pending.
func (l *Link) Conn() transport.Conn {
	if p := l.first.Load(); p != nil {
		return p.conn
	}
	return nil
}

// MemorySharer returns the MemorySharer of the connection, or nil if the nodes share no memory or
// the link is pending.
func (l *Link) MemorySharer() transport.MemorySharer {
	if p := l.first.Load(); p != nil {
		return p.can.MemorySharer
	}
	return nil
}

// memory reports whether frames are exchanged through shared memory, without system
// calls.
func (l *Link) memory() bool {
	return l.MemorySharer() != nil
}

// Locates reports whether Processor can return a processor.
func (l *Link) Locates() bool { return l.locator() != nil }

// Processor returns the number of the processor that the peer has recently used, if it runs on
// this machine, and -1 otherwise.
func (l *Link) Processor() int {
	if k := l.locator(); k != nil {
		return k.PeerCPU()
	}
	return -1
}

func (l *Link) locator() transport.CPULocator {
	k := l.laneReaders[wire.Data].Load()
	if k == nil {
		return nil
	}
	return k.locator
}

// Settled returns a channel that is closed when both sides have agreed on the connections of
// the lanes.
func (l *Link) Settled() <-chan struct{} { return l.settled }

// Done returns a channel that is closed when the link ends, before the Handler is notified.
func (l *Link) Done() <-chan struct{} { return l.done }

// Err returns the reason of the end of the link. It is nil if this side has closed the link.
func (l *Link) Err() error {
	l.ending.Lock()
	defer l.ending.Unlock()
	return l.failure
}

// HasLeft reports whether the peer has said goodbye, and all its frames have been read.
func (l *Link) HasLeft() bool {
	select {
	case <-l.left:
		return true
	default:
		return false
	}
}

// Heard returns a number that grows with everything that arrives from the peer: each frame on
// the control lane and each byte on the others.
func (l *Link) Heard() uint64 { return l.heard.Load() + l.received.Load() }
