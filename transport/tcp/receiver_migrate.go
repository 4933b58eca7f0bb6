package tcp

import (
	"math"
	"os"
	"slices"
	"sync/atomic"
)

// A receiverMigration is the state of a receiver for the migration of its pipe. Offsets
// count bytes as those of the sender do.
type receiverMigration struct {
	flow    atomic.Pointer[subflow] // the current subflow; changed only by the reading goroutine
	hasNext atomic.Bool             // next is not empty

	redialing atomic.Bool   // this side dials for the sender
	attached  chan struct{} // signals an addition to next

	// Used only by the reading goroutine:
	offset    uint64 // bytes read from all subflows
	skip      uint64 // bytes at the start of flow that were read from an earlier subflow
	viewLimit int    // maximum of the current fillView
	bounded   bool   // the last read was limited to the start of the next subflow

	next   []*subflow // subflows after the current one, in order
	parked []*subflow // subflows without their predecessor
}

// readFlow reads bytes of the stream that the sender has written to sockets. It blocks until it
// has some.
func (r *receiver) readFlow(p []byte) (n int, err error) {
	for {
		q := p[:min(len(p), r.readLimit())]
		r.wait(func() { n, err = r.flow.Load().sock.Read(q) })
		if n = r.countRead(q[:n]); n > 0 {
			return n, nil // the next read returns the error
		}
		if err = r.flowError(err); err != nil {
			return 0, err
		}
	}
}

// flowError handles a read without new bytes. It returns nil if the stream continues on
// another subflow, possibly after waiting for it, and otherwise the reason for its end. A
// tls.Conn must not see an error before that is certain, since it keeps errors.
func (r *receiver) flowError(err error) error {
	switch {
	case err == nil, r.flowEnded(err):
		return nil
	case isTimeout(err) && !r.stopped.Load():
		return os.ErrDeadlineExceeded
	}
	return r.waitCause(err, r.attached)
}

// readLimit returns the number of bytes that may be read from the current subflow.
func (r *receiver) readLimit() int {
	r.bounded = false
	if !r.hasNext.Load() {
		return math.MaxInt32
	}
	most := r.nextFlow()
	r.bounded = most < math.MaxInt32
	return most
}

// flowEnded reports whether a read has failed only because another subflow follows: it
// was interrupted, or the sender has closed the current one.
func (r *receiver) flowEnded(err error) bool {
	switch {
	case !r.hasNext.Load():
		return false
	case isTimeout(err):
		return r.checkReadable() == nil
	}
	return !r.bounded
}

// follows reports whether the stream may continue on another subflow after the end of the current one. If the last
// read was limited, it may not: the bytes up to the start of the next subflow are on the current one only.
func (r *receiver) follows() bool {
	return !r.bounded && (r.hasNext.Load() || r.newest.Load() > uint64(r.flow.Load().serial))
}

// countRead records that p was read, and moves the new bytes to its front. It returns
// their number.
func (r *receiver) countRead(p []byte) int {
	n := len(p)
	if r.skip > 0 {
		k := int(min(r.skip, uint64(n)))
		copy(p, p[k:])
		n -= k
		r.skip -= uint64(k)
	}
	r.offset += uint64(n)
	return n
}

// nextFlow makes the next subflow the current one, if all bytes before it were read. It
// returns the number of bytes that may be read from the current one. Only the reading
// goroutine calls it.
func (r *receiver) nextFlow() (most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.next) > 0 {
		f := r.next[0]
		if f.start > r.offset {
			// The kernel has these bytes, so reading them does not block.
			r.poll.restoreDeadline()
			return int(min(f.start-r.offset, math.MaxInt32-1))
		}
		r.next = r.next[1:]
		old := r.flow.Load()
		r.skip = r.offset - f.start
		r.broken = breakage{}
		r.drained.Store(false)
		r.poll.setFlow(f)
		old.endRead()
		_, _ = f.sock.Write([]byte{yes})
	}
	r.hasNext.Store(false)
	r.poll.restoreDeadline() // set by setDeadline
	return math.MaxInt32
}

// flowsMax is the number of subflows of a pipe that wait for their turn. The peer makes them.
const flowsMax = 16

// attach adds a subflow to the pipe. It reports false if the pipe cannot use it.
func (r *receiver) attach(f *subflow) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure != nil || len(r.next)+len(r.parked) >= flowsMax {
		return false
	}
	for _, other := range r.parked {
		if other.serial == f.serial {
			return false
		}
	}
	r.parked = append(r.parked, f)
	slices.SortFunc(r.parked, func(a, b *subflow) int { return int(int64(a.serial) - int64(b.serial)) })
	if r.ps != nil {
		r.arrangeLocked() // otherwise setSocket does
	}
	return true
}

// arrangeLocked moves parked subflows into next as far as their predecessors have
// arrived.
func (r *receiver) arrangeLocked() {
	var parked []*subflow
	for _, f := range r.parked {
		current := r.flow.Load().serial
		last := current
		if len(r.next) > 0 {
			last = r.next[len(r.next)-1].serial
		}
		switch {
		case f.serial <= last: // replaced by a later one
			f.sock.Close()
		case f.after > last:
			parked = append(parked, f)
		default:
			// f replaces the subflows after its predecessor.
			for len(r.next) > 0 && r.next[len(r.next)-1].serial > f.after {
				r.next[len(r.next)-1].sock.Close()
				r.next = r.next[:len(r.next)-1]
			}
			r.next = append(r.next, f)
			r.hasNext.Store(true)
			r.poll.interrupt()
			select {
			case r.attached <- struct{}{}:
			default:
			}
			_, _ = f.sock.Write([]byte{yes}) // does not block: there is room for both confirmations
		}
	}
	r.parked = parked
}
