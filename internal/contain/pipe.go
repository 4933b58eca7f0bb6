package contain

import (
	"sync"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// bufferBytes bounds the bytes moved by one call of Read or Write.
const bufferBytes = 64 << 10

// A pipe holds the state that [sender] and [receiver] share: when a call on it has to
// return, and the buffer of the next call.
type pipe struct {
	conn   *conn
	can    transport.Capabilities // of the inner pipe
	closed chan struct{}
	shut   sync.Once

	mu       sync.Mutex
	deadline time.Time
	changed  chan struct{} // closed when deadline changes
	buf      []byte        // nil during a call; abandoned calls keep theirs
}

func newPipe(c *conn, can transport.Capabilities) *pipe {
	return &pipe{conn: c, can: can, closed: make(chan struct{}), changed: make(chan struct{})}
}

func (p *pipe) setDeadline(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = t
	close(p.changed)
	p.changed = make(chan struct{})
}

// take returns a buffer of at least n bytes.
func (p *pipe) take(n int) (b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b, p.buf = p.buf, nil; len(b) < n {
		b = make([]byte, max(n, bufferBytes))
	}
	return b
}

// giveBack keeps the buffer of a call that has returned.
func (p *pipe) giveBack(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(b) == bufferBytes {
		p.buf = b
	}
}

// blocking runs a call that has to return when the pipe or the conn is closed, and
// within the limit after the deadline if isTimed.
func (p *pipe) blocking(call string, isTimed bool, f func() (int, error)) (int, error) {
	g, peer, done := p.conn.t.guard, p.conn.peer, begin(p.conn.t.guard, p.conn.peer, call, f)
	for {
		p.mu.Lock()
		deadline, changed := p.deadline, p.changed
		p.mu.Unlock()
		var due <-chan time.Time
		var timer *time.Timer
		if isTimed && !deadline.IsZero() {
			timer = time.NewTimer(max(0, time.Until(deadline)) + g.limit)
			due = timer.C
		}
		again := false
		var n int
		var err error
		select {
		case o := <-done:
			n, err = o.value, o.err
		case <-changed:
			again = true
		case <-due:
			n, err = abandon(g, peer, call, done, nil)
		case <-p.closed:
			n, err = await(g, peer, call, done, p.closed, nil, nil)
		case <-p.conn.done:
			n, err = await(g, peer, call, done, p.conn.done, nil, nil)
		}
		if timer != nil {
			timer.Stop()
		}
		if !again {
			return n, p.conn.check(err)
		}
	}
}

// A runFunc runs a call by its name: [pipe.byDeadline] or [pipe.atOnce].
type runFunc = func(call string, f func() (int, error)) (int, error)

// byDeadline runs a call that may block until the deadline.
func (p *pipe) byDeadline(call string, f func() (int, error)) (int, error) {
	return p.blocking(call, true, f)
}

// atOnce runs a call that must not block.
func (p *pipe) atOnce(call string, f func() (int, error)) (int, error) {
	n, err := run(p.conn.t.guard, p.conn.peer, call, f)
	return n, p.conn.check(err)
}

// do runs a call that must not block and returns nothing else.
func (p *pipe) do(call string, f func() error) error {
	return p.conn.check(runErr(p.conn.t.guard, p.conn.peer, call, f))
}

func (p *pipe) fault(call, format string, args ...any) error {
	return p.conn.fail(p.conn.t.fault(p.conn.peer, call, format, args...))
}

// A sender checks the calls of a Sender and of its capabilities. It passes copies of the
// caller's bytes, so that an abandoned call reads none of the caller's memory.
type sender struct {
	*pipe
	inner transport.Sender
}

// Capabilities implements [transport.Capable].
func (s *sender) Capabilities() (can transport.Capabilities) {
	if s.can.TryWriter != nil {
		can.TryWriter = s
	}
	if s.can.TryVectorWriter != nil {
		can.TryVectorWriter = s
	}
	if s.can.PartWriter != nil {
		can.PartWriter = s
	}
	if s.can.LazyWriter != nil {
		can.LazyWriter = s
	}
	if s.can.VectorWriter != nil {
		can.VectorWriter = s
	}
	if s.can.Prioritizer != nil {
		can.Prioritizer = s
	}
	return can
}

func (s *sender) Write(p []byte) (int, error) {
	return s.write("Write", [][]byte{p}, func(pieces [][]byte) (int, error) { return s.inner.Write(pieces[0]) })
}

// WriteVectored implements [transport.VectorWriter].
func (s *sender) WriteVectored(pieces [][]byte) (int, error) {
	return s.write("WriteVectored", pieces, s.can.VectorWriter.WriteVectored)
}

// write passes all pieces to f, at most bufferBytes in one call.
func (s *sender) write(call string, pieces [][]byte, f func([][]byte) (int, error)) (n int, err error) {
	for first := true; err == nil && (first || len(pieces) > 0); first = false {
		buf := s.take(bufferBytes)
		copies, rest, size := copyPieces(buf, pieces)
		pieces = rest
		var m int
		m, err = s.byDeadline(call, func() (int, error) { return f(copies) })
		if !isFault(err) {
			s.giveBack(buf)
		}
		switch {
		case m < 0 || m > size:
			return n, s.fault(call, "of %d bytes returned %d", size, m)
		case m < size && err == nil:
			return n, s.fault(call, "of %d bytes returned %d without an error", size, m)
		}
		n += m
	}
	return n, err
}

// TryWrite implements [transport.TryWriter].
func (s *sender) TryWrite(p []byte) bool {
	return s.tryAll("TryWrite", [][]byte{p}, func(pieces [][]byte) bool { return s.can.TryWriter.TryWrite(pieces[0]) })
}

// TryWriteLazy implements [transport.LazyWriter].
func (s *sender) TryWriteLazy(p []byte) bool {
	return s.tryAll("TryWriteLazy", [][]byte{p}, func(pieces [][]byte) bool { return s.can.LazyWriter.TryWriteLazy(pieces[0]) })
}

// TryWriteVectored implements [transport.TryVectorWriter].
func (s *sender) TryWriteVectored(pieces [][]byte) bool {
	return s.tryAll("TryWriteVectored", pieces, s.can.TryVectorWriter.TryWriteVectored)
}

// tryAll passes all pieces to f, which must not block and writes all or nothing.
func (s *sender) tryAll(call string, pieces [][]byte, f func([][]byte) bool) (ok bool) {
	size := 0
	for _, p := range pieces {
		size += len(p)
	}
	buf := s.take(size)
	copies, _, _ := copyPieces(buf, pieces)
	ok, err := run(s.conn.t.guard, s.conn.peer, call, func() (bool, error) { return f(copies), nil })
	if s.conn.check(err) != nil {
		return false
	}
	s.giveBack(buf)
	return ok
}

// TryWritePart implements [transport.PartWriter].
func (s *sender) TryWritePart(pieces [][]byte) int {
	buf := s.take(bufferBytes)
	copies, _, size := copyPieces(buf, pieces)
	n, err := s.atOnce("TryWritePart", func() (int, error) { return s.can.PartWriter.TryWritePart(copies), nil })
	if err != nil {
		return 0
	}
	s.giveBack(buf)
	if n < 0 || n > size {
		s.fault("TryWritePart", "of %d bytes returned %d", size, n)
		return 0
	}
	return n
}

// copyPieces copies as many bytes of pieces into buf as fit. It returns the copies, the
// remaining pieces and the number of bytes copied.
func copyPieces(buf []byte, pieces [][]byte) (copies, rest [][]byte, size int) {
	for i, p := range pieces {
		n := copy(buf[size:], p)
		copies = append(copies, buf[size:size+n:size+n])
		size += n
		if n < len(p) {
			return copies, append([][]byte{p[n:]}, pieces[i+1:]...), size
		}
	}
	return copies, nil, size
}

// Prioritize implements [transport.Prioritizer].
func (s *sender) Prioritize() {
	s.do("Prioritize", func() error { s.can.Prioritizer.Prioritize(); return nil })
}

func (s *sender) SetWriteDeadline(t time.Time) error {
	s.setDeadline(t)
	return s.do("SetWriteDeadline", func() error { return s.inner.SetWriteDeadline(t) })
}

func (s *sender) Close() error {
	s.shut.Do(func() { close(s.closed) })
	return s.do("Close of a pipe", s.inner.Close)
}
