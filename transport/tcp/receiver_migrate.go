package tcp

import (
	"math"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// A moves is the state of a receiver that goes on with another socket. All offsets are those
// of the stream of the pipe, as the sender counts them.
type receiverMigration struct {
	flow    atomic.Pointer[subflow] // the current subflow; the goroutine that reads changes it
	hasNext atomic.Bool             // there is something in next

	redialing atomic.Bool   // this side dials for the sender
	attached  chan struct{} // has something after a subflow came into next

	// Of the goroutine that reads.
	offset    uint64 // bytes, from all subflows
	skip      uint64 // bytes of in to come that have been read from an earlier subflow
	viewLimit int    // of fillView
	bounded   bool   // another subflow follows where the last read had to end

	next   []*subflow // follow in, in this order
	parked []*subflow // follow one that has not come yet
}

// readFlow waits for bytes of the pipe, as the sender has written them to a socket.
func (r *receiver) readFlow(p []byte) (n int, err error) {
	for {
		q := p[:min(len(p), r.readLimit())]
		n, err = r.flow.Load().sock.Read(q)
		if n = r.countRead(q[:n]); n > 0 {
			return n, nil // An error comes again without bytes.
		}
		if err = r.flowError(err); err != nil {
			return 0, err
		}
	}
}

// endOfFlow is called when a read has returned no new bytes. It returns nil if the pipe goes
// on: with another subflow, which may have to come first. Otherwise it says why nothing
// more can be read. A tls.Conn must not get an error before that is certain, as it
// remembers errors.
func (r *receiver) flowError(err error) error {
	switch {
	case err == nil, r.flowEnded(err):
		return nil
	case isTimeout(err) && !r.stopped.Load():
		return os.ErrDeadlineExceeded
	}
	return r.waitCause(err, r.attached)
}

// room is how much may be read at most from the current subflow.
func (r *receiver) readLimit() int {
	r.bounded = false
	if !r.hasNext.Load() {
		return math.MaxInt32
	}
	most := r.nextFlow()
	r.bounded = most < math.MaxInt32
	return most
}

// outdated reports whether a read has failed only because another subflow follows:
// it was interrupted, or the sender has closed the old one.
func (r *receiver) flowEnded(err error) bool {
	switch {
	case !r.hasNext.Load():
		return false
	case isTimeout(err):
		return r.checkReadable() == nil
	}
	return !r.bounded
}

// took takes note of bytes that were read, and moves those of them to the front that
// are new. It returns how many these are.
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

// turn makes the next subflow the one that is read from, if all before it was read. It
// returns how much may be read at most from the one that is current then. The
// goroutine that reads calls it.
func (r *receiver) nextFlow() (most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.next) > 0 {
		f := r.next[0]
		if f.start > r.offset {
			// The kernel has these bytes: reading them does not wait.
			r.poll.restoreDeadline()
			return int(min(f.start-r.offset, math.MaxInt32-1))
		}
		r.next = r.next[1:]
		old := r.flow.Load()
		r.skip = r.offset - f.start
		r.brokenAt = time.Time{}
		r.poll.setFlow(f)
		old.endRead()
		f.sock.Write([]byte{yes})
	}
	r.hasNext.Store(false)
	r.poll.restoreDeadline() // for limit
	return math.MaxInt32
}

// attach adds a subflow that the sender has moved to. It reports false if the subflow
// is of no use.
func (r *receiver) attach(f *subflow) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure != nil {
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
		r.arrangeLocked() // otherwise bind does
	}
	return true
}

// arrange puts parked subflows in their places. It is called with the lock held.
func (r *receiver) arrangeLocked() {
	var parked []*subflow
	for _, f := range r.parked {
		current := r.flow.Load().serial
		last := current
		if len(r.next) > 0 {
			last = r.next[len(r.next)-1].serial
		}
		switch {
		case f.serial <= last: // A later one has taken its place.
			f.sock.Close()
		case f.after > last:
			parked = append(parked, f)
		default:
			// Those behind the one that it follows have nothing that counts.
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
			f.sock.Write([]byte{yes}) // has room for two bytes: this is the first
		}
	}
	r.parked = parked
}
