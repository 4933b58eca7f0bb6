package p2p

import (
	"context"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/wire"
)

// A Receive waits for a message.
type Receive struct {
	messages *Messages
	buf      Regions
	typ      uint8
	source   int
	tag      int64

	begun int64 // by the clock
	sink  link.Sink
	from  *link.Link // of a payload under way
	got   Received
	err   error
	// cancelled is set when the context of the receiver has ended and the communicator is
	// about to be revoked; see [Sending].
	cancelled bool
	ended     chan struct{} // gets one value at the end
}

// Received says what was received.
type Received struct {
	Source int
	Tag    int64
	Bytes  int
}

// An arrival is a message, or the offer of one, that has arrived.
type arrival struct {
	link    *link.Link
	source  int
	tag     int64
	typ     uint8
	size    uint64
	payload []byte // nil if it has to be granted
	offer   uint64 // the sender's number for it, if so
}

func (a *arrival) received() Received {
	return Received{Source: a.source, Tag: a.tag, Bytes: int(a.size)}
}

// StartRecv begins to receive a message from source with tag, either of which may be Any,
// into buf, in the order of the calls. Wait has to be called. A message that is longer than
// buf, or of another type, is lost and an error.
func (m *Messages) StartRecv(buf *Regions, typ uint8, source int, tag int64) (*Receive, error) {
	r := m.newReceive()
	r.buf.First, r.buf.More, r.buf.Elem = buf.First, buf.More, buf.Elem
	r.typ, r.source, r.tag = typ, source, tag
	m.mu.Lock()
	if m.err != nil {
		m.mu.Unlock()
		return nil, m.err
	}
	var e effect
	m.startRecvLocked(&e, r)
	m.mu.Unlock()
	if e.kind != 0 {
		m.do(&e)
	}
	return r, nil
}

// startRecvLocked gives r the message that waits for it, if there is one. What a rank
// had sent before it left can still be received.
func (m *Messages) startRecvLocked(e *effect, r *Receive) {
	r.begun = m.stampLocked()
	if a, ok := m.matcher.Post(r.source, r.tag, r); ok {
		if a.payload == nil {
			a.link.Dropped()
		}
		m.takeLocked(e, r, &a)
		return
	}
	if err := m.beginLocked(r.source); err != nil {
		m.matcher.Remove(r.source, r.tag, r)
		m.endReceiveLocked(e, r, err)
	}
}

// Wait blocks until the message has arrived. If ctx ends before a message has been matched,
// nothing has happened. If it ends while a long message arrives, or a short one takes longer
// than shortMax, the communicator is revoked. The Receive must not be used again.
func (r *Receive) Wait(ctx context.Context) (Received, error) {
	m := r.messages
	if m.await(ctx, r.ended, r.source) {
		got, err := r.got, r.err
		if err == nil {
			m.receives.Put(r)
		}
		return got, err
	}
	m.mu.Lock()
	waiting := m.matcher.Remove(r.source, r.tag, r)
	short := r.got.Bytes <= m.cfg.EagerMax
	if waiting {
		m.recordReceiveLocked(r, context.Cause(ctx))
	}
	m.mu.Unlock()
	switch {
	case waiting:
		return Received{}, context.Cause(ctx)
	case short && r.arrivesSoon():
		return r.got, r.err
	}
	m.cfg.Owner.CancelIf(r.cancel, context.Cause(ctx))
	<-r.ended
	return r.got, r.err
}

// cancel leaves the end of r, which has been matched with a message, to [Messages.Fail]. It
// returns false if r has ended or fails.
func (r *Receive) cancel() bool {
	m := r.messages
	m.mu.Lock()
	defer m.mu.Unlock()
	r.cancelled = m.isReceivingLocked(r)
	return r.cancelled
}

// shortMax is how long a receive whose context has ended waits for a short message
// that has been matched with it. All of that has been sent, is being copied, or arrives
// as soon as its sender has the grant.
const shortMax = 500 * time.Millisecond

// arrivesSoon waits a while for a short message.
func (r *Receive) arrivesSoon() bool {
	select {
	case <-r.ended:
		return true
	case <-time.After(shortMax):
		return false
	}
}

// Then calls f with what Wait returns: at once if the message has arrived with its
// payload, otherwise on a goroutine of its own.
func (r *Receive) Then(f func(Received, error)) {
	select {
	case <-r.ended:
		f(r.got, r.err)
	default:
		r.messages.cfg.Owner.Go(func() { f(r.Wait(context.Background())) })
	}
}

// newReceive takes a Receive from those that have ended well, which nothing refers to
// any more, or makes one.
func (m *Messages) newReceive() *Receive {
	r, ok := m.receives.Get().(*Receive)
	if !ok {
		return &Receive{messages: m, ended: make(chan struct{}, 1)}
	}
	*r = Receive{messages: m, ended: r.ended}
	return r
}

// check notes that r receives the message a, and returns what is wrong with it.
func (r *Receive) check(a *arrival) error {
	r.got.Source, r.got.Tag, r.got.Bytes = a.source, a.tag, int(a.size)
	switch {
	case a.typ != r.typ:
		return &TypeError{Source: a.source, Sent: a.typ, Receiving: r.typ}
	case a.size > uint64(r.buf.Len()):
		return &SizeError{Source: a.source, Size: int(a.size), Room: r.buf.Len()}
	case r.buf.Elem > 0 && a.size%uint64(r.buf.Elem) != 0:
		return &ElementError{Source: a.source, Size: int(a.size), Elem: r.buf.Elem}
	}
	return nil
}

// takeLocked has r receive the message a.
func (m *Messages) takeLocked(e *effect, r *Receive, a *arrival) {
	err := r.check(a)
	if a.payload == nil && m.left[a.source] != nil {
		err = m.left[a.source]
	}
	switch {
	case a.payload != nil:
		m.endReceiveLocked(e, r, err)
		e.kind = deliver
	case err != nil:
		m.endReceiveLocked(e, r, err)
		e.kind = refuse
	default:
		m.receiving[r] = struct{}{}
		e.kind, e.grant = grant, a.link.Grant(r.expect(a))
	}
	e.receive, e.link, e.payload, e.offer = r, a.link, a.payload, a.offer
}

// expect says where the payload of a goes, which arrives later.
func (r *Receive) expect(a *arrival) *link.Sink {
	first, more := r.buf.cut(int(a.size))
	r.from, r.sink = a.link, link.Sink{Dst: first, More: more, Owner: r}
	return &r.sink
}

// Filled is called by the link when a payload that was granted has arrived.
func (r *Receive) Filled(*link.Sink) {
	m := r.messages
	var e effect
	m.mu.Lock()
	if !r.cancelled && m.noLongerLocked(r) {
		m.endReceiveLocked(&e, r, nil)
	}
	m.mu.Unlock()
	m.do(&e)
}

func (m *Messages) endReceiveLocked(e *effect, r *Receive, err error) {
	m.recordReceiveLocked(r, err)
	r.err = err
	e.kind, e.ended = wake, r.ended
}

// Arrive takes a message with its payload. Used reports whether the payload is used: if
// not, its sender has to get the credit back. Unexpected says that the peer is not a
// rank of the communicator.
func (m *Messages) Arrive(l *link.Link, f wire.Message, payload []byte) (used, unexpected bool) {
	if payload == nil {
		payload = []byte{}
	}
	return m.arrive(&arrival{link: l, tag: f.Tag, typ: f.Type, size: uint64(len(payload)), payload: payload})
}

// ArriveOffer takes the offer of a message, as Arrive does. The sender waits until it is
// granted or refused, or the communicator has ended.
func (m *Messages) ArriveOffer(l *link.Link, o wire.Offer) (unexpected bool) {
	_, unexpected = m.arrive(&arrival{link: l, tag: o.Tag, typ: o.Type, size: o.Size, offer: o.ID})
	return unexpected
}

func (m *Messages) arrive(a *arrival) (used, unexpected bool) {
	var e effect
	m.mu.Lock()
	used, unexpected = m.arriveLocked(&e, a)
	m.mu.Unlock()
	if e.kind != 0 || e.more != nil {
		m.do(&e)
	}
	if used || a.payload == nil {
		if f := m.received.Load(); f != nil {
			(*f)()
		}
	}
	return used, unexpected
}

// arriveLocked hands a message to the receive that waits for it, or keeps it.
func (m *Messages) arriveLocked(e *effect, a *arrival) (used, unexpected bool) {
	rank, ok := m.rankOf[a.link.Peer]
	switch {
	case m.err != nil:
		return false, false
	case m.opened && !ok:
		return false, true
	}
	if !m.opened {
		if _, isRefused := m.refused[a.link]; isRefused {
			return false, false
		}
	}
	a.source = rank
	if r, ok := m.matcher.Take(a.source, a.tag); ok {
		m.takeLocked(e, r, a)
		return true, false
	}
	switch {
	case a.payload != nil:
		a.payload = append([]byte{}, a.payload...)
	case !a.link.Keep():
		return false, false
	}
	if !m.opened {
		m.unopened = append(m.unopened, *a)
		return true, false
	}
	m.matcher.Keep(a.source, a.tag, *a)
	if len(m.probes) > 0 {
		e.more = new(Effects)
		m.probedLocked(e.more, a)
	}
	return true, false
}

// Claim has a message that is about to come in go straight to the receive that
// waits for it, if there is one.
func (m *Messages) Claim(l *link.Link, f wire.Message) (claim uint64, ok bool) {
	var e effect
	m.mu.Lock()
	claim, ok = m.claimLocked(&e, l, f)
	m.mu.Unlock()
	m.do(&e)
	return claim, ok
}

func (m *Messages) claimLocked(e *effect, l *link.Link, f wire.Message) (claim uint64, ok bool) {
	rank, member := m.rankOf[l.Peer]
	if m.err != nil || !member {
		return 0, false
	}
	r, ok := m.matcher.Take(rank, f.Tag)
	if !ok {
		return 0, false
	}
	a := arrival{link: l, source: rank, tag: f.Tag, typ: f.Type, size: uint64(f.Length)}
	if err := r.check(&a); err != nil {
		m.endReceiveLocked(e, r, err)
		return 0, true
	}
	m.claimed = append(m.claimed, r)
	return l.Claim(r.expect(&a)), true
}
