package engine

import (
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/recorder"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
)

// A Counter counts the calls of one kind on communicators with the same number of ranks.
type Counter struct {
	CallKind
	key      uint32
	Plan     uint8         // of the latest successful call, as in wire.Call
	Channels uint16        // 0 before the first
	Sum      trace.Counter // without names
}

// A CallKind is the key of a counter. Kind and Op are those of wire.Call or, for a message, zero and p2p.Sent or p2p.Got.
type CallKind struct {
	Ranks    int
	Kind, Op uint8
	IsUneven bool
}

// counterLocked returns the counter of a call, which is mostly of the same kind as the one before.
func (c *Comm) counterLocked(call *wire.Call) *Counter {
	key := uint32(call.Kind) | uint32(call.Op)<<8 | uint32(call.Count>>63)<<16
	if k := c.counter; k != nil && k.key == key {
		return k
	}
	i := slices.IndexFunc(c.counters, func(k *Counter) bool { return k.key == key })
	if i < 0 {
		i = len(c.counters)
		c.counters = append(c.counters, &Counter{key: key, CallKind: CallKind{len(c.linkTo), call.Kind, call.Op, call.IsUneven()}})
	}
	c.counter = c.counters[i]
	return c.counter
}

// countLocked counts an operation that ends.
func (op *Op) countLocked() {
	s := op.call
	k := op.comm.counterLocked(&s.Call)
	recorder.Count(&k.Sum, int64(len(op.work.Data)), op.err == nil)
	if op.err != nil {
		return
	}
	k.Plan, k.Channels = s.Plan, s.Channels
	switch {
	case !s.isTraced:
	case !op.work.Brief:
		recorder.CountDuration(&k.Sum.Durations, time.Duration(s.ended-s.begun), 1)
	case s.Seq%timedEvery == 0:
		recorder.CountDuration(&k.Sum.Durations, time.Duration(s.ended-s.begun), timedEvery)
	}
}

// waitedLocked notes that a running operation has waited for other ranks since the last check of the watchdog.
func (op *Op) waitedLocked(d time.Duration) {
	if c := op.comm; c.traced != nil {
		recorder.CountWait(&c.counterLocked(&op.call.Call).Sum, d, c.worldRanksLocked(op.exec.WaitsForLocked()...))
	}
}

// countWait notes that a message has waited for another rank since the last check.
func (w *wait) countWait(d time.Duration) {
	c := w.comm
	if w.kind != wire.WaitSend && w.kind != wire.WaitRecv {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ranks := c.others()
	if peer := w.p2p.Peer; peer != p2p.Any {
		ranks = []int{peer}
	}
	recorder.CountWait(&c.messageWaits[w.p2p.Kind], d, c.worldRanksLocked(ranks...))
}

// Merge adds the numbers of o.
func (k *Counter) Merge(o *Counter) {
	if o.Channels > 0 {
		k.Plan, k.Channels = o.Plan, o.Channels
	}
	recorder.Merge(&k.Sum, &o.Sum)
}

// counters has counters by their kind.
type counters map[CallKind]*Counter

func (m counters) add(k *Counter) {
	if m[k.CallKind] == nil {
		m[k.CallKind] = &Counter{CallKind: k.CallKind}
	}
	m[k.CallKind].Merge(k)
}

// addCounters adds the counters of a communicator, unless nexar itself uses it.
func (c *Comm) addCounters(m counters) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.traced == nil || c.traced.Purpose != "" {
		return
	}
	for _, k := range c.counters {
		m.add(k)
	}
	for kind, sum := range c.messages.Counts() {
		if recorder.Merge(&sum, &c.messageWaits[kind]); sum.Calls > 0 || sum.Waited > 0 {
			m.add(&Counter{CallKind: CallKind{Ranks: len(c.linkTo), Op: uint8(kind)}, Sum: sum})
		}
	}
}

// Counters returns the counters of all communicators, also of those that are closed.
func (e *Engine) Counters() map[CallKind]*Counter {
	all := make(counters)
	e.mu.RLock()
	for _, k := range e.past {
		all.add(k)
	}
	comms := e.appendCommsLocked(nil)
	e.mu.RUnlock()
	for _, c := range comms {
		c.addCounters(all)
	}
	return all
}
