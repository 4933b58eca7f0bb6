package link

import (
	"fmt"

	"github.com/nexar-go/nexar/internal/wire"
)

// TakeCredit reports whether n bytes of payload may be sent without a grant,
// and takes them off the credit if so.
func (l *Link) TakeCredit(c wire.Class, n int) bool {
	charge := int64(n + frameCharge)
	for {
		have := l.credit[c].Load()
		if have < charge {
			return false
		}
		if l.credit[c].CompareAndSwap(have, have-charge) {
			return true
		}
	}
}

// Consumed gives the peer its credit for n bytes of payload back, once enough
// has come together to be worth a frame.
func (l *Link) Consumed(c wire.Class, n int) {
	owed := l.owed[c].Add(int64(n + frameCharge))
	if owed < creditBytes/4 || !l.owed[c].CompareAndSwap(owed, 0) {
		return
	}
	l.unread[c].Add(-owed)
	f, o := wire.Credit{Class: c, Bytes: uint32(owed)}, l.replies()
	o.commit(f.Append(o.begin()))
}

// charge counts n bytes of payload that the peer has sent without a grant. The
// count is exact: what a peer may send again has been taken off before it is
// told so.
func (l *Link) charge(c wire.Class, n int) error {
	if l.unread[c].Add(int64(n+frameCharge)) > creditBytes {
		return fmt.Errorf("more data of class %d than its credit allows", c)
	}
	return nil
}

// restore takes credit back from the peer, which cannot have more to give than
// was taken.
func (l *Link) restore(f wire.Credit) error {
	if l.credit[f.Class].Add(int64(f.Bytes)) > creditBytes {
		return fmt.Errorf("more credit of class %d than was taken", f.Class)
	}
	return nil
}

// Keep counts a frame that costs no credit and that the Handler keeps. If the
// peer has sent too many of them, it ends the link and reports false.
func (l *Link) Keep() bool {
	if l.kept.Add(1) <= keptMax {
		return true
	}
	l.kept.Add(-1)
	l.Fail(fmt.Errorf("link: protocol error: %d offers, grants and probes that nobody has asked for", keptMax))
	return false
}

// Dropped says that the Handler no longer keeps a frame that was counted.
func (l *Link) Dropped() { l.kept.Add(-1) }

// SendMessage sends m with its payload, for which credit has been taken. The
// payload, of which there may be more behind the first, may be used again when
// it returns.
func (l *Link) SendMessage(m wire.Message, payload []byte, more ...[]byte) {
	m.Length = size(payload, more)
	l.data.commitWith(m.Append(l.data.begin()), payload, more)
}

// SendStep is SendMessage for a step of a collective.
func (l *Link) SendStep(s wire.Step, payload []byte) {
	s.Length = len(payload)
	l.data.commitWith(s.AppendStep(l.data.begin()), payload, nil)
}

// OfferMessage announces a message that needs a grant. It keeps its place
// among the messages sent before and after it.
func (l *Link) OfferMessage(o wire.Offer) { l.data.commit(o.Append(l.data.begin())) }

// OfferStep asks for the grant of a step.
func (l *Link) OfferStep(s wire.Step) { l.data.commit(s.AppendOffer(l.data.begin())) }

// Closed tells the peer that a communicator was closed. It comes behind all
// messages and steps that were sent before.
func (l *Link) Closed(c wire.Closed) { l.data.commit(c.Append(l.data.begin())) }

// replies is where this node says what becomes of payloads of the peer: on the
// data lane, if that has a connection of its own, which is then the faster one.
// There too it waits for nothing but what was sent before, which is read
// whatever the application does. The goodbye of the lane is its last frame.
func (l *Link) replies() *outbox {
	if l.fast.Load() {
		return &l.data
	}
	return &l.control
}

// GrantStep tells the peer the number of the grant for a step.
func (l *Link) GrantStep(s wire.Step) {
	o := l.replies()
	o.commit(s.AppendGrant(o.begin()))
}

// GrantOffer tells the peer the number of the grant for a message it offered.
func (l *Link) GrantOffer(g wire.OfferGrant) {
	o := l.replies()
	o.commit(g.Append(o.begin()))
}

// RefuseOffer tells the peer that a message it offered cannot be received.
func (l *Link) RefuseOffer(r wire.OfferRefuse) {
	o := l.replies()
	o.commit(r.Append(o.begin()))
}

// Probe tells the peer that it is being waited for.
func (l *Link) Probe(p wire.Probe) { l.control.commit(p.Append(l.control.begin())) }

// answersMax is how many bytes may wait on the control lane before what the
// peer asks is no longer answered. It can ask again when it reads.
const answersMax = 64 << 10

// answer sends what add appends, unless too much waits already.
func (l *Link) answer(add func(b []byte) []byte) {
	b := l.control.begin()
	if len(b) < answersMax {
		b = add(b)
	}
	l.control.commit(b)
}

// Answer answers a probe. An answer to a peer that reads none gets lost.
func (l *Link) Answer(w wire.Where) { l.answer(w.Append) }

// Revoke tells the peer that a communicator is no longer of use.
func (l *Link) Revoke(r wire.Revoke, text string) {
	l.control.commit(r.Append(l.control.begin(), text))
}

// Failed tells the peer that a node has failed.
func (l *Link) Failed(f wire.Failed, text string) {
	l.control.commit(f.Append(l.control.begin(), text))
}

// Ping asks the peer for a sign of life; see Heard.
func (l *Link) Ping() {
	var p wire.Ping
	l.control.commit(p.Append(l.control.begin(), wire.TypePing))
}

func (l *Link) pong(p wire.Ping) {
	l.answer(func(b []byte) []byte { return p.Append(b, wire.TypePong) })
}
