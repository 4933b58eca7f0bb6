package tcp

import "os"

// WriteVectored implements transport.VectorWriter.
func (s *sender) WriteVectored(pieces [][]byte) (n int, err error) {
	want := 0
	for _, p := range pieces {
		want += len(p)
	}
	if err := s.beginWrite(); err != nil {
		return 0, err
	}
	err = s.sendUnsent()
	switch {
	case err != nil:
	case s.ps.tls != nil:
		n, err = s.sendTLS(pieces)
	default:
		n, err = s.writeVector(pieces)
	}
	return n, s.endWrite(n, want, err)
}

// writeVector writes the pieces as they are. Where copies are kept it writes one after
// the other.
func (s *sender) writeVector(pieces [][]byte) (n int, err error) {
	if !s.mustCopy() {
		s.vector = pieces
		sent, err := s.vector.WriteTo(s.flow.sock)
		pieces, s.vector = s.vector, nil
		s.recordUncopied(int(sent))
		if n = int(sent); err == nil || !s.continueAfter(err) {
			return n, err
		}
		if err := s.sendUnsent(); err != nil {
			return n, err
		}
	}
	for _, p := range pieces {
		m, err := s.writePlain(p)
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
	batchBytes  = 4 * recordBytes

	// headBytes is how long a first piece may be to come on top of sealBytes.
	// Otherwise the header of a large piece would leave a small remainder of
	// it, which costs a system call of its own.
	headBytes = 512

	// batchMax is how many pieces are encrypted at most.
	batchPieces = 8

	// sealedBytes has room for the records: their header, type and tag too.
	batchBufferBytes = batchBytes + headBytes + (batchBytes/recordBytes+batchPieces)*(5+1+16)
)

// sendSealed encrypts and sends one batch after the other. What was encrypted
// counts as sent: what could not be sent of it stays in rest.
func (s *sender) sendTLS(pieces [][]byte) (n int, err error) {
	pieces = advance(pieces, 0)
	for len(pieces) > 0 && err == nil {
		if s.deadlinePassed() {
			return n, os.ErrDeadlineExceeded
		}
		m, failed := s.encryptBatch(pieces)
		n += m
		if failed != nil {
			return n, failed
		}
		pieces = advance(pieces, m)
		err = s.sendUnsent()
	}
	return n, err
}

// batch encrypts as much of the pieces as is sent at a time.
func (s *sender) encryptBatch(pieces [][]byte) (n int, err error) {
	room := batchBytes
	for i, p := range pieces[:min(len(pieces), batchPieces)] {
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
	out := s.unsent
	if len(s.unsent) == 0 {
		out = s.buffer()
	}
	s.ps.records.collect(out)
	_, err := s.ps.tls.Write(p)
	s.unsent = s.ps.records.collected()
	*s.buf = s.unsent
	return err
}

// buffer is an empty buffer for the rest.
func (s *sender) buffer() []byte {
	if s.buf == nil {
		s.buf = s.conn.t.records.Get().(*[]byte)
	}
	return (*s.buf)[:0]
}
