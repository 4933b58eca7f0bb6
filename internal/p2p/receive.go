package p2p

import (
	"context"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/poll"
)

// A Receive waits for a message.
type Receive struct {
	messages *Messages
	buf      Regions
	typ      uint8
	order    uint32 // see Trace.Order
	source   int
	tag      int64

	begun  int64  // by Config.Clock
	number uint64 // see Wait.Number
	background
	sink *link.Sink // of the last transfer; kept for reuse
	from *link.Link // the link of a payload in transfer
	// prefetch is set in the Receive of a prefetch, and in a Receive that has taken the message
	// of one during the transfer.
	prefetch *prefetch
	index    int  // in Messages.receiving, if it is there
	claimed  bool // the transfer does not prevent CloseIdle: claimed, or of a prefetch without a taker
	got      Received
	err      error
	// cancelled says that the context of the receiver has ended and the communicator is about to be
	// revoked: only [Messages.Fail] ends the Receive.
	cancelled bool
	done      poll.Signal // that the Receive has ended
}

// Received describes a received message.
type Received struct {
	Source int
	Tag    int64
	Bytes  int
}

// StartRecv starts to receive a message from source with tag (both may be [Any]) into buf. If several
// receives match a message, the one that started first gets it. The memory of buf must not be used
// until [Receive.Wait] returns. A message that is longer than buf, or of another type, is lost, and
// Wait returns an error.
func (m *Messages) StartRecv(buf *Regions, typ uint8, source int, tag int64) (*Receive, error) {
	r := m.newReceive(buf, typ, source, tag)
	var fx Effects
	m.mu.Lock()
	if m.err != nil {
		m.mu.Unlock()
		return nil, m.err
	}
	m.startRecvLocked(&fx, r)
	m.mu.Unlock()
	m.Perform(&fx)
	return r, nil
}

// startRecvLocked gives r a message that has arrived, or makes it wait for one. Messages that a rank
// sent before it left can still be received.
func (m *Messages) startRecvLocked(fx *Effects, r *Receive) {
	m.begun++
	r.begun, r.number = m.stampLocked(), m.begun
	if a, ok := m.matcher.Post(r.source, r.tag, r); ok {
		if a.payload == nil {
			a.link.Credit().Dropped()
		}
		m.takeLocked(fx, r, &a)
		return
	}
	if err := m.beginLocked(r.source); err != nil {
		m.matcher.Remove(r.source, r.tag, r)
		m.endReceiveLocked(fx, r, err)
	}
}

// Wait blocks until the message has arrived. If ctx ends before the receive has a message, Wait returns
// its cause and no message is lost. If ctx ends while the payload is in transfer, the communicator is revoked, for
// a short payload only after shortMax. The Receive must not be used after Wait.
func (r *Receive) Wait(ctx context.Context) (Received, error) {
	m := r.messages
	if m.await(ctx, &r.done, r.source) {
		got, err := r.got, r.err
		if err == nil {
			m.receives.Put(r)
		}
		return got, err
	}
	cause := m.cfg.Owner.Cause(ctx, Wait{Kind: Got, Type: r.typ, Peer: r.source, Tag: r.tag}, r.begun)
	m.mu.Lock()
	waiting := m.matcher.Remove(r.source, r.tag, r)
	short := r.got.Bytes <= m.cfg.EagerMax
	if waiting {
		m.traceReceiveLocked(r, cause)
	}
	m.mu.Unlock()
	switch {
	case waiting:
		return Received{}, cause
	case short && r.arrivesSoon():
		return r.got, r.err
	}
	m.cfg.Owner.CancelIf(r.cancel, cause)
	r.done.Await(context.Background())
	return r.got, r.err
}

// cancel makes [Messages.Fail] the only call that ends r, whose payload is in transfer. It returns
// false if r has ended or failed.
func (r *Receive) cancel() bool {
	m := r.messages
	m.mu.Lock()
	defer m.mu.Unlock()
	transfer := r
	if r.prefetch != nil {
		transfer = &r.prefetch.receive
	}
	transfer.cancelled = m.isReceivingLocked(transfer)
	return transfer.cancelled
}

// shortMax limits how long a receive waits, after its context has ended, for the rest of a short
// message. Such a message usually arrives soon: it is being copied, or its sender is about to get the
// grant.
const shortMax = 500 * time.Millisecond

// arrivesSoon waits for a short message, up to shortMax.
func (r *Receive) arrivesSoon() bool {
	ctx, cancel := context.WithTimeout(context.Background(), shortMax)
	defer cancel()
	return r.done.Await(ctx)
}

// newReceive returns a Receive, possibly a reused one.
func (m *Messages) newReceive(buf *Regions, typ uint8, source int, tag int64) *Receive {
	r, ok := m.receives.Get().(*Receive)
	if !ok {
		r = new(Receive)
	}
	*r = Receive{messages: m, done: r.done, sink: r.sink}
	r.done.Reset()
	r.buf.First, r.buf.More, r.buf.Elem, r.buf.Landing = buf.First, buf.More, buf.Elem, buf.Landing
	r.typ, r.source, r.tag = typ, source, tag
	return r
}

// check sets r.got, and returns an error if the message does not fit r.
func (r *Receive) check(a *arrival) error {
	r.got, r.order = a.received(), a.order
	if a.typ != r.typ || a.size > uint64(r.buf.Len()) || r.buf.Elem > 0 && a.size%uint64(r.buf.Elem) != 0 {
		return &MisfitError{Rank: a.source, Sent: a.typ, Receiving: r.typ, Size: int(a.size), Room: r.buf.Len(), Elem: r.buf.Elem}
	}
	return nil
}

// takeLocked makes r receive a message that has arrived, or grants or refuses its offer.
func (m *Messages) takeLocked(fx *Effects, r *Receive, a *arrival) {
	err := r.check(a)
	if a.payload == nil && a.prefetch == nil && m.left[a.source] != nil {
		err = m.left[a.source]
	}
	switch {
	case a.prefetch != nil:
		m.takePrefetchedLocked(fx, r, a, err)
	case a.payload != nil:
		e := m.endReceiveLocked(fx, r, err)
		e.kind, e.link, e.payload = deliver, a.link, a.payload
	case err != nil:
		e := m.endReceiveLocked(fx, r, err)
		e.kind, e.link, e.offer = refuse, a.link, a.offer
	default:
		fx.addGrant(a, a.link.Grant(m.transferLocked(r, a)))
	}
}

// transferLocked begins the transfer of the payload of a message to r, and returns its sink.
func (m *Messages) transferLocked(r *Receive, a *arrival) *link.Sink {
	r.index = len(m.receiving)
	m.receiving = append(m.receiving, r)
	first, more := r.buf.cut(int(a.size))
	if r.sink == nil {
		r.sink = new(link.Sink)
	}
	r.from, *r.sink = a.link, link.Sink{Dst: first, More: more, Landing: r.buf.Landing, Owner: r}
	return r.sink
}

// isReceivingLocked reports whether the payload of r is in transfer.
func (m *Messages) isReceivingLocked(r *Receive) bool {
	return r.index < len(m.receiving) && m.receiving[r.index] == r
}

// stopReceivingLocked removes r from the receives with a payload in transfer.
func (m *Messages) stopReceivingLocked(r *Receive) {
	last := len(m.receiving) - 1
	m.receiving[r.index] = m.receiving[last]
	m.receiving[r.index].index = r.index
	m.receiving[last] = nil
	m.receiving = m.receiving[:last]
}

// Filled is called by the link when the payload has arrived.
func (r *Receive) Filled(*link.Sink) {
	m := r.messages
	var fx Effects
	m.mu.Lock()
	if !r.cancelled && m.isReceivingLocked(r) {
		m.stopReceivingLocked(r)
		m.endReceiveLocked(&fx, r, nil)
	}
	m.mu.Unlock()
	m.Perform(&fx)
}

// endReceiveLocked ends r, and adds the effect that wakes its caller.
func (m *Messages) endReceiveLocked(fx *Effects, r *Receive, err error) *effect {
	m.traceReceiveLocked(r, err)
	r.err, r.over = err, true
	e := fx.add()
	e.kind, e.receive, e.done, e.follower, e.failed = wake, r, &r.done, r.follower, err != nil
	return e
}
