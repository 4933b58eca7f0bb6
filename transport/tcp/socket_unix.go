//go:build unix

package tcp

import (
	"io"
	"syscall"
)

// fillView reads into a buffer. While there is nothing to be read, only a call
// that has read before holds one: idle pipes have none.
func (r *receiver) fillView() (int, error) {
	for {
		r.most = min(r.room(), viewBytes)
		n, err := 0, r.in.Load().raw.Read(r.readOnce)
		if err == nil {
			n, err = r.took(r.has), r.readErr
			r.has = r.has[:n]
		}
		if n > 0 {
			return n, nil
		}
		if err = r.endOfFlow(err); err != nil {
			return 0, err
		}
	}
}

func (r *receiver) reader() func(fd uintptr) bool {
	return func(fd uintptr) bool {
		idle := r.view == nil
		if idle {
			r.view = r.conn.t.views.Get().(*[viewBytes]byte)
		}
		n, err := syscall.Read(int(fd), r.view[:r.most])
		for err == syscall.EINTR {
			n, err = syscall.Read(int(fd), r.view[:r.most])
		}
		r.readN, r.readErr = max(n, 0), err
		r.has = r.view[:r.readN]
		if idle && r.readN == 0 {
			r.putBack()
		}
		if n == 0 && err == nil {
			r.readErr = io.EOF
		}
		return err != syscall.EAGAIN
	}
}

// try writes as much of p as the socket takes, and reports whether it takes
// nothing now.
func (s *sender) try(p []byte) (n int, full bool) {
	s.tryRest = p
	s.tryDone = 0
	err := s.out.raw.Control(s.tryOnce)
	s.tryRest = nil
	s.note(p[:s.tryDone])
	return s.tryDone, err != nil || s.tryDone == 0
}

func (s *sender) trier() func(fd uintptr) {
	return func(fd uintptr) {
		n, err := syscall.Write(int(fd), s.tryRest)
		for err == syscall.EINTR {
			n, err = syscall.Write(int(fd), s.tryRest)
		}
		s.tryDone = max(n, 0)
	}
}
