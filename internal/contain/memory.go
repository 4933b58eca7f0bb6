package contain

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// Areas implements [transport.MemorySharer]. Both results are 0 after a fault.
func (c *conn) Areas() (count, size int) {
	count, size, _ = c.countAreas()
	return count, size
}

func (c *conn) countAreas() (count, size int, err error) {
	n, err := run(c.t.guard, c.peer, "Areas", func() ([2]int, error) {
		count, size := c.can.MemorySharer.Areas()
		return [2]int{count, size}, nil
	})
	if err == nil && (n[0] < 0 || n[1] < 0 || (n[0] == 0) != (n[1] == 0)) {
		err = c.t.fault(c.peer, "Areas", "returned %d areas of %d bytes", n[0], n[1])
	}
	if err = c.check(err); err != nil {
		return 0, 0, err
	}
	return n[0], n[1], nil
}

// AcquireAreas implements [transport.MemorySharer].
func (c *conn) AcquireAreas() (transport.Areas, error) {
	count, size, err := c.countAreas()
	if err != nil {
		return nil, err
	}
	inner, err := run(c.t.guard, c.peer, "AcquireAreas", c.can.MemorySharer.AcquireAreas)
	if err == nil && inner == nil {
		err = c.t.fault(c.peer, "AcquireAreas", "returned no areas and no error")
	}
	if err = c.check(err); err != nil {
		return nil, err
	}
	a := &areas{c: c, inner: inner}
	for i := range count {
		pair, err := run(c.t.guard, c.peer, "Area", func() ([2][]byte, error) {
			own, peer := inner.Area(i)
			return [2][]byte{own, peer}, nil
		})
		if err == nil && (len(pair[0]) != size || len(pair[1]) != size) {
			err = c.t.fault(c.peer, "Area", "%d has %d and %d bytes, expected %d", i, len(pair[0]), len(pair[1]), size)
		}
		if err != nil {
			a.Release()
			return nil, c.check(err)
		}
		a.pairs = append(a.pairs, pair)
	}
	return a, nil
}

// FutexWait implements [transport.MemorySharer].
func (c *conn) FutexWait(word *atomic.Uint32, old uint32, d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	done := begin(c.t.guard, c.peer, "FutexWait", func() (struct{}, error) { c.can.MemorySharer.FutexWait(word, old, d); return struct{}{}, nil })
	_, err := await(c.t.guard, c.peer, "FutexWait", done, ctx.Done(), nil, nil)
	c.check(err)
}

// FutexWake implements [transport.MemorySharer].
func (c *conn) FutexWake(word *atomic.Uint32) {
	c.check(runErr(c.t.guard, c.peer, "FutexWake", func() error { c.can.MemorySharer.FutexWake(word); return nil }))
}

// PeerEnded implements [transport.MemorySharer]. After a fault the returned function reports
// false: memory that the peer may still read is not reused.
func (c *conn) PeerEnded() func() bool {
	g, peer := c.t.guard, c.peer // The function does not keep the conn.
	ended, err := run(g, peer, "PeerEnded", func() (func() bool, error) { return c.can.MemorySharer.PeerEnded(), nil })
	if err == nil && ended == nil {
		err = g.fault(peer, "PeerEnded", "returned no function")
	}
	if err != nil {
		c.fail(err)
		return func() bool { return false }
	}
	return func() bool {
		isEnded, err := run(g, peer, "PeerEnded", func() (bool, error) { return ended(), nil })
		return err == nil && isEnded
	}
}

// areas checks the calls of Areas. All areas are looked up and measured by AcquireAreas.
type areas struct {
	c     *conn
	inner transport.Areas
	pairs [][2][]byte // of this node and of the peer
}

func (a *areas) Area(i int) (own, peer []byte) { return a.pairs[i][0], a.pairs[i][1] }

func (a *areas) Reserve(i, n int) error {
	return a.c.check(runErr(a.c.t.guard, a.c.peer, "Reserve", func() error { return a.inner.Reserve(i, n) }))
}

func (a *areas) Release() {
	a.c.check(runErr(a.c.t.guard, a.c.peer, "Release", func() error { a.inner.Release(); return nil }))
}

// Suits implements [transport.RemoteMemory]. It is false after a fault.
func (c *conn) Suits(memory []byte) bool {
	suits, err := run(c.t.guard, c.peer, "Suits", func() (bool, error) { return c.can.RemoteMemory.Suits(memory), nil })
	return c.check(err) == nil && suits
}

// Register implements [transport.RemoteMemory]. The transport gets the caller's memory
// itself: its peers write there until Revoke or Deregister, which cannot be checked.
func (c *conn) Register(memory []byte) (transport.Registration, error) {
	inner, err := run(c.t.guard, c.peer, "Register", func() (transport.Registration, error) { return c.can.RemoteMemory.Register(memory) })
	if err == nil && inner == nil {
		err = c.t.fault(c.peer, "Register", "returned no registration and no error")
	}
	if err = c.check(err); err != nil {
		return nil, err
	}
	return &registration{c, inner}, nil
}

// WriteRemote implements [transport.RemoteMemory]. It passes a copy of p.
func (c *conn) WriteRemote(ctx context.Context, key transport.RemoteKey, offset int, p []byte) error {
	p = slices.Clone(p)
	_, err := untilEnd(ctx, c, "WriteRemote", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.can.RemoteMemory.WriteRemote(ctx, key, offset, p)
	}, nil)
	return c.check(err)
}

// A registration checks the calls of a Registration.
type registration struct {
	c     *conn
	inner transport.Registration
}

func (r *registration) Grant(offset, n int) (transport.Grant, error) {
	g, err := run(r.c.t.guard, r.c.peer, "Grant", func() (*grant, error) {
		inner, err := r.inner.Grant(offset, n)
		if err != nil || inner == nil {
			return nil, err
		}
		return &grant{r.c, inner, inner.Key()}, nil
	})
	switch {
	case err != nil:
	case g == nil:
		err = r.c.t.fault(r.c.peer, "Grant", "returned no grant and no error")
	case g.key.Len != uint64(n):
		err = r.c.t.fault(r.c.peer, "Grant", "of %d bytes returned a key for %d", n, g.key.Len)
		g.Revoke()
	}
	if err = r.c.check(err); err != nil {
		return nil, err
	}
	return g, nil
}

func (r *registration) Deregister() {
	r.c.check(runErr(r.c.t.guard, r.c.peer, "Deregister", func() error { r.inner.Deregister(); return nil }))
}

// A grant checks the calls of a Grant.
type grant struct {
	c     *conn
	inner transport.Grant
	key   transport.RemoteKey
}

func (g *grant) Key() transport.RemoteKey { return g.key }

func (g *grant) Recall(ctx context.Context) error {
	_, err := untilEnd(ctx, g.c, "Recall", func(ctx context.Context) (struct{}, error) { return struct{}{}, g.inner.Recall(ctx) }, nil)
	return g.c.check(err)
}

func (g *grant) Revoke() {
	g.c.check(runErr(g.c.t.guard, g.c.peer, "Revoke", func() error { g.inner.Revoke(); return nil }))
}
