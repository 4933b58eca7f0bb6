//go:build unix

package tcp

import (
	"io"
	"syscall"
)

// fillView reads into a view buffer. A receiver without data holds no buffer, unless a
// read waits that has read before.
func (r *receiver) fillView() (int, error) {
	if err := r.ps.raw.Read(r.readOnce); err != nil {
		return 0, err
	}
	return r.readN, r.readErr
}

func (r *receiver) newReadOnce() func(fd uintptr) bool {
	return func(fd uintptr) bool {
		idle := r.view == nil
		if idle {
			r.view = r.conn.t.views.Get().(*[viewBytes]byte)
		}
		n, err := syscall.Read(int(fd), r.view[:])
		for err == syscall.EINTR {
			n, err = syscall.Read(int(fd), r.view[:])
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
