// Package link is the connection to one peer: lanes, frames, credit, grants and an orderly end,
// over any transport.
//
// A [Link] sends small payloads immediately, within the credit of [Credit.Take], and large
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
// together. A side opens the pipes of its bulk lane when it announces or delivers its first transfer: over
// TCP a pipe costs a TLS handshake, and most links of a large world carry no transfer.
//
// The last call of the Handler reports the end of the link: Left, after the peer has called
// Close, or Lost, with a reason: the end of the connection or a protocol error. Neither is
// called after Close or Abort of this side.
//
// The memory that a peer can occupy is bounded: creditBytes of each class that have not been
// Consumed, including the charge for each frame, and keptMax frames without charge. More is a
// protocol error. A peer that does not read gets no answers. Other outgoing data is bounded by
// the calls of this node.
//
// # Lanes
//
// Control carries frames that must never wait; over QUIC it has priority. It carries grants and credit too, unless the data lane
// has a faster connection of its own. Data carries payloads of up to 128 KiB, within a credit of 1 MiB for collectives and another for
// messages. A payload that arrives early is copied, and uses credit until it is consumed. Credit returns in parts, so a short
// message may have to be offered although there is room for it; the receiver then grants it into memory of its own (package p2p).
// Bulk carries granted payloads, in segments. Until the lane has its pipes, transfers wait in it, and the traffic of the link
// counts their preambles as sent, so that a search for deadlocks sees bytes in flight. Pipes that do not open within 20 s break the
// connection; if those of the next one do not open either, the link ends.
//
// # Connections
//
// A link is pending until it has a connection, and its frames wait. Outboxes, grants and credit come with its first frame,
// so an unused peer takes less than 1 KiB. The node that has dialed proposes the connection by the preamble of its control lane; of
// two proposals at a time that of the larger NodeID counts. When the peer has accepted, that node opens its lanes, confirms by a beat,
// and sends the frames that have waited. The peer opens its lanes when it has read the confirmation; after 20 s without it, it closes
// the connection. When a connection ends, the link is pending again, or ends. Over the next one both sides state what they have received
// ([wire.Resume]), and send the rest.
//
// # Bounds
//
// Each frame counts 64 bytes more than its payload. The queue of answers for a peer that does not read has 64 KiB, that of messages
// about views 256 KiB. Further answers are dropped; the peer can ask again.
//
// A lane keeps frames until the peer has acknowledged them. Credit bounds those that the peer may leave unread. With more than 512 KiB of
// others [Link.Tend] asks for an acknowledgement by a ping, and ends the link if the peer acknowledges nothing for a time; with 16 MiB the link ends
// at once. No correct peer gets there: it would have more than keptMax frames to keep. Calls do not wait for acknowledgements.
package link

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

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
	Query(l *Link, p wire.Query)
	Where(l *Link, w wire.Where)
	// Ask asks for the calls that wait, and Waits answers; list is valid during the call only.
	Ask(l *Link, a wire.Ask)
	Waits(l *Link, w wire.Waits, list []byte)
	// The text of the peer has been made printable by [wire.Escape].
	Revoke(l *Link, r wire.Revoke, text string)
	Failed(l *Link, f wire.Failed, text string)
	Reason(l *Link, r wire.Reason, text string)
	Gone(l *Link, g wire.Gone)
	Leaving(l *Link, f wire.Leaving)
	// View delivers a message about views, which is valid during the call only. It must not block.
	View(l *Link, message []byte)
	Closed(l *Link, c wire.Closed)

	// Left is called after the peer has closed the link by a goodbye. All its frames have been
	// handled, and every transfer that it has received completely has been Delivered.
	Left(l *Link)
	// Lost is called once, as the last call, if the link has ended otherwise.
	Lost(l *Link, err error)
}

// Config configures the links of a [Common], or one connection; see [Link.Connect].
type Config struct {
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
	// Detached, if not nil, is called when a link becomes pending again, since its connection has ended: it broke
	// for the reason err, or err is nil: this side has released it by [Link.Disconnect], or both agreed that it is idle by [Link.CloseIdle]. The link keeps
	// its credit, its grants and the frames that wait. If these need a connection, NewCommon's function need is called behind Detached.
	// memory and purpose are those of the connection. Detached holds a lock of the link, whose methods it must not call, nor block. It is not called
	// after Close or Abort. Without Detached a link ends with its connection.
	Detached func(l *Link, memory transport.MemorySharer, purpose Purpose, err error)
	// Relay, if not nil, gets the pipes for relay frames of this node and of the peer, behind their preambles,
	// when both are open. It owns the pipes, which end with the connection, and may block until the link
	// ends, on a goroutine of the link. Both nodes have
	// it, or neither.
	Relay func(l *Link, s transport.Sender, r transport.Receiver)
	// Disconnects says that [Link.Disconnect] may close connections that last as long as the peer. Frames over them are then kept and acknowledged,
	// as over others. Both nodes have it, or neither.
	Disconnects bool
	// IdleTimer is shared by the links of a node. By default the link has its own.
	IdleTimer *IdleTimer
	// Log defaults to a logger that discards.
	Log *slog.Logger
}

// A Link is the connection to one peer. The connection itself and everything that only a link with
// one needs are in an attachment, and the state of frames is in an exchange, so that a pending link is small: a node of a
// large world has one for each other node.
type Link struct {
	// Peer identifies the peer for the Handler.
	Peer int
	// DeviceMemory is a note of those that exchange payloads of devices over the link.
	DeviceMemory DeviceMemory

	common    *Common
	attached  atomic.Pointer[attachment] // nil as long as the link is pending
	exchanged atomic.Pointer[exchange]   // nil as long as the link is unused; see Link.exchange

	purpose atomic.Uint32 // a Purpose; 0 before Common.need was called
	waiters atomic.Int32  // see Wait
	paused  atomic.Int32  // pollings whose goroutines sleep
	fast    atomic.Bool   // replies use the data lane

	making   sync.Mutex // guards the fields below
	quiet    []byte     // frames for the data lane that need no connection, until there is an exchange
	dropping bool       // the link has ended: frames are dropped

	ending   sync.Mutex // guards the fields below and those of the attachment
	stopping bool       // a goroutine ends the link, which has no attachment
	closing  bool       // Close or Abort was called
	// answering is not nil while a connection of the peer was accepted and is not confirmed yet; see attachment.begin.
	answering chan struct{}
	failure   error // the reason of the end
	settled   event // the data lane of this node has its pipe, or the attachment has ended
	over      event // the link ends
	ended     event // the Handler was notified
}

// An event happens once. Its channel is made when it is needed first, and closed by the event: a pending link is small.
type event struct{ channel chan struct{} }

// happen closes the channel.
func (e *event) happen() {
	if !e.hasHappened() {
		e.happened()
		close(e.channel)
	}
}

func (e *event) hasHappened() bool { return isClosed(e.channel) }

// happened returns a channel that is closed when the event has happened.
func (e *event) happened() <-chan struct{} {
	if e.channel == nil {
		e.channel = make(chan struct{})
	}
	return e.channel
}

// end notifies the handler of the end of the link, unless this side has ended it. a is the last
// attachment, or nil.
func (l *Link) end(a *attachment) {
	l.dropFrames()
	l.ending.Lock()
	if a != nil {
		l.failure = cmp.Or(l.failure, a.broke)
	}
	l.over.happen()
	closing, left, err := l.closing, l.HasLeft(), l.failure
	l.ending.Unlock()
	switch {
	case closing:
	case left:
		l.common.handler.Left(l)
	default:
		l.common.handler.Lost(l, err)
	}
	l.ending.Lock()
	defer l.ending.Unlock()
	l.ended.happen()
}

// isRunningLocked reports whether an attachment is being made, or works, or the end of the link has begun.
func (l *Link) isRunningLocked() bool {
	x := l.exchanged.Load()
	return l.stopping || x != nil && x.session.InUse()
}

// stopLocked lets the link end: an attachment ends it, or another goroutine if there is none.
func (l *Link) stopLocked() {
	l.over.happen()
	switch a := l.attached.Load(); {
	case a != nil:
		a.cancel()
	case l.isRunningLocked(): // bind ends the link
		if x := l.exchanged.Load(); x != nil && x.binding != nil {
			go x.binding.Close()
		}
	default:
		l.stopping = true
		go l.end(nil)
	}
}

// Fail ends the link. Handler.Lost is called with err. Fail does not wait for it.
func (l *Link) Fail(err error) {
	l.ending.Lock()
	defer l.ending.Unlock()
	if l.failure == nil && !l.over.hasHappened() {
		l.failure = err
	}
	l.stopLocked()
}

// path returns the first path, or nil if the link is pending.
func (l *Link) path() *path {
	if a := l.attached.Load(); a != nil {
		return a.first
	}
	return nil
}

// Conn returns the connection of the link, or the first of two, and nil if the link is pending.
func (l *Link) Conn() transport.Conn {
	if p := l.path(); p != nil {
		return p.conn
	}
	return nil
}

// MemorySharer returns the MemorySharer of the connection, or nil if the nodes share no memory or
// the link is pending.
func (l *Link) MemorySharer() transport.MemorySharer {
	if p := l.path(); p != nil {
		return p.can.MemorySharer
	}
	return nil
}

// Locator returns the CPULocator of the data lane, if the peer runs on this machine, or nil.
func (l *Link) Locator() transport.CPULocator {
	a := l.attached.Load()
	if a == nil {
		return nil
	}
	k := a.laneReaders[wire.Data].Load()
	if k == nil {
		return nil
	}
	return k.locator
}

// Settled returns a channel that is closed when both sides have agreed on the connections of
// the lanes, or when the connection ends before that.
func (l *Link) Settled() <-chan struct{} {
	l.ending.Lock()
	defer l.ending.Unlock()
	return l.settled.happened()
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Done returns a channel that is closed when the link ends, before the Handler is notified.
func (l *Link) Done() <-chan struct{} {
	l.ending.Lock()
	defer l.ending.Unlock()
	return l.over.happened()
}

// awaitEnd waits until the Handler was notified.
func (l *Link) awaitEnd() {
	l.ending.Lock()
	ended := l.ended.happened()
	l.ending.Unlock()
	<-ended
}

// Err returns the reason of the end of the link. It is nil if this side has closed the link.
func (l *Link) Err() error {
	l.ending.Lock()
	defer l.ending.Unlock()
	return l.failure
}

// HasLeft reports whether the peer has said goodbye, and all its frames have been read.
func (l *Link) HasLeft() bool {
	a := l.attached.Load()
	return a != nil && isClosed(a.left)
}

// Heard returns a number that grows with everything that arrives from the peer: each lane, each frame on
// the control lane and each byte on the others.
func (l *Link) Heard() uint64 {
	x := l.exchanged.Load()
	if x == nil {
		return 0
	}
	return x.heard.Load() + x.read.Load()
}
