package tcp

import (
	"slices"
	"time"
)

// oldsMax is how many sockets of a pipe the peer may still have to read from: each can
// hold as much as its kernel takes.
const oldFlowsMax = 8

// A moved is the state of a sender that goes on with another socket. All offsets are
// those of the stream of the pipe: of the bytes written to sockets, TLS records included.
//
// Only the user of the socket, one Write, Try or flusher at a time, uses wrote, copies
// and copying. The lock of the sender guards all else.
type senderMigration struct {
	written uint64   // bytes
	copies  copyRing // the last of them, which may be unacknowledged
	copying bool     // all bytes written since it was set are acknowledged or in copies

	wantsSpare   bool          // to be given another socket
	changed      chan struct{} // has something after a change that awaitSpare waits for
	spare        *subflow      // to be used from now on; nil if there is none
	oldFlows     []*subflow    // the peer may still have bytes of these to read
	serial       uint32        // of the last move
	endAnnounced bool
}

// note records that p was written to the socket. On a lossy path it copies what the
// peer has not acknowledged.
func (s *sender) recordWritten(p []byte) {
	s.written += uint64(len(p))
	if !s.mustCopy() {
		s.copying, s.copies = false, copyRing{}
		return
	}
	s.copying = true
	if len(p) >= queryBytes || len(p) > s.copies.free() {
		// Often most of p is acknowledged already, and need not be copied.
		unacked := s.unacked(s.copies.n + len(p))
		s.copies.keep(max(0, unacked-len(p)))
		p = p[max(0, len(p)-unacked):]
	}
	s.copies.add(p)
}

// keepsCopies reports whether bytes must be kept that are written.
func (s *sender) mustCopy() bool { return s.conn.lossy.Load() || s.flow.unconfirmed.Load() }

// notePieces is note of the first n bytes of pieces.
func (s *sender) recordWrittenPieces(pieces [][]byte, n int) {
	if !s.mustCopy() {
		s.recordUncopied(n)
		return
	}
	for _, p := range pieces {
		k := min(n, len(p))
		s.recordWritten(p[:k])
		n -= k
	}
}

// forget is note of n bytes that are not kept.
func (s *sender) recordUncopied(n int) {
	s.written += uint64(n)
	s.copying, s.copies = false, copyRing{}
}

// write writes p, and goes on with it if the pipe moves meanwhile.
func (s *sender) writePlain(p []byte) (n int, err error) {
	for {
		m, err := s.flow.sock.Write(p[n:])
		s.recordWritten(p[n : n+m])
		n += m
		if err == nil || !s.continueAfter(err) {
			return n, err
		}
		if err := s.sendUnsent(); err != nil || n == len(p) {
			return n, err
		}
	}
}

// goesOn reports whether a write was interrupted only because there is a spare subflow,
// or there will be one because the peer has dropped the current one. The pipe has then
// moved to it, and rest begins with the bytes to be sent again.
func (s *sender) continueAfter(err error) bool {
	if !isTimeout(err) {
		return s.flow.unconfirmed.Load() && s.waitSpare(false)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.failure != nil || s.spare == nil {
		return false
	}
	s.useSpareLocked()
	return true
}

// awaitSpare moves the pipe when there is a spare subflow. It returns false if the pipe has
// ended before, or the Write that calls it must end. With flushing it returns false when
// a Write begins, and ignores the deadline. Only the user of the socket calls it.
func (s *sender) waitSpare(flushing bool) bool {
	for {
		s.mu.Lock()
		deadline := s.deadline
		over := s.failure != nil || s.closed || !deadline.IsZero() && !time.Now().Before(deadline)
		if flushing {
			deadline, over = time.Time{}, s.failure != nil || s.writing
		}
		spare := s.spare != nil && !over
		if spare {
			s.useSpareLocked()
		}
		s.mu.Unlock()
		if over || spare {
			return spare
		}
		s.waitChange(deadline)
	}
}

// awaitChange waits until something has changed for awaitSpare, or for the deadline.
func (s *sender) waitChange(deadline time.Time) {
	var late <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-s.changed:
	case <-late:
	}
}

// change wakes awaitSpare.
func (s *sender) notifyChange() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// wantMove has takeOver accept a socket, unless the pipe cannot use one. It reports
// whether the pipe wants one, and whether that is new.
func (s *sender) requestSpare() (wanted, begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.wantsSpare
	// Nothing counts of those that the peer never had.
	s.oldFlows = slices.DeleteFunc(s.oldFlows, func(old *subflow) bool {
		failed := old.failed.Load()
		if failed {
			old.endWrite()
		}
		return failed
	})
	s.wantsSpare = s.spare == nil && s.flow != nil && len(s.oldFlows) < oldFlowsMax
	return s.wantsSpare, s.wantsSpare && !was
}

// unwantMove ends that.
func (s *sender) cancelSpareRequest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wantsSpare = false
}

// takeOver gives the pipe another socket. The caller waits for the peer's word on it,
// and calls confirm.
func (s *sender) setSpare(f *subflow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil || !s.wantsSpare {
		f.sock.Close() // Another socket was quicker.
		return
	}
	s.wantsSpare, s.spare = false, f
	s.notifyChange()
	if s.writing || s.flushDone != nil {
		s.flow.setWriteDeadline(past()) // The interrupted Write or flusher moves the pipe.
		return
	}
	s.useSpareLocked()
	s.releaseLocked()
}

// move makes the spare subflow the current one, if there is a spare. Bytes that the
// peer's kernel may not have are sent again, before rest. The user of the socket calls
// it with s.mu held, and finds the deadline of the pipe set.
func (s *sender) useSpareLocked() {
	f := s.spare
	s.spare = nil
	if f == nil {
		return
	}
	if s.failure != nil {
		f.sock.Close()
		return
	}
	defer func() { s.flow.setWriteDeadline(s.deadline) }()
	old := s.flow
	unacked := s.unacked(int(s.written - old.start))
	if unacked > s.copies.n || unacked > 0 && !s.copying {
		f.sock.Close() // Some was written before the path was lossy: there is no copy of it.
		return
	}
	s.serial++
	f.serial, f.after, f.start = s.serial, old.serial, s.written-uint64(unacked)
	if old.serial > 0 && f.start == old.start {
		f.after = old.after // Nothing of it counts.
	}
	if _, err := f.sock.Write(f.header()); err != nil {
		f.sock.Close()
		return
	}
	again := s.copies.last(make([]byte, 0, unacked+len(s.unsent)), unacked)
	s.unsent = append(again, s.unsent...)
	s.copies.keep(0)
	s.written = f.start
	s.oldFlows = append(s.oldFlows, old)
	s.flow = f
	s.conn.t.cfg.Log.Debug("tcp: moved a pipe to another socket", "peer", s.conn.peer, "pipe", s.id, "at", f.start, "again", unacked)
}

// unacked is how many of the last bytes written, at most most, the peer's kernel may
// not have.
func (s *sender) unacked(most int) int {
	if s.flow.unconfirmed.Load() {
		return most
	}
	n := s.flow.unacked(most)
	if f := s.conn.t.overstateUnacked; f != nil {
		n = f(n, most)
	}
	return n
}

// confirm is called when the peer reads from a subflow. Those before it are not needed
// any more: the peer's kernel has all that it still reads from them.
func (s *sender) confirm(f *subflow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keep := s.oldFlows[:0]
	for _, old := range s.oldFlows {
		if old.serial < f.serial {
			old.endWrite()
		} else {
			keep = append(keep, old)
		}
	}
	s.oldFlows = keep
}

// endMoves closes the sockets besides the current one. It is called with s.mu held.
func (s *sender) closeSparesLocked() {
	for _, f := range s.oldFlows {
		f.endWrite()
	}
	s.oldFlows = nil
	if s.spare != nil {
		s.spare.sock.Close()
		s.spare = nil
	}
}
