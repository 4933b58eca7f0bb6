//go:build unix

package tcp

import (
	"io"
	"syscall"
)

// fillView reads into a view buffer. A receiver without data holds no buffer, unless a
// read waits that has read before.
func (r *receiver) fillView() (int, error) {
	for {
		r.viewLimit = min(r.readLimit(), viewBytes)
		n, err := 0, r.flow.Load().raw.Read(r.readOnce)
		if err == nil {
			n, err = r.countRead(r.unread), r.readErr
			r.unread = r.unread[:n]
		}
		if n > 0 {
			return n, nil
		}
		if err = r.flowError(err); err != nil {
			return 0, err
		}
	}
}

func (r *receiver) newReadOnce() func(fd uintptr) bool {
	return func(fd uintptr) bool {
		idle := r.view == nil
		if idle {
			r.view = r.conn.t.views.Get().(*[viewBytes]byte)
		}
		n, err := syscall.Read(int(fd), r.view[:r.viewLimit])
		for err == syscall.EINTR {
			n, err = syscall.Read(int(fd), r.view[:r.viewLimit])
		}
		r.readN, r.readErr = max(n, 0), err
		r.unread = r.view[:r.readN]
		if idle && r.readN == 0 {
			r.releaseView()
		}
		if n == 0 && err == nil {
			r.readErr = io.EOF
		}
		return err != syscall.EAGAIN
	}
}

// tryWrite writes as much of p as the socket accepts, and reports whether it accepts
// nothing.
func (s *sender) tryWrite(p []byte) (n int, full bool) {
	s.tryBuf = p
	s.tryN = 0
	err := s.flow.raw.Control(s.writeOnce)
	s.tryBuf = nil
	s.recordWritten(p[:s.tryN])
	return s.tryN, err != nil || s.tryN == 0
}

func (s *sender) newWriteOnce() func(fd uintptr) {
	return func(fd uintptr) {
		n, err := syscall.Write(int(fd), s.tryBuf)
		for err == syscall.EINTR {
			n, err = syscall.Write(int(fd), s.tryBuf)
		}
		s.tryN = max(n, 0)
	}
}
