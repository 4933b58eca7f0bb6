package trace

import (
	"sync"
	"time"
)

// A Log records operations that have no better place. Its zero value is empty.
// With an operation come two looks at the clock and at a lock, which is nothing
// beside what crosses a network.
type Log struct {
	mu       sync.Mutex
	underWay []Operation // those that have no Op are free
	free     []int
	ended    Ring[Operation]
}

// functionMax is how long the name of a function is in a record, in bytes.
const functionMax = 64

// Call records that a call of a function of a rank begins now, with so many bytes
// of arguments. The place is for End.
func (l *Log) Call(comm, epoch uint64, peer int, fn string, bytes int) (place int) {
	return l.Begin(Operation{
		Comm: CommName(comm), Epoch: epoch, Op: "call", Function: fn, Root: -1, Peer: peer, Bytes: int64(bytes),
	})
}

// Begin records an operation that begins now. The place is for End.
func (l *Log) Begin(o Operation) (place int) {
	o.Began, o.Function = time.Now(), o.Function[:min(len(o.Function), functionMax)]
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.free); n > 0 {
		place, l.free = l.free[n-1], l.free[:n-1]
		l.underWay[place] = o
		return place
	}
	l.underWay = append(l.underWay, o)
	return len(l.underWay) - 1
}

// End records how an operation has ended, and with how many bytes more.
func (l *Log) End(place int, how string, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := &l.underWay[place]
	o.Took, o.End, o.Bytes = time.Since(o.Began), how, o.Bytes+int64(bytes)
	*l.ended.Put() = *o
	*o = Operation{}
	l.free = append(l.free, place)
}

// Operations are those under way and the last that have ended. An operation under
// way waits for its Peer.
func (l *Log) Operations() (list []Operation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended.Each(func(o *Operation) { list = append(list, *o) })
	for _, o := range l.underWay {
		if o.Op == "" {
			continue
		}
		o.Took = time.Since(o.Began)
		o.SetWaiting([]int{o.Peer})
		list = append(list, o)
	}
	return list
}
