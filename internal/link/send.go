package link

import (
	"sync"

	"github.com/nexar-go/nexar/internal/wire"
)

// PromptMax is the length of the longest payload that is sent without a grant over every connection. Where the peer writes remotely, a
// grant takes less time than the copies of a longer one; through memory that holds for messages, not for steps.
const PromptMax = wire.PayloadMax / 2

// PrefersGrant reports whether a message of n bytes is offered to the peer although wire.PayloadMax allows it without a grant.
func (l *Link) PrefersGrant(n int) bool {
	p := l.payloadPath()
	return n > PromptMax && p != nil && (p.can.Lasting || p.can.RemoteMemory != nil)
}

// SendMessage sends m with a payload in one or more regions. The caller has taken credit for
// it. The payload may be used again when SendMessage returns.
func (l *Link) SendMessage(m wire.Message, payload []byte, more ...[]byte) {
	m.Length = size(payload, more)
	o := &l.exchange().data
	o.commitPayloadUnlock(messagesOf(m.Type), m.Append(o.lockBuffer(wire.FrameSizeMax+m.Length)), payload, more)
}

// SendStep is SendMessage for a step of a collective.
func (l *Link) SendStep(s wire.Step, payload []byte) {
	s.Length = len(payload)
	o := &l.exchange().data
	o.commitPayloadUnlock(Collective, s.AppendStep(o.lockBuffer(wire.FrameSizeMax+s.Length)), payload, nil)
}

// OfferMessage announces a message that needs a grant. The order of messages and offers is
// kept. The bulk lane opens meanwhile.
func (l *Link) OfferMessage(o wire.Offer) {
	l.exchange().data.postFor(messagesOf(o.Type), o.Append)
	l.OpenBulk()
}

// OfferStep asks for the grant of a step. The bulk lane opens meanwhile.
func (l *Link) OfferStep(s wire.Step) {
	l.exchange().data.postFor(Collective, s.AppendOffer)
	l.OpenBulk()
}

// Closed tells the peer that a communicator was closed. It arrives after all earlier messages
// and steps.
// A pending link keeps the frame. frame is an encoded [wire.Closed]: a node sends the same one over all its links.
func (l *Link) Closed(frame []byte) {
	l.postQuiet(func(b []byte) []byte { return append(b, frame...) })
}

// replies returns the lane for grants, refusals and credit: the data lane if it is on a second
// connection, which is faster. A reply there waits only for earlier frames, which the peer
// reads independently of its application.
func (l *Link) replies() *outbox {
	if l.fast.Load() {
		return &l.exchange().data
	}
	return &l.exchange().control
}

// GrantStep tells the peer the number of the grant for a step. If too many grants are open, it does so later.
func (l *Link) GrantStep(s wire.Step) {
	l.announce(s.Grant, s.AppendGrant)
}

// GrantOffer is GrantStep for a message that the peer has offered.
func (l *Link) GrantOffer(g wire.OfferGrant) {
	l.announce(g.Grant, g.Append)
}

// RefuseOffer tells the peer that a message it offered cannot be received.
func (l *Link) RefuseOffer(r wire.OfferRefuse) { l.replies().post(r.Append) }

// Query asks the peer for its progress in an operation that this node waits for.
func (l *Link) Query(p wire.Query) { l.exchange().control.postFor(Collective, p.Append) }

// answersMax is the number of pending bytes on the control lane above which requests of the
// peer are not answered. The peer can repeat them when it reads.
const answersMax = 64 << 10

// answer sends the frame that add appends, unless too much is pending.
func (l *Link) answer(add func(b []byte) []byte) { l.exchange().control.postWithin(answersMax, add) }

// Answer answers a query. It drops the answer if the peer does not read.
func (l *Link) Answer(w wire.Where) { l.answer(w.Append) }

// Ask asks the peer for its calls that wait for other ranks.
func (l *Link) Ask(a wire.Ask) { l.exchange().control.post(a.Append) }

// AnswerAsk answers an Ask with an encoded list of waits. It drops the answer if the peer does not
// read.
func (l *Link) AnswerAsk(w wire.Waits, list []byte) {
	l.answer(func(b []byte) []byte { return w.Append(b, list) })
}

// Revoke tells the peer that a communicator was revoked. A pending link keeps the frame.
func (l *Link) Revoke(r wire.Revoke, text string) {
	l.exchange().control.postQuiet(func(b []byte) []byte { return r.Append(b, text) })
}

// Failed tells the peer that a node has failed.
func (l *Link) Failed(f wire.Failed, text string) {
	l.exchange().control.post(func(b []byte) []byte { return f.Append(b, text) })
}

// Gone tells the peer that a node has left.
func (l *Link) Gone(g wire.Gone) { l.exchange().control.post(g.Append) }

// Leaving tells the peer that a node leaves and only relays from now on.
func (l *Link) Leaving(f wire.Leaving) { l.exchange().control.post(f.Append) }

// viewsMax is the number of pending bytes on the control lane above which messages about views are
// dropped.
const viewsMax = 4 * wire.ViewMessageMax

// View sends a message about views, of at most wire.ViewMessageMax bytes. It reports false if the
// message was dropped, since the peer does not read.
func (l *Link) View(message []byte) bool {
	return l.exchange().control.postWithin(viewsMax, func(b []byte) []byte { return wire.View{}.Append(b, message) })
}

// Reason tells the peer that an operation of this node has failed with text, because of r.Node. The
// channel is closed when the peer has handled the frame, but not if the link ends first.
func (l *Link) Reason(r wire.Reason, text string) (confirmed <-chan struct{}) {
	return l.postConfirmed(func(b []byte) []byte { return r.Append(b, text) })
}

// ConfirmedPing sends a ping. The channel is closed when the peer has answered; if the link ends
// before, it never is.
func (l *Link) ConfirmedPing() (confirmed <-chan struct{}) {
	return l.postConfirmed(func(b []byte) []byte { return b })
}

// postConfirmed sends the frame that add appends, if any, and a ping behind it.
func (l *Link) postConfirmed(add func(b []byte) []byte) (confirmed <-chan struct{}) {
	x := l.exchange()
	number, confirmed := x.confirms.add()
	p := wire.Ping{Number: number}
	x.control.post(func(b []byte) []byte { return p.Append(add(b), wire.TypePing) })
	return confirmed
}

// confirms holds the pings with a waiter for the pong. The peer handles frames in order, so a pong
// confirms the frames before its ping. The number 0 is that of a heartbeat.
type confirms struct {
	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan struct{}
}

func (c *confirms) add() (number uint64, confirmed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		c.waiting = make(map[uint64]chan struct{})
	}
	c.last++
	done := make(chan struct{})
	c.waiting[c.last] = done
	return c.last, done
}

// take handles a pong.
func (c *confirms) take(number uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if done, ok := c.waiting[number]; ok {
		delete(c.waiting, number)
		close(done)
	}
}

// beat is a frame that needs no answer.
var beat = []byte{byte(wire.TypeBeat)}

// Beat sends a sign of life. Heard of the peer counts it, in shared memory after ReadLazy of the peer.
func (l *Link) Beat() { l.exchange().control.sendLazy(beat) }

// Ping makes the peer send a frame, which Heard counts.
func (l *Link) Ping() {
	var p wire.Ping
	l.exchange().control.post(func(b []byte) []byte { return p.Append(b, wire.TypePing) })
}

// pong answers a ping, and acknowledges what has arrived.
func (l *Link) pong(p wire.Ping) {
	l.answer(func(b []byte) []byte { return p.Append(b, wire.TypePong) })
	l.acknowledge()
}

// acknowledge tells the peer which frames were handled.
func (l *Link) acknowledge() {
	x := l.exchange()
	if a := l.attached.Load(); a == nil || a.first.lasts() || x.in[wire.Control].IsStated() && x.in[wire.Data].IsStated() {
		return
	}
	var room [transientRoom]byte
	l.replies().postTransient(x.appendAck(room[:0]))
}

// transientRoom is room for an acknowledgement of frames or of a payload.
const transientRoom = 32

func (x *exchange) appendAck(b []byte) []byte {
	f := wire.Ack{Control: x.in[wire.Control].State(), Data: x.in[wire.Data].State()}
	return f.Append(b)
}

// acknowledged handles an acknowledgement of the peer.
func (l *Link) acknowledged(a wire.Ack) error {
	x := l.exchange()
	if err := x.control.acknowledged(a.Control); err != nil {
		return err
	}
	return x.data.acknowledged(a.Data)
}
