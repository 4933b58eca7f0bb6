package recorder

import (
	"sync"
	"time"

	"github.com/nexar-go/nexar/trace"
)

// A Log records operations that take a lock and two reads of the clock without loss, such
// as calls over the network. The zero Log is empty.
type Log struct {
	mu      sync.Mutex
	running []trace.Operation // elements without Op are free
	free    []int             // their indices
	ended   Ring[trace.Operation]
	counter trace.Counter
}

// functionMax bounds the name of a function, in bytes.
const functionMax = 64

// Call records the start of a call of a function of rank peer, with the length of its
// arguments in bytes. The index is for End.
func (l *Log) Call(comm, epoch uint64, peer int, fn string, bytes int) (index int) {
	return l.Begin(trace.Operation{
		Comm: CommName(comm), Epoch: epoch, Op: "call", Function: fn, Root: -1, Peer: peer, Bytes: int64(bytes),
	})
}

// Begin records an operation that starts now. The index is for End.
func (l *Log) Begin(o trace.Operation) (index int) {
	o.Start, o.Function = time.Now(), o.Function[:min(len(o.Function), functionMax)]
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.free); n > 0 {
		index, l.free = l.free[n-1], l.free[:n-1]
		l.running[index] = o
		return index
	}
	l.running = append(l.running, o)
	return len(l.running) - 1
}

// End records the outcome of an operation, and adds to its bytes.
func (l *Log) End(index int, outcome string, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := &l.running[index]
	o.Duration, o.Outcome, o.Bytes = time.Since(o.Start), outcome, o.Bytes+int64(bytes)
	*l.ended.Put() = *o
	l.counter.Op = o.Op
	if Count(&l.counter, o.Bytes, outcome == trace.OK); outcome == trace.OK {
		CountDuration(&l.counter.Durations, o.Duration, 1)
	}
	*o = trace.Operation{}
	l.free = append(l.free, index)
}

// Counters returns the counter of the operations that have ended, or nothing.
func (l *Log) Counters() []trace.Counter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counter.Calls == 0 {
		return nil
	}
	c := trace.Counter{Op: l.counter.Op}
	Merge(&c, &l.counter)
	return []trace.Counter{c}
}

// Operations returns the running operations and the last completed ones. A running
// operation waits for its Peer.
func (l *Log) Operations() (list []trace.Operation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended.Each(func(o *trace.Operation) { list = append(list, *o) })
	for _, o := range l.running {
		if o.Op == "" {
			continue
		}
		o.Duration = time.Since(o.Start)
		SetWaiting(&o, []int{o.Peer})
		list = append(list, o)
	}
	return list
}
