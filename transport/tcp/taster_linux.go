package tcp

// decrypt reads at least one byte from the tls.Conn.
func (r *receiver) decrypt(p []byte) (n int, err error) {
	for n == 0 && err == nil {
		n, err = r.ch.tls.Read(p)
	}
	r.poll.unveil(0 < n && n < len(p), isTimeout(err))
	r.note()
	return n, err
}

// tryDecrypt is decrypt, but returns 0 and no error where that would wait.
func (r *receiver) tryDecrypt(p []byte) (n int, err error) {
	k := &r.poll
	if !k.veiled {
		if some, err := k.taster.taste(); !some {
			return 0, err
		}
	}
	k.taster.hasty = true
	for n == 0 && err == nil {
		n, err = r.ch.tls.Read(p)
	}
	k.taster.hasty = false
	k.unveil(0 < n && n < len(p), err == empty{})
	if err == (empty{}) {
		err = nil
	}
	return n, err
}

// unveil notes whether there may be something left in the tls.Conn, besides a
// part of a record. There is nothing if it had to ask for more and got none, or
// if it was given one record and has returned all of that.
func (k *polling) unveil(all, none bool) {
	given := &k.r.ch.held.given
	k.veiled = !none && !(all && given.whole == 1)
	if !k.veiled {
		given.whole = 0
	}
}

// tasteBytes is enough for a short message, and little enough to be kept.
const tasteBytes = 512

// A taster is what a tls.Conn reads from. It may read the first bytes before the
// tls.Conn does, for that allocates memory even if it finds none.
type taster struct {
	*polling
	hasty bool // it must not wait
	buf   *[tasteBytes]byte
	has   []byte
	end   error // came in place of bytes
}

// taste reports whether there is something for the tls.Conn to read.
func (t *taster) taste() (some bool, err error) {
	if len(t.has) > 0 || t.end != nil {
		return true, nil
	}
	if t.buf == nil {
		t.buf = new([tasteBytes]byte)
	}
	n, err := t.tryRead(t.buf[:])
	t.has, t.end = t.buf[:n], err
	return n > 0 || err != nil, nil
}

func (t *taster) Read(p []byte) (n int, err error) {
	switch {
	case len(t.has) > 0:
		n = copy(p, t.has)
		t.has = t.has[n:]
		return n, nil
	case t.end != nil:
		return 0, t.end
	case !t.hasty:
		return t.r.readFlow(p)
	}
	n, err = t.tryRead(p)
	if n == 0 && err == nil {
		err = empty{}
	}
	return n, err
}

// An empty says that there is nothing to read. As it is a net.Error that calls
// itself temporary, a tls.Conn goes on after it where it was.
type empty struct{}

func (empty) Error() string   { return "there is nothing to read" }
func (empty) Timeout() bool   { return true }
func (empty) Temporary() bool { return true }
