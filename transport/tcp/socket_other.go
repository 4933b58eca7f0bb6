//go:build !unix

package tcp

// fillView reads into a view buffer.
func (r *receiver) fillView() (int, error) {
	if r.view == nil {
		r.view = r.conn.t.views.Get().(*[viewBytes]byte)
	}
	n, err := r.readSocket(r.view[:])
	r.unread = r.view[:n]
	return n, err
}

func (r *receiver) newReadOnce() func(fd uintptr) bool { return nil }
