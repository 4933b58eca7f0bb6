package engine

import (
	"github.com/nexar-go/nexar/internal/trace"
	"github.com/nexar-go/nexar/internal/wire"
)

// What is recorded of a message says which side of it this rank is.
const (
	sent uint8 = iota
	received
	probed
)

// A pastMessage is one that has ended, or under way if ended is 0.
type pastMessage struct {
	what         uint8
	typ          uint8
	peer         int32 // p2p.Any is -1
	tag          int64
	bytes        int64
	begun, ended int64
	err          error
}

// noteMessage is where a message that has ended is recorded, every field of it, or
// nil if it is not. It is called with the lock held.
func (c *Comm) noteMessage() *pastMessage {
	if c.about == nil {
		return nil
	}
	return c.pastMessages.Put()
}

// noteSent records a message whose receiver had to grant it.
func (c *Comm) noteSent(s *Sending, err error) {
	if m := c.noteMessage(); m != nil {
		m.what, m.typ, m.peer, m.tag, m.bytes = sent, s.typ, int32(s.rank), s.tag, int64(s.size)
		m.begun, m.ended, m.err = s.begun, c.stampEnd(s.begun), err
	}
}

// noteReceived records a receive.
func (c *Comm) noteReceived(r *Receive, err error) {
	m := c.noteMessage()
	if m == nil {
		return
	}
	m.what, m.typ, m.peer, m.tag, m.bytes = received, r.typ, int32(r.source), r.tag, int64(r.got.Bytes)
	m.begun, m.ended, m.err = r.begun, c.stampEnd(r.begun), err
	if err == nil {
		m.peer, m.tag = int32(r.got.Source), r.got.Tag
	}
}

// messagesUnderWay calls f for those that this rank waits for, or sends, with how
// many bytes of each have been moved. It is called with the lock held.
func (c *Comm) messagesUnderWay(f func(m pastMessage, moved int)) {
	for _, s := range c.sends {
		m := pastMessage{what: sent, typ: s.typ, peer: int32(s.rank), tag: s.tag, bytes: int64(s.size), begun: s.begun}
		f(m, c.links[s.rank].Delivering(&s.transfer))
	}
	c.eachReceiving(func(r *Receive) {
		m := pastMessage{what: received, typ: r.typ, peer: int32(r.got.Source), tag: r.got.Tag, bytes: int64(r.got.Bytes), begun: r.begun}
		f(m, r.from.Filling(&r.sink))
	})
	c.messages.EachReceive(func(r *Receive) {
		f(pastMessage{what: received, typ: r.typ, peer: int32(r.source), tag: r.tag, begun: r.begun}, 0)
	})
	for _, p := range c.probes {
		f(pastMessage{what: probed, peer: int32(p.source), tag: p.tag, begun: p.begun}, 0)
	}
}

func (c *Comm) messageTrace(m *pastMessage) Trace {
	t := c.newTrace(m.begun, m.ended)
	t.Op = [...]string{sent: "send", received: "recv", probed: "probe"}[m.what]
	t.Call = wire.Call{Type: m.typ, Count: uint64(m.bytes)}
	t.Tag, t.Bytes, t.End = m.tag, m.bytes, messageOutcome(m.err)
	if m.peer >= 0 {
		t.Peer = c.world(int(m.peer))[0]
	}
	return t
}

func messageOutcome(err error) string {
	switch err.(type) {
	case *SizeError, *TypeError, *RefusedError:
		return trace.Refused
	}
	return Outcome(err)
}
