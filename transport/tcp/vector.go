package tcp

import "os"

// WriteVectored implements transport.VectorWriter.
func (s *sender) WriteVectored(pieces [][]byte) (n int, err error) {
	want := 0
	for _, p := range pieces {
		want += len(p)
	}
	if err := s.begin(); err != nil {
		return 0, err
	}
	err = s.sendRest()
	switch {
	case err != nil:
	case s.ch.tls != nil:
		n, err = s.sendSealed(pieces)
	default:
		n, err = s.writeVector(pieces)
	}
	return n, s.finish(n, want, err)
}

// writeVector writes the pieces as they are. Where copies are kept it writes one after
// the other.
func (s *sender) writeVector(pieces [][]byte) (n int, err error) {
	if !s.keepsCopies() {
		s.vector = pieces
		sent, err := s.vector.WriteTo(s.out.sock)
		pieces, s.vector = s.vector, nil
		s.forget(int(sent))
		if n = int(sent); err == nil || !s.goesOn(err) {
			return n, err
		}
		if err := s.sendRest(); err != nil {
			return n, err
		}
	}
	for _, p := range pieces {
		m, err := s.write(p)
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

// advance is what is left of the pieces after n bytes. It does not begin with
// an empty one.
func advance(pieces [][]byte, n int) [][]byte {
	for len(pieces) > 0 && n >= len(pieces[0]) {
		n -= len(pieces[0])
		pieces[0] = nil
		pieces = pieces[1:]
	}
	if n > 0 {
		pieces[0] = pieces[0][n:]
	}
	return pieces
}

// Limits on what is encrypted before it is sent: a few records, so that one
// system call carries several, and they still lie in the processor's cache.
const (
	recordBytes = 16 << 10
	sealBytes   = 4 * recordBytes

	// headBytes is how long a first piece may be to come on top of sealBytes.
	// Otherwise the header of a large piece would leave a small remainder of
	// it, which costs a system call of its own.
	headBytes = 512

	// batchMax is how many pieces are encrypted at most.
	batchMax = 8

	// sealedBytes has room for the records: their header, type and tag too.
	sealedBytes = sealBytes + headBytes + (sealBytes/recordBytes+batchMax)*(5+1+16)
)

// sendSealed encrypts and sends one batch after the other. What was encrypted
// counts as sent: what could not be sent of it stays in rest.
func (s *sender) sendSealed(pieces [][]byte) (n int, err error) {
	pieces = advance(pieces, 0)
	for len(pieces) > 0 && err == nil {
		if s.late() {
			return n, os.ErrDeadlineExceeded
		}
		m, failed := s.batch(pieces)
		n += m
		if failed != nil {
			return n, failed
		}
		pieces = advance(pieces, m)
		err = s.sendRest()
	}
	return n, err
}

// batch encrypts as much of the pieces as is sent at a time.
func (s *sender) batch(pieces [][]byte) (n int, err error) {
	room := sealBytes
	for i, p := range pieces[:min(len(pieces), batchMax)] {
		p = p[:min(len(p), room)]
		if err := s.encrypt(p); err != nil {
			return n, err
		}
		n += len(p)
		if i > 0 || len(p) > headBytes {
			room -= len(p)
		}
	}
	return n, nil
}

// encrypt makes records of p, which is at most sealBytes long, and puts them
// behind what is in rest already.
func (s *sender) encrypt(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	out := s.rest
	if len(s.rest) == 0 {
		out = s.buffer()
	}
	s.ch.held.hold(out)
	_, err := s.ch.tls.Write(p)
	s.rest = s.ch.held.letGo()
	*s.buf = s.rest
	return err
}

// buffer is an empty buffer for the rest.
func (s *sender) buffer() []byte {
	if s.buf == nil {
		s.buf = s.conn.t.sealed.Get().(*[]byte)
	}
	return (*s.buf)[:0]
}
