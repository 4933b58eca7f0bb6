package tcp

// tryDecrypt reads from the tls.Conn without blocking. It returns 0 and nil if there is
// no data.
func (r *receiver) tryDecrypt(p []byte) (n int, err error) {
	k := &r.poll
	if !k.tlsPending && !k.tlsIn.prefetch() {
		return 0, nil
	}
	k.tlsIn.nonblocking = true
	for n == 0 && err == nil {
		n, err = r.ps.tls.Read(p)
	}
	k.tlsIn.nonblocking = false
	k.setTLSPending(0 < n && n < len(p), err == wouldBlock{})
	if err == (wouldBlock{}) {
		err = nil
		k.r.noteRecord()
	}
	return n, err
}

// setTLSPending updates tlsPending: whether the tls.Conn may have data besides a partial
// record. It has none if it asked for more and got none, or if it has returned all of the
// only record it was given.
func (k *poller) setTLSPending(all, none bool) {
	given := &k.r.ps.records.in
	k.tlsPending = !none && !(all && given.complete == 1)
	if !k.tlsPending {
		given.complete = 0
	}
}

// prefetchBytes has room for a short message. The buffer is kept, so it is small.
const prefetchBytes = 512

// A tlsInput is the source of a tls.Conn. It can read the first bytes before the tls.Conn does,
// which allocates memory even without data.
type tlsInput struct {
	*poller
	nonblocking bool // Read must not block
	buf         *[prefetchBytes]byte
	unread      []byte
	err         error // of prefetch
}

// prefetch reports whether Read would return data or an error without blocking.
func (t *tlsInput) prefetch() bool {
	if len(t.unread) > 0 || t.err != nil {
		return true
	}
	if t.buf == nil {
		t.buf = new([prefetchBytes]byte)
	}
	n, err := t.tryRead(t.buf[:])
	t.unread, t.err = t.buf[:n], err
	return n > 0 || err != nil
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
		return t.r.readSocket(p)
	}
	n, err = t.tryRead(p)
	if n == 0 && err == nil {
		err = wouldBlock{}
	}
	return n, err
}

// A wouldBlock means that no data is available. It is a temporary net.Error. A tls.Conn can
// continue after it.
type wouldBlock struct{}

func (wouldBlock) Error() string   { return "no data to read" }
func (wouldBlock) Timeout() bool   { return true }
func (wouldBlock) Temporary() bool { return true }
