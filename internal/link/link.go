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
// of the Link, or by one that visits it while it waits for something; the
// Handler must block neither. All methods may be called from several
// goroutines.
//
// Frames of a lane are handled in the order in which they were sent; lanes do
// not wait for each other. Transfers take turns after each segment of at most
// wire.SegmentMax bytes. Recall and Ungrant return promptly, whatever the peer
// does, and from then on the memory is not touched; the lane stays in step.
//
// The data and bulk lanes have a connection of their own where Config says so,
// and the bulk lane as many pipes as that. A transfer goes over one of them.
// Both connections are one link: they end together.
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
	// Claim is asked where the payload of a message is to go that is about to
	// come in. Without ok, Message is called when it has come. Otherwise it goes
	// to the Sink that was given to Link.Claim, by this number, and nowhere if it
	// is 0; its credit is given back by the link.
	Claim(l *Link, m wire.Message) (claim uint64, ok bool)
	Offer(l *Link, o wire.Offer)
	OfferGrant(l *Link, g wire.OfferGrant)
	OfferRefuse(l *Link, r wire.OfferRefuse)
	Step(l *Link, s wire.Step, payload []byte)
	StepOffer(l *Link, s wire.Step)
	StepGrant(l *Link, s wire.Step)
	Probe(l *Link, p wire.Probe)
	Where(l *Link, w wire.Where)
	// Text comes from the peer; [wire.Escape] has made it printable.
	Revoke(l *Link, r wire.Revoke, text string)
	Failed(l *Link, f wire.Failed, text string)
	Closed(l *Link, c wire.Closed)

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
	// Bulk, if not nil, is a second connection to the peer, which this node
	// has made. The data and bulk lanes of both run over it, and the peer is
	// told so.
	Bulk transport.Conn
	// Await, if not nil, waits for the second connection of a peer that says
	// that it has made one. It is not used together with Bulk. Without it, to
	// say so is a protocol error.
	Await func(ctx context.Context) (transport.Conn, error)
	// BulkOver names the transport of the second connection in errors.
	BulkOver string
	// BulkPipes is how many pipes the bulk lane of this node has on a second
	// connection: 1 by default, wire.BulkPipesMax at the most. On the first
	// one it has one.
	BulkPipes int
	// Minder is shared by the links of a node; nil gives the link its own.
	Minder *Minder
	// Log takes notes about the link; nil discards them.
	Log *slog.Logger
}

// A Link is the connection to one peer.
type Link struct {
	// Peer is the number under which the Handler knows the peer.
	Peer int

	first   *path
	handler Handler
	cfg     Config
	log     *slog.Logger

	control outbox
	data    outbox
	bulk    bulk
	grants  grants
	claims  grants // of messages that come in on the data lane
	named   named

	credit [wire.Classes]atomic.Int64 // what we may send
	unread [wire.Classes]atomic.Int64 // received, and the credit not given back
	owed   [wire.Classes]atomic.Int64 // consumed, but not yet given back
	heard  atomic.Uint64              // frames received

	received atomic.Uint64 // bytes on the data and bulk lanes

	desks     [desksMax]atomic.Pointer[desk] // of lanes that can be visited, the bulk lane last
	bulkDesks atomic.Int32                   // of them
	visitors  atomic.Int32
	minder    *Minder

	fast atomic.Bool // replies go on the data lane

	kept atomic.Int64 // frames without credit that the Handler keeps

	writers sync.WaitGroup
	readers sync.WaitGroup
	settled chan struct{} // closed when the bulk lane of this node has its place
	done    <-chan struct{}
	cancel  context.CancelFunc // closes done, upon which run closes the connections
	ended   chan struct{}      // closed when all goroutines have ended

	ending  sync.Mutex // guards what follows
	paths   []*path
	shut    bool          // no path may be added
	failure error         // why we ended it ourselves
	closing bool          // by Close or Abort
	said    bool          // our goodbye
	byes    lanes         // on which the peer said goodbye
	pipes   int           // of the bulk lane on which it did
	acks    lanes         // on which it has read our goodbye
	acked   chan struct{} // closed when it has on all
	left    chan struct{} // closed when the peer has said goodbye on all
	linger  *time.Timer   // for the peer to close the connection
}

// New makes a link of a connection, or of two, and starts it. It opens the
// pipe of each lane, which may fail; then the connections are the caller's
// still.
func New(ctx context.Context, conn transport.Conn, h Handler, cfg Config) (*Link, error) {
	if cfg.Bulk != nil && cfg.Await != nil || cfg.BulkPipes > wire.BulkPipesMax {
		panic("link: a configuration that contradicts itself")
	}
	l := &Link{
		Peer: cfg.Peer, handler: h, cfg: cfg, log: cfg.Log,
		first: newPath(conn, int(wire.Lanes)), settled: make(chan struct{}),
		ended: make(chan struct{}), acked: make(chan struct{}), left: make(chan struct{}),
	}
	if l.minder = cfg.Minder; l.minder == nil {
		l.minder = new(Minder)
	}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	for c := range l.credit {
		l.credit[c].Store(creditBytes)
	}
	control, err := l.first.open(ctx, wire.Control)
	if err != nil {
		return nil, err
	}
	l.paths = []*path{l.first}
	at := l.first
	if cfg.Bulk != nil {
		at = l.apart(cfg.Bulk)
		l.paths = append(l.paths, at)
	}
	var out payloadLanes
	if cfg.Await == nil {
		if out, err = l.openLanes(ctx, at); err != nil {
			return nil, err
		}
	}
	if p := transport.CapabilitiesOf(control).Prioritizer; p != nil {
		p.Prioritize()
	}
	life, cancel := context.WithCancel(context.Background())
	l.done, l.cancel = life.Done(), cancel
	l.control.init(l, wire.Preamble{Lane: wire.Control, Apart: cfg.Bulk != nil})
	l.control.open(l.first, control)
	l.data.init(l, wire.Preamble{Lane: wire.Data})
	l.bulk.link = l
	l.grants.init()
	l.claims.init()
	if cfg.Await == nil {
		l.open(at, out)
	}
	for _, p := range l.paths {
		l.readers.Go(func() { l.accept(life, p) })
	}
	go l.run()
	return l, nil
}

// run waits for the end of the link, closes its connections, and waits for the
// end of all other goroutines of the link.
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
	l.handler.Lost(l, err)
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

// Conn is the connection under the link, the first one if there are two.
func (l *Link) Conn() transport.Conn { return l.first.conn }

// Sharer is how the nodes share memory, or nil if they do not.
func (l *Link) Sharer() transport.Sharer { return l.first.can.Sharer }

// memory reports whether frames go through memory that both processes share,
// without a system call.
func (l *Link) memory() bool {
	return l.first.can.Sharer != nil
}

// Locates reports whether Processor may know something.
func (l *Link) Locates() bool { return l.locator() != nil }

// Processor is the number of the processor on which the peer has run lately, if that is
// on this machine; -1 is unknown.
func (l *Link) Processor() int {
	if k := l.locator(); k != nil {
		return k.Processor()
	}
	return -1
}

func (l *Link) locator() transport.Locator {
	k := l.desks[wire.Data].Load()
	if k == nil {
		return nil
	}
	return k.locator
}

// Settled is closed when the peer has said how its lanes run, and the bulk lane
// of this node has its place.
func (l *Link) Settled() <-chan struct{} { return l.settled }

// Done is closed when the link ends. The Handler hears of it after that.
func (l *Link) Done() <-chan struct{} { return l.done }

// Err is why the link has ended, if it was not this node that has closed it in
// good order.
func (l *Link) Err() error {
	l.ending.Lock()
	defer l.ending.Unlock()
	return l.failure
}

// Heard is a number that grows with every frame that arrives.
func (l *Link) Heard() uint64 { return l.heard.Load() }
