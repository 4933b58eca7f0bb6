package tcp

// decrypt reads at least one byte from the tls.Conn.
func (r *receiver) decrypt(p []byte) (n int, err error) {
	for n == 0 && err == nil {
		n, err = r.ps.tls.Read(p)
	}
	r.poll.setTLSPending(0 < n && n < len(p), isTimeout(err))
	r.updateBuffered()
	return n, err
}

// tryDecrypt is decrypt, but returns 0 and no error where that would wait.
func (r *receiver) tryDecrypt(p []byte) (n int, err error) {
	k := &r.poll
	if !k.tlsPending {
		if some, err := k.tlsIn.prefetch(); !some {
			return 0, err
		}
	}
	k.tlsIn.nonblocking = true
	for n == 0 && err == nil {
		n, err = r.ps.tls.Read(p)
	}
	k.tlsIn.nonblocking = false
	k.setTLSPending(0 < n && n < len(p), err == wouldBlock{})
	if err == (wouldBlock{}) {
		err = nil
	}
	return n, err
}

// unveil notes whether there may be something left in the tls.Conn, besides a
// part of a record. There is nothing if it had to ask for more and got none, or
// if it was given one record and has returned all of that.
func (k *poller) setTLSPending(all, none bool) {
	given := &k.r.ps.records.in
	k.tlsPending = !none && !(all && given.complete == 1)
	if !k.tlsPending {
		given.complete = 0
	}
}

// tasteBytes is enough for a short message, and little enough to be kept.
const prefetchBytes = 512

// A taster is what a tls.Conn reads from. It may read the first bytes before the
// tls.Conn does, for that allocates memory even if it finds none.
type tlsInput struct {
	*poller
	nonblocking bool // it must not wait
	buf         *[prefetchBytes]byte
	unread      []byte
	err         error // came in place of bytes
}

// taste reports whether there is something for the tls.Conn to read.
func (t *tlsInput) prefetch() (some bool, err error) {
	if len(t.unread) > 0 || t.err != nil {
		return true, nil
	}
	if t.buf == nil {
		t.buf = new([prefetchBytes]byte)
	}
	n, err := t.tryRead(t.buf[:])
	t.unread, t.err = t.buf[:n], err
	return n > 0 || err != nil, nil
}

func (t *tlsInput) Read(p []byte) (n int, err error) {
	switch {
	case len(t.unread) > 0:
		n = copy(p, t.unread)
		t.unread = t.unread[n:]
		return n, nil
	case t.err != nil:
		return 0, t.err
	case !t.nonblocking:
		return t.r.readFlow(p)
	}
	n, err = t.tryRead(p)
	if n == 0 && err == nil {
		err = wouldBlock{}
	}
	return n, err
}

// An empty says that there is nothing to read. As it is a net.Error that calls
// itself temporary, a tls.Conn goes on after it where it was.
type wouldBlock struct{}

func (wouldBlock) Error() string   { return "there is nothing to read" }
func (wouldBlock) Timeout() bool   { return true }
func (wouldBlock) Temporary() bool { return true }
