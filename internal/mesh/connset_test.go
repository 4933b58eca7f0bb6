package mesh

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/mem"
)

// testConns makes n connections.
func testConns(t testing.TB, n int) (conns []transport.Conn) {
	t.Helper()
	for range n {
		out, in, err := mem.Loop(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { out.Close() })
		conns = append(conns, in)
	}
	return conns
}

func isOpen(c transport.Conn) bool { return c.Err() == nil }

func TestConnSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newConnSet[membership.NodeID](), testConns(t, 5)
		b.put(idOf(1), c[0])
		b.put(idOf(2), c[1])
		if got, err := b.take(t.Context(), idOf(2)); got != c[1] || err != nil {
			t.Errorf("the connection of rank 2: %v", err)
		}
		b.put(idOf(1), c[2])
		if isOpen(c[0]) || !isOpen(c[2]) {
			t.Error("a second connection has not replaced the first one")
		}
		if got, err := b.take(t.Context(), idOf(1)); got != c[2] || err != nil {
			t.Errorf("the connection of rank 1: %v", err)
		}
		b.put(idOf(3), c[3])
		time.Sleep(unusedTimeout + time.Second)
		if isOpen(c[3]) || !isOpen(c[1]) || !isOpen(c[2]) {
			t.Error("an unused connection is open after unusedTimeout, or one that was taken is closed")
		}
		b.put(idOf(4), c[4])
		b.close()
		if isOpen(c[4]) {
			t.Error("a connection is open after close")
		}
	})
}

func TestConnSetTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newConnSet[membership.NodeID](), testConns(t, 4)
		time.AfterFunc(time.Second, func() { b.put(idOf(2), c[0]) })
		time.AfterFunc(2*time.Second, func() { b.put(idOf(1), c[1]) })
		if got, err := b.take(t.Context(), idOf(1)); got != c[1] || err != nil {
			t.Errorf("take of a later connection: %v", err)
		}
		// A connection that has ended is dropped.
		c[2].Close()
		b.put(idOf(5), c[2])
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.take(ctx, idOf(5)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
		}
		b.close()
		if _, err := b.take(t.Context(), idOf(6)); err == nil {
			t.Error("take waits after close")
		}
		if b.put(idOf(6), c[3]); isOpen(c[3]) {
			t.Error("put keeps a connection after close")
		}
	})
}
