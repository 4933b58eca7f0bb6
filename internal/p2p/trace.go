package p2p

import (
	"github.com/nexar-go/nexar/internal/recorder"
	"github.com/nexar-go/nexar/trace"
)

// The kinds of calls.
const (
	Sent uint8 = iota
	Got
	Probed
)

// A Trace describes a send, receive or probe that has ended or is in progress.
type Trace struct {
	Kind         uint8 // Sent, Got or Probed
	Type         uint8 // kernel.Type of the elements
	Idle         bool  // in progress, and no goroutine waits for it
	Peer         int32 // the other rank, or Any
	Tag          int64
	Bytes        int64
	Order        uint32 // of the message among those between its two ranks, from 1; 0: not known yet
	Begun, Ended int64  // by Config.Clock
	Err          error
}

// Counts returns the counters of sends and receives that have ended while tracing was on, by their kind.
func (m *Messages) Counts() [2]trace.Counter {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts
}

// SetTracing turns the tracing of messages on or off. It is off at first.
func (m *Messages) SetTracing(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tracing = on
}

// orderLocked counts a message that was sent to a rank, or has arrived from it, and returns its number.
func (m *Messages) orderLocked(rank int, kind uint8) uint32 {
	if m.orders == nil {
		m.orders = make([][Probed]uint32, len(m.links))
	}
	m.orders[rank][kind]++
	return m.orders[rank][kind]
}

// stampLocked returns the time, for the beginning of a call, or 0 if tracing is off.
func (m *Messages) stampLocked() int64 {
	if !m.tracing {
		return 0
	}
	return m.cfg.Clock.Stamp()
}

// stampEndLocked returns the time, for the end of a call, or 0 if tracing is off.
func (m *Messages) stampEndLocked(begun int64) int64 {
	if !m.tracing {
		return 0
	}
	return m.cfg.Clock.StampEnd(begun)
}

// traceLocked keeps the trace of a send or receive that has ended. It writes the fields in place,
// since a copy would take longer.
func (m *Messages) traceLocked(kind, typ uint8, peer int, tag int64, bytes int, order uint32, begun, ended int64, err error) {
	if !m.tracing {
		return
	}
	recorder.Count(&m.counts[kind], int64(bytes), err == nil)
	p := m.past.Put()
	p.Kind, p.Type, p.Peer, p.Tag, p.Bytes, p.Order = kind, typ, int32(peer), tag, int64(bytes), order
	p.Begun, p.Ended, p.Err = begun, ended, err
}

func (m *Messages) traceReceiveLocked(r *Receive, err error) {
	peer, tag := r.source, r.tag
	if err == nil {
		peer, tag = r.got.Source, r.got.Tag
	}
	m.traceLocked(Got, r.typ, peer, tag, r.got.Bytes, r.order, r.begun, m.stampEndLocked(r.begun), err)
}

// Traces calls f for the latest sends and receives that have ended, and for all calls in progress.
// moved is the number of bytes that have been sent or received. f must not call methods of m.
func (m *Messages) Traces(f func(r *Trace, moved int64, isActive bool)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.past.Each(func(r *Trace) { f(r, r.Bytes, false) })
	for _, s := range m.sends {
		f(&Trace{Kind: Sent, Type: s.typ, Idle: !s.waiters.Any(), Peer: int32(s.rank), Tag: s.tag, Bytes: int64(s.size), Order: s.order, Begun: s.begun},
			int64(m.links[s.rank].Delivering(&s.transfer)), true)
	}
	for _, r := range m.receiving {
		if r.prefetch != nil {
			if r = r.prefetch.taker; r == nil {
				continue
			}
		}
		f(&Trace{Kind: Got, Type: r.typ, Idle: !r.waiters.Any(), Peer: int32(r.got.Source), Tag: r.got.Tag, Bytes: int64(r.got.Bytes), Order: r.order, Begun: r.begun},
			r.movedLocked(), true)
	}
	m.matcher.EachReceive(func(r *Receive) {
		f(&Trace{Kind: Got, Type: r.typ, Idle: !r.waiters.Any(), Peer: int32(r.source), Tag: r.tag, Begun: r.begun}, 0, true)
	})
	for _, p := range m.probes {
		f(&Trace{Kind: Probed, Peer: int32(p.source), Tag: p.tag, Begun: p.begun}, 0, true)
	}
}
