package engine

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/wire"
)

// A Receive waits for a message.
type Receive struct {
	comm   *Comm
	buf    Regions
	typ    uint8
	source int
	tag    int64

	begun int64 // by the clock of the engine
	sink  link.Sink
	from  *link.Link // of a payload under way
	got   Received
	err   error
	over  bool
	ended chan struct{} // gets one value at the end
}

// Received says what was received.
type Received struct {
	Source int
	Tag    int64
	Bytes  int
}

// An arrival is a message that nobody has asked for yet.
type arrival struct {
	link    *link.Link
	source  int
	tag     int64
	typ     uint8
	size    uint64
	payload []byte // nil if it has to be granted
	offer   uint64 // the sender's number for it, if so
}

// A Sending is a message that its receiver has to grant.
type Sending struct {
	comm     *Comm
	id       uint64
	rank     int
	typ      uint8
	tag      int64
	size     int
	begun    int64 // by the clock of the engine
	transfer link.Transfer
	err      error
	ended    chan struct{}
}

// Send sends data, of elements of type typ, to a rank. It returns when data
// may be used again. If ctx ends before the receiver has taken a large
// message, the communicator is revoked.
func (c *Comm) Send(ctx context.Context, data []byte, typ uint8, to int, tag int64) error {
	s, err := c.StartSend(Bytes(data), typ, to, tag)
	if s == nil {
		return err
	}
	return s.Wait(ctx)
}

// StartSend begins to send, in the order of the calls. If it returns nil and no
// error, data may be used again; otherwise Wait has to be called.
func (c *Comm) StartSend(data *Regions, typ uint8, to int, tag int64) (*Sending, error) {
	size := data.Len()
	c.mu.Lock()
	switch {
	case c.err != nil:
		defer c.mu.Unlock()
		return nil, &EndedError{c.err}
	case c.hasLeft(to):
		defer c.mu.Unlock()
		return nil, leftError(to)
	}
	l := c.links[to]
	begun := c.stamp()
	if size <= c.engine.cfg.EagerMax && l.TakeCredit(wire.Messages, size) {
		if m := c.noteMessage(); m != nil {
			m.what, m.typ, m.peer, m.tag, m.bytes = sent, typ, int32(to), tag, int64(size)
			m.begun, m.ended, m.err = begun, begun, nil
		}
		c.mu.Unlock()
		l.SendMessage(wire.Message{Comm: c.id, Tag: tag, Type: typ}, data.First, data.More...)
		return nil, nil
	}
	c.lastSend++
	s := &Sending{comm: c, id: c.lastSend, rank: to, typ: typ, tag: tag, size: size, begun: begun, ended: make(chan struct{}, 1)}
	s.transfer = link.Transfer{Data: data.First, More: data.More, Owner: s}
	c.sends[s.id] = s
	o := wire.Offer{Comm: c.id, Tag: tag, Type: typ, ID: s.id, Size: uint64(size)}
	c.mu.Unlock()
	l.OfferMessage(o)
	return s, nil
}

// Wait waits until the data may be used again. If ctx ends before that, the
// communicator is revoked.
func (s *Sending) Wait(ctx context.Context) error {
	c := s.comm
	if c.awaitRank(ctx, s.ended, s.rank) {
		return s.err
	}
	c.cancel(func() bool { return c.sends[s.id] != nil }, context.Cause(ctx))
	<-s.ended
	return s.err
}

func (c *Comm) hasLeft(rank int) bool {
	_, left := c.left[rank]
	return left
}

// Delivered ends a message that was granted.
func (s *Sending) Delivered(*link.Transfer) {
	s.comm.mu.Lock()
	defer s.comm.mu.Unlock()
	s.comm.sent(s.id, nil)
}

// sent ends a message, unless it has ended already. It is called with the
// lock held.
func (c *Comm) sent(id uint64, err error) {
	if s := c.sends[id]; s != nil {
		delete(c.sends, id)
		s.end(err)
	}
}

// end is called with the lock held.
func (s *Sending) end(err error) {
	s.comm.noteSent(s, err)
	s.err = err
	s.ended <- struct{}{}
}

// OfferGrant sends the payload that a peer asks for.
func (e *Engine) OfferGrant(l *link.Link, g wire.OfferGrant) {
	c := e.known(g.Comm)
	if c == nil {
		return
	}
	defer l.Push()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s := c.sends[g.ID]; {
	case s == nil: // It has failed on this side.
	case l != c.links[s.rank] || s.transfer.Grant != 0 || g.Grant == 0:
		l.Fail(fmt.Errorf("engine: protocol error: grant %d of message %d of communicator %d", g.Grant, g.ID, g.Comm))
	default:
		s.transfer.Grant = g.Grant
		l.Deliver(&s.transfer)
	}
}

// OfferRefuse ends a message that its receiver has refused.
func (e *Engine) OfferRefuse(l *link.Link, r wire.OfferRefuse) {
	c := e.known(r.Comm)
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s := c.sends[r.ID]; {
	case s == nil: // It has failed on this side.
	case l != c.links[s.rank] || s.transfer.Grant != 0:
		l.Fail(fmt.Errorf("engine: protocol error: refusal of message %d of communicator %d", r.ID, r.Comm))
	default:
		c.sent(r.ID, &RefusedError{
			Rank: s.rank, Size: s.size, Room: int(r.Room), Sent: s.typ, Receiving: r.Type,
		})
	}
}

// Recv receives a message from source with tag, either of which may be
// p2p.Any, into buf. A message that is longer than buf, or of another type,
// is lost and an error. If ctx ends before a message has come, nothing has
// happened; if it ends while a large one comes in, or a short one for longer than
// comingMax, the communicator is revoked.
func (c *Comm) Recv(ctx context.Context, buf []byte, typ uint8, source int, tag int64) (Received, error) {
	r, err := c.StartRecv(Bytes(buf), typ, source, tag)
	if err != nil {
		return Received{}, err
	}
	return r.Wait(ctx)
}

// StartRecv begins to receive, in the order of the calls. Wait has to be
// called.
func (c *Comm) StartRecv(buf *Regions, typ uint8, source int, tag int64) (*Receive, error) {
	r := c.newReceive()
	r.buf.First, r.buf.More, r.buf.Elem = buf.First, buf.More, buf.Elem
	r.typ, r.source, r.tag = typ, source, tag
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, &EndedError{c.err}
	}
	r.begun = c.stamp()
	switch a, ok := c.messages.Post(source, tag, r); {
	case ok:
		if a.payload == nil {
			a.link.Dropped()
		}
		c.take(r, &a)
	case c.hasLeft(source):
		c.messages.Remove(source, tag, r)
		r.end(leftError(source))
	case source == p2p.Any && c.alone():
		c.messages.Remove(source, tag, r)
		r.end(leftError(c.lastLeft))
	}
	return r, nil
}

// Wait waits for the message, as Recv does. The Receive must not be used again.
func (r *Receive) Wait(ctx context.Context) (Received, error) {
	c := r.comm
	if c.awaitRank(ctx, r.ended, r.source) {
		got, err := r.got, r.err
		if err == nil {
			c.receives.Put(r)
		}
		return got, err
	}
	c.mu.Lock()
	waiting := c.messages.Remove(r.source, r.tag, r)
	short := r.got.Bytes <= c.engine.cfg.EagerMax
	if waiting {
		c.noteReceived(r, context.Cause(ctx))
	}
	c.mu.Unlock()
	switch {
	case waiting:
		return Received{}, context.Cause(ctx)
	case short && r.came():
		return r.got, r.err
	}
	c.cancel(func() bool { return !r.over }, context.Cause(ctx))
	<-r.ended
	return r.got, r.err
}

// Then calls f with what Wait returns: at once if the message has come with its
// payload, otherwise on a goroutine of its own.
func (r *Receive) Then(f func(Received, error)) {
	select {
	case <-r.ended:
		f(r.got, r.err)
	default:
		r.comm.Go(func() { f(r.Wait(context.Background())) })
	}
}

// newReceive takes a Receive from those that have ended well, to whom nothing
// refers any more, or makes one.
func (c *Comm) newReceive() *Receive {
	r, ok := c.receives.Get().(*Receive)
	if !ok {
		return &Receive{comm: c, ended: make(chan struct{}, 1)}
	}
	*r = Receive{comm: c, ended: r.ended}
	return r
}

// check notes that r receives the message a, and reports what is wrong with it.
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

// take receives the message a. It is called with the lock held.
func (c *Comm) take(r *Receive, a *arrival) {
	err := r.check(a)
	if a.payload == nil && c.hasLeft(a.source) {
		err = leftError(a.source)
	}
	switch {
	case a.payload != nil:
		if err == nil {
			r.buf.fill(a.payload)
		}
		a.link.Consumed(wire.Messages, len(a.payload))
		r.end(err)
	case err != nil:
		a.link.RefuseOffer(wire.OfferRefuse{Comm: c.id, ID: a.offer, Room: uint64(r.buf.Len()), Type: r.typ})
		r.end(err)
	default:
		c.receiving[r] = struct{}{}
		a.link.GrantOffer(wire.OfferGrant{Comm: c.id, ID: a.offer, Grant: a.link.Grant(r.expect(a))})
	}
}

// expect says where the payload of a goes, which comes in later.
func (r *Receive) expect(a *arrival) *link.Sink {
	first, more := r.buf.cut(int(a.size))
	r.from, r.sink = a.link, link.Sink{Dst: first, More: more, Owner: r}
	return &r.sink
}

// noLonger takes r off those whose payload is under way, and reports whether it
// was one of them. It is called with the lock held.
func (c *Comm) noLonger(r *Receive) bool {
	if i := slices.Index(c.claimed, r); i >= 0 {
		c.claimed = slices.Delete(c.claimed, i, i+1)
		return true
	}
	_, ok := c.receiving[r]
	delete(c.receiving, r)
	return ok
}

// eachReceiving calls f for those whose payload is under way. It is called with
// the lock held.
func (c *Comm) eachReceiving(f func(r *Receive)) {
	for r := range c.receiving {
		f(r)
	}
	for _, r := range slices.Clone(c.claimed) {
		f(r)
	}
}

// Filled ends a receive whose payload was granted.
func (r *Receive) Filled(*link.Sink) {
	c := r.comm
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.noLonger(r) {
		r.end(nil)
	}
}

// end is called with the lock held.
func (r *Receive) end(err error) {
	r.comm.noteReceived(r, err)
	r.err, r.over = err, true
	r.ended <- struct{}{}
}

// Message handles a message with its payload.
func (e *Engine) Message(l *link.Link, m wire.Message, payload []byte) {
	if payload == nil {
		payload = []byte{}
	}
	a := arrival{link: l, tag: m.Tag, typ: m.Type, size: uint64(len(payload)), payload: payload}
	c := e.comm(l, m.Comm)
	if c == nil || !c.message(&a) {
		l.Consumed(wire.Messages, len(payload))
		return
	}
	c.notify()
}

// Offer handles the announcement of a message. Its sender waits until it is
// granted or refused, or the communicator has ended.
func (e *Engine) Offer(l *link.Link, o wire.Offer) {
	if o.Size > math.MaxInt {
		l.Fail(fmt.Errorf("engine: protocol error: a message of %d bytes", o.Size))
		return
	}
	if c := e.comm(l, o.Comm); c != nil {
		c.message(&arrival{link: l, tag: o.Tag, typ: o.Type, size: o.Size, offer: o.ID})
		c.notify()
	}
}

// message hands a message to the receive that asks for it, or keeps it. It
// reports false if there is no use for it.
func (c *Comm) message(a *arrival) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return false
	}
	rank, ok := c.rankOf[a.link.Peer]
	if c.opened && !ok {
		c.stranger(a.link)
		return false
	}
	a.source = rank
	if r, ok := c.messages.Take(a.source, a.tag); ok {
		c.take(r, a)
		return true
	}
	switch {
	case a.payload != nil:
		a.payload = append([]byte{}, a.payload...)
	case !a.link.Keep():
		return false
	}
	if !c.opened {
		c.unopened = append(c.unopened, *a)
		return true
	}
	c.messages.Keep(a.source, a.tag, *a)
	c.probed(a)
	return true
}

// dropMessages lets go of the messages that nobody has asked for.
func (c *Comm) dropMessages() {
	for _, a := range append(c.messages.ClearMessages(), c.unopened...) {
		c.dropMessage(a)
	}
	c.unopened = nil
}

func (c *Comm) dropMessage(a arrival) {
	if a.payload != nil {
		a.link.Consumed(wire.Messages, len(a.payload))
		return
	}
	a.link.Dropped()
}

// failReceives ends the receives that wait for a message from the sources in
// is, which is called with p2p.Any for those from any source.
func (c *Comm) failReceives(err error, is func(source int) bool) {
	for _, r := range c.messages.ClearReceives(is) {
		r.end(err)
	}
	c.failProbes(err, is)
}

// failReceiving ends receives whose payload is under way. It is called with
// the lock held, and does not wait until the buffers are free.
func (c *Comm) failReceiving(err error, is func(r *Receive) bool) {
	c.eachReceiving(func(r *Receive) {
		if is(r) {
			c.noLonger(r)
			c.letGo(func() { r.from.Ungrant(&r.sink) }, func() { r.end(err) })
		}
	})
}

// failSends is failReceiving for sends.
func (c *Comm) failSends(err error, is func(s *Sending) bool) {
	for id, s := range c.sends {
		if is(s) {
			delete(c.sends, id)
			c.letGo(func() { c.links[s.rank].Recall(&s.transfer) }, func() { s.end(err) })
		}
	}
}

// letGo calls free, which may take a while, and then done with the lock held.
func (c *Comm) letGo(free, done func()) {
	c.freeing++
	c.engine.wg.Go(func() {
		free()
		c.mu.Lock()
		defer c.mu.Unlock()
		done()
		c.freeing--
		c.quiet.Broadcast()
	})
}
