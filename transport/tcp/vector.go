package tcp

import "os"

// WriteVectored implements [transport.VectorWriter].
func (s *sender) WriteVectored(pieces [][]byte) (n int, err error) {
	want := length(pieces)
	if err := s.beginWrite(); err != nil {
		return 0, err
	}
	err = s.sendUnsent()
	switch {
	case err != nil:
	case s.ps.tls != nil:
		n, err = s.sendTLS(pieces)
	default:
		n, err = s.writev(pieces)
	}
	return n, s.endWrite(n, want, err)
}

// writev writes pieces in the clear.
func (s *sender) writev(pieces [][]byte) (int, error) {
	s.vector = pieces
	n, err := s.vector.WriteTo(s.ps.socket)
	s.vector = nil
	return int(n), err
}

func length(pieces [][]byte) (n int) {
	for _, p := range pieces {
		n += len(p)
	}
	return n
}

// advance returns the pieces without their first n bytes. The result does not begin with
// an empty piece. It modifies pieces.
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

// Data is encrypted in batches of a few records, so that one system call writes several,
// and they are still in the processor's cache.
const (
	recordBytes = 16 << 10
	batchBytes  = 4 * recordBytes

	// headBytes is the maximum length of a first piece that does not count towards batchBytes.
	// Otherwise the header of a large piece would leave a short remainder of it, which costs
	// another system call.
	headBytes = 512

	// batchPieces is the maximum number of pieces in a batch.
	batchPieces = 8

	// batchBufferBytes has room for a batch with the header, type and tag of its records.
	batchBufferBytes = batchBytes + headBytes + (batchBytes/recordBytes+batchPieces)*(5+1+16)
)

// sendTLS encrypts and sends pieces in batches. Encrypted bytes count as accepted. Those
// that were not sent are in unsent.
func (s *sender) sendTLS(pieces [][]byte) (n int, err error) {
	pieces = advance(pieces, 0)
	for len(pieces) > 0 && err == nil {
		if s.interruptError() != nil {
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

// encryptBatch encrypts one batch and returns its length.
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

// encrypt appends the records of p, at most batchBytes long, to unsent.
func (s *sender) encrypt(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if len(s.unsent) == 0 {
		s.unsent = s.buffer()
	}
	s.ps.records.collect(s.unsent)
	_, err := s.ps.tls.Write(p)
	s.unsent = s.ps.records.collected()
	return err
}

// buffer returns an empty buffer for unsent.
func (s *sender) buffer() []byte {
	if s.buf == nil {
		s.buf = s.conn.t.records.Get().(*[]byte)
	}
	return (*s.buf)[:0]
}
