package tcp

import (
	"slices"
	"time"
)

// oldFlowsMax limits the previous subflows of a pipe that the peer may not have read yet:
// each can hold as much data as its kernel buffers.
const oldFlowsMax = 8

// requestTimeout is the time for which the last request for another socket delays the end of a conn with a broken
// one. While a socket stalls, the monitor repeats the request every second.
const requestTimeout = 5 * time.Second

// A senderMigration is the state of a sender for its migration to other sockets. Offsets
// count the bytes that the pipe has written to sockets, TLS records included.
//
// Only the user of the socket, one Write, Try method or flusher at a time, accesses
// written, copies and copying. The mutex of the sender guards the rest.
type senderMigration struct {
	written uint64   // offset after the last byte
	copies  copyRing // the last bytes, as far as they may be unacknowledged
	copying bool     // all bytes written since it was set are acknowledged or in copies

	wantsSpare   bool          // setSpare accepts a subflow
	requested    time.Time     // when it was requested last
	changed      chan struct{} // signals a change that waitSpare waits for
	spare        *subflow      // the next subflow, or nil
	oldFlows     []*subflow    // previous subflows that the peer may not have read yet
	serial       uint32        // of the current subflow
	endAnnounced bool
}

// recordWritten records that p was written to the socket. On a lossy path it copies the
// part that the peer has not acknowledged.
func (s *sender) recordWritten(p []byte) {
	if !s.mustCopy() {
		s.recordUncopied(len(p))
		return
	}
	s.written += uint64(len(p))
	s.copying = true
	if len(p) >= queryBytes || len(p) > s.copies.free() {
		// Often most of p is acknowledged already.
		unacked := s.unacked(s.copies.n + len(p))
		s.copies.keep(max(0, unacked-len(p)))
		p = p[max(0, len(p)-unacked):]
	}
	s.copies.add(p)
}

// mustCopy reports whether to copy unacknowledged bytes.
func (s *sender) mustCopy() bool { return s.conn.lossy.Load() || s.flow.unconfirmed.Load() }

// recordWrittenPieces records that the first n bytes of pieces were written.
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

// recordUncopied records that n bytes were written without a copy.
func (s *sender) recordUncopied(n int) {
	s.written += uint64(n)
	if s.copying {
		s.copying, s.copies = false, copyRing{}
	}
}

// writePlain writes p to the current subflow, and continues on the next one if the pipe
// migrates meanwhile.
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

// continueAfter reports whether a write can continue after err, because the pipe has
// migrated: a spare subflow has interrupted the write, or the current subflow has failed
// and a spare one has come. It waits for the spare one if the pipe is about to migrate.
// The bytes to be sent again are in unsent then.
func (s *sender) continueAfter(err error) bool {
	if !isTimeout(err) {
		return s.migrates() && s.waitSpare(false)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.failure != nil || s.spare == nil {
		return false
	}
	s.useSpareLocked()
	return true
}

// waitSpare waits for a spare subflow and migrates the pipe to it. It returns false if
// the pipe ends first, its deadline passes, or it is no longer about to migrate. With flushing
// it ignores these, except for the end, and returns false when a Write begins. Only the user of
// the socket calls it.
func (s *sender) waitSpare(flushing bool) bool {
	for {
		s.mu.Lock()
		until := time.Now().Add(migrateRetry) // A request can expire.
		if !s.deadline.IsZero() && s.deadline.Before(until) {
			until = s.deadline
		}
		over := s.failure != nil || s.closed || !s.migratesLocked() || !until.After(time.Now())
		if flushing {
			until, over = time.Time{}, s.failure != nil || s.writing
		}
		spare := s.spare != nil && !over
		if spare {
			s.useSpareLocked()
		}
		s.mu.Unlock()
		if over || spare {
			return spare
		}
		s.waitChange(until)
	}
}

// waitChange waits for notifyChange or the deadline.
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

// notifyChange wakes waitSpare.
func (s *sender) notifyChange() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// requestSpare makes setSpare accept a subflow, unless the pipe cannot use one. It
// reports whether the pipe wants one, and whether this is the first request.
func (s *sender) requestSpare() (wanted, begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.wantsSpare
	// The peer never had those that failed, and does not read them.
	s.oldFlows = slices.DeleteFunc(s.oldFlows, func(old *subflow) bool {
		failed := old.failed.Load()
		if failed {
			old.endWrite()
		}
		return failed
	})
	if s.wantsSpare = s.spare == nil && s.flow != nil && len(s.oldFlows) < oldFlowsMax; s.wantsSpare {
		s.requested = time.Now()
	}
	return s.wantsSpare, s.wantsSpare && !was
}

// newestSerial returns the number of the current subflow, or of the next one.
func (s *sender) newestSerial() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.migratesLocked() {
		return uint64(s.serial) + 1
	}
	return uint64(s.serial)
}

// migrates reports whether the pipe is about to migrate.
func (s *sender) migrates() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.migratesLocked()
}

// migratesLocked is migrates. The peer may have failed to dial, so a request counts for requestTimeout. If the current subflow fails before
// the peer has confirmed it, the monitor requests another one.
func (s *sender) migratesLocked() bool {
	return s.spare != nil || s.flow != nil && s.flow.unconfirmed.Load() || s.wantsSpare && time.Since(s.requested) < requestTimeout
}

// cancelSpareRequest undoes requestSpare.
func (s *sender) cancelSpareRequest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wantsSpare = false
	s.notifyChange()
}

// setSpare gives the pipe another subflow. The caller waits until the peer reads from it
// and calls confirm.
func (s *sender) setSpare(f *subflow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil || !s.wantsSpare {
		f.sock.Close() // another one came first
		return
	}
	s.wantsSpare, s.spare = false, f
	s.notifyChange()
	if s.writing || s.flushDone != nil {
		s.flow.setWriteDeadline(past()) // the interrupted Write or flusher migrates the pipe
		return
	}
	s.useSpareLocked()
	s.releaseLocked()
}

// useSpareLocked makes the spare subflow the current one, if there is one. Bytes that the
// kernel of the peer may not have are put before unsent. Only the user of the socket
// calls it. It sets the write deadline to that of the pipe.
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
		f.sock.Close() // bytes from before the path was lossy have no copy
		return
	}
	s.serial++
	f.serial, f.after, f.start = s.serial, old.serial, s.written-uint64(unacked)
	if old.serial > 0 && f.start == old.start {
		f.after = old.after // all of the old subflow is sent again
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
	s.conn.t.cfg.Log.Debug("tcp: migrated a pipe to another socket", "peer", s.conn.peer, "pipe", s.id, "offset", f.start, "resent", unacked)
}

// unacked returns the number of last written bytes that the kernel of the peer may lack, at
// most the given number.
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

// confirm is called when the peer reads from a subflow. It closes the previous ones,
// since the kernel of the peer has all that is still read from them.
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

// closeSparesLocked closes all subflows but the current one.
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
