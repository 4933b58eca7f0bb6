package admission

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Reasons to refuse a connection. Both are temporary.
var (
	// ErrFull says that the table is full, and that no connection can be evicted yet.
	ErrFull = errors.New("too many unauthenticated connections")
	// ErrLimited says that too many connections of the source have failed.
	ErrLimited = errors.New("too many connections from this address have failed to authenticate")
)

// A RefusedError is ErrFull or ErrLimited, with the refused source.
type RefusedError struct {
	Source Source
	Err    error
}

func (e *RefusedError) Error() string { return fmt.Sprintf("source %v refused: %v", e.Source, e.Err) }
func (e *RefusedError) Unwrap() error { return e.Err }

// A Gate is a [Table] for several goroutines. All connections of a port, over UDP and TCP,
// share one.
type Gate struct {
	freed chan struct{} // has a token when a connection has left

	mu    sync.Mutex
	table *Table
}

// NewGate returns a Gate without connections.
func NewGate(l Limits) *Gate {
	return &Gate{freed: make(chan struct{}, 1), table: NewTable(l)}
}

// A Ticket is the entry of an unproved connection. Its owner calls Prove or Leave.
type Ticket struct {
	gate *Gate
	conn *Conn
}

// TryEnter admits a connection, or returns a [*RefusedError]. verified says
// that the peer receives packets at its address.
//
// evict closes the connection, to make room for another one. The Gate calls it at most
// once, on the goroutine that admits the other one. It must neither block nor call the Gate.
func (g *Gate) TryEnter(from Source, verified bool, evict func()) (*Ticket, error) {
	t, d := g.enter(from, verified, evict)
	switch d.Outcome {
	case Full:
		return nil, &RefusedError{from, ErrFull}
	case Limited:
		return nil, &RefusedError{from, ErrLimited}
	}
	return t, nil
}

// Enter is [Gate.TryEnter] for TCP listeners, since their connections can wait in the kernel:
// while the Gate is full it blocks, for at most Limits.MinAge, or until done is closed. It does
// not block for limited sources.
func (g *Gate) Enter(done <-chan struct{}, from Source, evict func()) (*Ticket, error) {
	for {
		t, d := g.enter(from, true, evict)
		switch d.Outcome {
		case Admitted:
			return t, nil
		case Limited:
			return nil, &RefusedError{from, ErrLimited}
		}
		timer := time.NewTimer(d.Wait)
		select {
		case <-g.freed:
		case <-timer.C:
		case <-done:
			timer.Stop()
			return nil, &RefusedError{from, ErrFull}
		}
		timer.Stop()
	}
}

func (g *Gate) enter(from Source, verified bool, evict func()) (*Ticket, Decision) {
	g.mu.Lock()
	d := g.table.Admit(time.Now(), from, verified)
	if d.Conn != nil {
		d.Conn.evict = evict
	}
	g.mu.Unlock()
	if d.Evicted != nil {
		d.Evicted.evict()
	}
	return &Ticket{g, d.Conn}, d
}

// Len returns the number of unproved connections.
func (g *Gate) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.table.Len()
}

// Limited reports whether the Gate currently refuses a source because too many of its
// connections have failed.
func (g *Gate) Limited(from Source) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.table.Limited(time.Now(), from)
}

// Pressed reports whether the number of unproved connections is at least an eighth of the maximum.
func (g *Gate) Pressed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.table.Len() >= g.table.limits.Max/8
}

// Verify records that the peer receives packets at its address.
func (t *Ticket) Verify() {
	t.gate.mu.Lock()
	defer t.gate.mu.Unlock()
	t.gate.table.Verify(t.conn)
}

// Prove removes the entry, because the peer has authenticated itself: the connection can no
// longer be evicted. It reports false if the connection was evicted before.
func (t *Ticket) Prove() bool { return t.gate.leave((*Table).Prove, t.conn) }

// Leave removes the entry, because the connection has ended. It does nothing after
// Prove, or if the connection was evicted.
func (t *Ticket) Leave() { t.gate.leave((*Table).Fail, t.conn) }

func (g *Gate) leave(how func(*Table, time.Time, *Conn) bool, c *Conn) bool {
	g.mu.Lock()
	ok := how(g.table, time.Now(), c)
	g.mu.Unlock()
	select {
	case g.freed <- struct{}{}:
	default:
	}
	return ok
}
