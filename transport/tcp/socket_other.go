//go:build !unix

package tcp

// fillView reads into a buffer.
func (r *receiver) fillView() (int, error) {
	if r.view == nil {
		r.view = r.conn.t.views.Get().(*[viewBytes]byte)
	}
	n, err := r.readFlow(r.view[:])
	r.unread = r.view[:n]
	return n, err
}

func (r *receiver) newReadOnce() func(fd uintptr) bool { return nil }

// try writes nothing, as there is no way to do so without waiting. That leaves
// all to the flusher.
func (s *sender) tryWrite([]byte) (n int, full bool) { return 0, false }

func (s *sender) newWriteOnce() func(fd uintptr) { return nil }
