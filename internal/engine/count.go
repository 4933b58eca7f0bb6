package engine

import (
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/recorder"
	"github.com/nexar-go/nexar/internal/wire"
)

// A Counter counts the calls of one kind on communicators with the same number of ranks.
type Counter struct {
	CallKind
	key                  uint32
	Plan                 uint8  // of the latest successful call, as in wire.Call
	Channels             uint16 // 0 before the first
	Calls, Failed, Bytes uint64
	Took                 recorder.Durations // see trace.Counter.Durations
	Waits                recorder.Waits     // for ranks of the world
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
	k.Calls++
	if op.err != nil {
		k.Failed++
		return
	}
	k.Bytes += uint64(len(op.work.Data))
	k.Plan, k.Channels = s.Plan, s.Channels
	switch {
	case !s.isTraced:
	case !op.work.Brief:
		k.Took.Add(time.Duration(s.ended-s.begun), 1)
	case s.Seq%timedEvery == 0:
		k.Took.Add(time.Duration(s.ended-s.begun), timedEvery)
	}
}

// waitedLocked notes that a running operation has waited for other ranks since the last check of the watchdog.
func (op *Op) waitedLocked(d time.Duration) {
	if c := op.comm; c.traced != nil {
		c.counterLocked(&op.call.Call).Waits.Add(d, c.worldRanksLocked(op.exec.WaitsForLocked()...))
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
	c.messageWaits[w.p2p.Kind].Add(d, c.worldRanksLocked(ranks...))
}

// Merge adds the numbers of o.
func (k *Counter) Merge(o *Counter) {
	if o.Channels > 0 {
		k.Plan, k.Channels = o.Plan, o.Channels
	}
	k.Calls, k.Failed, k.Bytes = k.Calls+o.Calls, k.Failed+o.Failed, k.Bytes+o.Bytes
	k.Took.Merge(&o.Took)
	k.Waits.Merge(&o.Waits)
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
	for kind, n := range c.messages.Counts() {
		if waits := c.messageWaits[kind]; n.Calls > 0 || waits.Sum > 0 {
			m.add(&Counter{CallKind: CallKind{Ranks: len(c.linkTo), Op: uint8(kind)}, Calls: n.Calls, Failed: n.Failed, Bytes: n.Bytes, Waits: waits})
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
