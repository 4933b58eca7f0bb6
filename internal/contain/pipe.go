package contain

import (
	"sync"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// bufferBytes is how much a read or a write moves at a time.
const bufferBytes = 64 << 10

// A pipe is what both ends have in common: when a call on it has to return.
type pipe struct {
	conn   *conn
	closed chan struct{}
	shut   sync.Once

	mu       sync.Mutex
	deadline time.Time
	changed  chan struct{} // closed when deadline changes
	buf      []byte        // of the call under way; lost if that is abandoned
}

func newPipe(c *conn) *pipe {
	return &pipe{conn: c, closed: make(chan struct{}), changed: make(chan struct{})}
}

func (p *pipe) setDeadline(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = t
	close(p.changed)
	p.changed = make(chan struct{})
}

// take returns the buffer of the pipe, or a new one.
func (p *pipe) take() (b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b, p.buf = p.buf, nil; b == nil {
		b = make([]byte, bufferBytes)
	}
	return b
}

func (p *pipe) giveBack(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.buf = b
}

// wait waits for the outcome of a call, which has to return by the deadline, and when
// the pipe or the conn is closed.
func (p *pipe) wait(call string, done <-chan outcome[int]) (int, error) {
	for {
		p.mu.Lock()
		deadline, changed := p.deadline, p.changed
		p.mu.Unlock()
		var due <-chan time.Time
		var timer *time.Timer
		if !deadline.IsZero() {
			timer = time.NewTimer(max(0, time.Until(deadline)) + p.conn.t.limit)
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
			n, err = abandon(p.conn.t.guard, p.conn.peer, call, done, nil)
		case <-p.closed:
			n, err = await(p.conn.t.guard, p.conn.peer, call, done, p.closed, nil)
		case <-p.conn.done:
			n, err = await(p.conn.t.guard, p.conn.peer, call, done, p.conn.done, nil)
		}
		if timer != nil {
			timer.Stop()
		}
		if !again {
			return n, p.conn.check(err)
		}
	}
}

func (p *pipe) fault(call, format string, args ...any) error {
	return p.conn.fail(p.conn.t.fault(p.conn.peer, call, format, args...))
}

// A sender is the writing end of a pipe.
type sender struct {
	*pipe
	inner transport.Sender
}

func (s *sender) Write(p []byte) (n int, err error) {
	for first := true; err == nil && (first || n < len(p)); first = false {
		buf := s.take()
		part := buf[:copy(buf, p[n:])]
		var m int
		m, err = s.wait("Write", begin(s.conn.t.guard, s.conn.peer, "Write", func() (int, error) { return s.inner.Write(part) }))
		if _, faulty := err.(*FaultError); !faulty {
			s.giveBack(buf)
		}
		switch {
		case m < 0 || m > len(part):
			return n, s.fault("Write", "of %d bytes returned %d", len(part), m)
		case m < len(part) && err == nil:
			return n, s.fault("Write", "of %d bytes returned %d without an error", len(part), m)
		}
		n += m
	}
	return n, err
}

func (s *sender) SetWriteDeadline(t time.Time) error {
	s.setDeadline(t)
	return s.conn.check(runErr(s.conn.t.guard, s.conn.peer, "SetWriteDeadline", func() error { return s.inner.SetWriteDeadline(t) }))
}

func (s *sender) Close() error {
	s.shut.Do(func() { close(s.closed) })
	return s.conn.check(runErr(s.conn.t.guard, s.conn.peer, "Close of a pipe", s.inner.Close))
}

// A receiver is the reading end of a pipe.
type receiver struct {
	*pipe
	inner transport.Receiver
}

func (r *receiver) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	buf := r.take()
	part := buf[:min(len(p), len(buf))]
	n, err := r.wait("Read", begin(r.conn.t.guard, r.conn.peer, "Read", func() (int, error) { return r.inner.Read(part) }))
	if _, faulty := err.(*FaultError); faulty {
		return 0, err
	}
	if n < 0 || n > len(part) {
		return 0, r.fault("Read", "into %d bytes returned %d", len(part), n)
	}
	copy(p, part[:n])
	r.giveBack(buf)
	if n == 0 && err == nil {
		return 0, r.fault("Read", "returned neither a byte nor an error")
	}
	return n, err
}

func (r *receiver) ReadFunc(n int, view func(p []byte)) (int, error) {
	if n <= 0 {
		return 0, nil
	}
	// The views end with the call, also for one that is abandoned.
	var mu sync.Mutex
	seen, over := 0, false
	done := begin(r.conn.t.guard, r.conn.peer, "ReadFunc", func() (int, error) {
		return r.inner.ReadFunc(n, func(p []byte) {
			mu.Lock()
			defer mu.Unlock()
			if over {
				return
			}
			if seen += len(p); seen <= n {
				view(p)
			}
		})
	})
	got, err := r.wait("ReadFunc", done)
	mu.Lock()
	over = true
	shown := seen
	mu.Unlock()
	if _, faulty := err.(*FaultError); faulty {
		return min(shown, n), err
	}
	switch {
	case got != shown || got > n:
		return min(shown, n), r.fault("ReadFunc", "of %d bytes showed %d and returned %d", n, shown, got)
	case got < n && err == nil:
		return got, r.fault("ReadFunc", "of %d bytes returned %d without an error", n, got)
	}
	return got, err
}

func (r *receiver) SetReadDeadline(t time.Time) error {
	r.setDeadline(t)
	return r.conn.check(runErr(r.conn.t.guard, r.conn.peer, "SetReadDeadline", func() error { return r.inner.SetReadDeadline(t) }))
}

func (r *receiver) Close() error {
	r.shut.Do(func() { close(r.closed) })
	return r.conn.check(runErr(r.conn.t.guard, r.conn.peer, "Close of a pipe", r.inner.Close))
}
