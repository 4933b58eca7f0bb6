//go:build linux

package rdma

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/nexar-go/nexar/hw/internal/verbs"
	"github.com/nexar-go/nexar/transport"
)

// windowUses is the number of bindings of a window. Its key has a counter of 8 bits, so that further bindings would make
// old keys valid again.
const windowUses = 250

// A registration is memory that can be granted in parts.
type registration struct {
	conn   *conn
	memory []byte
	region *region // nil if the memory is empty
	once   sync.Once
	ended  bool // guarded by conn.mu
}

// A grant is valid while its window is bound.
type grant struct {
	of     *registration
	key    transport.RemoteKey
	window *verbs.Window // nil for a grant of no bytes, and after the end; guarded by conn.mu
	exact  *region       // of the bytes of the grant alone, or nil; see device.loose

	revoking sync.Mutex
	asked    bool          // a msgRecall was sent; guarded by conn.mu
	recalled bool          // the peer has answered it; guarded by conn.mu
	wake     chan struct{} // has capacity 1
}

// remoteMin is the length of the shortest payload in mapped memory that is written remotely. For shorter ones, a copy should cost
// less than a binding, its end and their messages; this is not measured.
const remoteMin = 32 << 10

// Suits implements [transport.RemoteMemory].
func (c *conn) Suits(memory []byte) bool {
	c.mu.Lock()
	failed := c.err != nil
	c.mu.Unlock()
	if failed {
		return false
	}
	return len(memory) >= c.t.dev.pinMin || len(memory) >= remoteMin && isMapped(memory)
}

// Register implements [transport.RemoteMemory].
func (c *conn) Register(memory []byte) (transport.Registration, error) {
	if !c.hold() {
		return nil, c.Err()
	}
	defer c.letGo()
	r := &registration{conn: c, memory: memory}
	if len(memory) > 0 {
		var err error
		if r.region, err = c.t.dev.register(memory); err != nil {
			return nil, fmt.Errorf("rdma: register memory: %w", err)
		}
	}
	return r, nil
}

// Grant implements [transport.Registration]. It binds a window for the QP of the conn. The QP binds before it sends anything that
// is posted later, so the end of the binding need not be awaited.
func (r *registration) Grant(offset, n int) (transport.Grant, error) {
	c := r.conn
	if offset < 0 || n < 0 || n > len(r.memory) || offset > len(r.memory)-n {
		return nil, fmt.Errorf("rdma: grant of %d bytes at %d: the registration has %d bytes", n, offset, len(r.memory))
	}
	g := &grant{of: r, wake: make(chan struct{}, 1)}
	if n > 0 && c.t.dev.loose {
		var err error
		if g.exact, err = c.t.dev.registerExactly(r.memory[offset : offset+n]); err != nil {
			return nil, fmt.Errorf("rdma: grant: %w", err)
		}
	}
	if err := g.bind(offset, n); err != nil {
		g.releaseExact()
		return nil, err
	}
	return g, nil
}

// releaseExact ends the registration of the grant alone, after the end of its window.
func (g *grant) releaseExact() {
	if g.exact != nil {
		g.exact.release()
		g.exact = nil
	}
}

// bind posts the binding of a window.
func (g *grant) bind(offset, n int) error {
	r := g.of
	c := r.conn
	mr := (*verbs.MR)(nil)
	if n > 0 {
		mr = r.region.mr
		if g.exact != nil {
			mr = g.exact.mr
		}
	}
	c.mu.Lock()
	err := c.err
	if err == nil && r.ended {
		err = fmt.Errorf("rdma: grant of remote memory: %w", transport.ErrClosed)
	}
	if err != nil {
		c.mu.Unlock()
		return err
	}
	c.lastGrant++
	g.key = transport.RemoteKey{Key: uint64(c.qp.Number)<<40 | uint64(c.lastGrant&0xff)<<32, Len: uint64(n)}
	var broken error
	if n > 0 {
		at := addr(r.memory[offset:])
		g.key.Addr = uint64(uintptr(at))
		var full error
		if full, broken = c.roomLocked(); full == nil && broken == nil {
			g.window, err = c.takeWindowLocked()
		}
		if full != nil {
			err = full
		}
		if err == nil && broken == nil {
			broken = c.requestLocked(request{slot: -1}, func(id uint64) error { return c.qp.Bind(id, g.window, mr, at, n) })
			g.key.Key |= uint64(g.window.Key)
			c.grants[g] = struct{}{}
		}
	} else {
		c.grants[g] = struct{}{}
	}
	c.mu.Unlock()
	if broken != nil {
		c.end(broken)
		return c.Err()
	}
	return err
}

// roomLocked returns full if the send queue has no entry. The conn ends with broken.
func (c *conn) roomLocked() (full, broken error) {
	if len(c.freeReqs) == 0 {
		if broken = c.pollLocked(); broken != nil {
			return nil, broken
		}
	}
	if len(c.freeReqs) == 0 {
		full = errors.New("rdma: the send queue is full")
	}
	return full, nil
}

func (c *conn) takeWindowLocked() (*verbs.Window, error) {
	if n := len(c.windows); n > 0 {
		w := c.windows[n-1]
		c.windows = c.windows[:n-1]
		return w, nil
	}
	return c.t.dev.pd.NewWindow()
}

// Key implements [transport.Grant].
func (g *grant) Key() transport.RemoteKey { return g.key }

// Recall implements [transport.Grant]. The answer of the peer is handled with the completions, by any goroutine.
func (g *grant) Recall(ctx context.Context) error {
	c := g.of.conn
	for {
		c.mu.Lock()
		err := errors.Join(c.err, ctx.Err())
		var broken error
		if err == nil && g.window != nil && !g.asked {
			g.asked = true
			broken = c.tellLocked(system{kind: msgRecall, pipe: uint32(g.key.Key>>32) & 0xff, arg: uint32(g.key.Key)})
		}
		done := g.window == nil || g.recalled
		c.mu.Unlock()
		switch {
		case broken != nil:
			c.end(broken)
			return c.Err()
		case err != nil || done:
			return err
		}
		c.await(g.wake, ctx.Done())
	}
}

// recalledMax bounds the keys that a conn remembers as recalled by the peer.
const recalledMax = 256

// recallLocked handles a msgRecall of the peer: writes with this key are no longer posted. The answer follows when
// those in progress have ended.
func (c *conn) recallLocked(key uint64) error {
	if len(c.recalled) == recalledMax {
		c.recalled = append(c.recalled[:0], c.recalled[1:]...)
	}
	c.recalled = append(c.recalled, key)
	if c.writes[key] > 0 {
		return nil
	}
	return c.tellLocked(system{kind: msgRecalled, pipe: uint32(key>>32) & 0xff, arg: uint32(key)})
}

// recalledLocked handles the answer to a msgRecall.
func (c *conn) recalledLocked(key uint64) {
	for g := range c.grants {
		if g.key.Key == key && g.asked {
			g.recalled = true
			poke(g.wake)
		}
	}
}

// beginWrite counts a call of WriteRemote. It fails if the key is recalled, or of another conn.
func (c *conn) beginWrite(key uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return c.err
	case uint32(key>>40) != c.route.QP:
		return fmt.Errorf("rdma: %w: the key is of another connection", transport.ErrRemoteAccess)
	case slices.Contains(c.recalled, key):
		return fmt.Errorf("rdma: %w: %q has recalled the key", transport.ErrRemoteAccess, c.Peer())
	}
	c.uses++
	c.writes[key]++
	return nil
}

func (c *conn) endWrite(key uint64) {
	c.mu.Lock()
	var broken error
	if c.writes[key]--; c.writes[key] == 0 {
		delete(c.writes, key)
		if c.err == nil && slices.Contains(c.recalled, key) {
			broken = c.tellLocked(system{kind: msgRecalled, pipe: uint32(key>>32) & 0xff, arg: uint32(key)})
		}
	}
	c.uses--
	c.freeLocked()
	c.mu.Unlock()
	if broken != nil {
		c.end(broken)
	}
}

// Revoke implements [transport.Grant]. It invalidates the window.
func (g *grant) Revoke() {
	g.revoking.Lock()
	defer g.revoking.Unlock()
	c := g.of.conn
	o := newOp()
	c.mu.Lock()
	_, stands := c.grants[g]
	delete(c.grants, g)
	w := g.window
	g.window = nil
	var broken error
	if !stands || w == nil || c.qp == nil {
		c.mu.Unlock()
		return // The end of the conn has freed the window.
	}
	full, broken := c.roomLocked()
	if full != nil || broken != nil {
		// The window is freed at once.
		w.Close()
		g.releaseExact()
		c.mu.Unlock()
		if broken != nil {
			c.end(broken)
		}
		return
	}
	// The end of the conn must find the window.
	g.window = w
	c.grants[g] = struct{}{}
	o.left++
	broken = c.requestLocked(request{slot: -1, op: o}, func(id uint64) error { return c.qp.Invalidate(id, w) })
	c.mu.Unlock()
	if broken != nil {
		c.end(broken)
	}
	isInvalid := c.finish(o)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !isInvalid || c.qp == nil {
		return // as above
	}
	delete(c.grants, g)
	g.window = nil
	g.releaseExact()
	if w.Uses < windowUses {
		c.windows = append(c.windows, w)
	} else {
		w.Close()
	}
}

// endGrantsLocked frees all windows at the end of the conn.
func (c *conn) endGrantsLocked() {
	for g := range c.grants {
		if g.window != nil {
			g.window.Close()
			g.window = nil
			poke(g.wake)
		}
		g.releaseExact()
	}
	for _, w := range c.windows {
		w.Close()
	}
	c.grants, c.windows = nil, nil
}

// Deregister implements [transport.Registration].
func (r *registration) Deregister() {
	c := r.conn
	c.mu.Lock()
	r.ended = true
	var standing []*grant
	for g := range c.grants {
		if g.of == r {
			standing = append(standing, g)
		}
	}
	c.mu.Unlock()
	for _, g := range standing {
		g.Revoke()
	}
	r.once.Do(func() {
		if r.region != nil {
			r.region.release()
		}
	})
}

// writeMax is the length of the longest write. A call whose context ends posts no further write, and waits for those posted.
const writeMax = 4 << 20

// WriteRemote implements [transport.RemoteMemory]. A write that the peer refuses ends the conn.
func (c *conn) WriteRemote(ctx context.Context, key transport.RemoteKey, offset int, p []byte) error {
	if err := errors.Join(ctx.Err(), c.Err()); err != nil {
		return err
	}
	switch {
	case offset < 0 || len(p) > int(key.Len) || offset > int(key.Len)-len(p):
		return fmt.Errorf("rdma: %w: %d bytes at %d of a grant of %d", transport.ErrRemoteAccess, len(p), offset, key.Len)
	case len(p) == 0:
		return nil
	}
	if err := c.beginWrite(key.Key); err != nil {
		return err
	}
	defer c.endWrite(key.Key)
	size := len(p)
	var from *region
	step := slotBytes
	isGPU := exposures.find(nil, p) != nil // before it is registered: it may be closed meanwhile, and the processor cannot copy it
	if isGPU || isMapped(p) || len(p) >= c.t.dev.pinMin {
		var err error
		if from, err = c.t.dev.register(p); err == nil {
			defer from.release()
			step = writeMax
		} else if isGPU {
			return fmt.Errorf("rdma: write memory of a GPU: %w", err)
		}
	}
	o := newOp()
	to := key.Addr + uint64(offset)
	for len(p) > 0 {
		k := min(len(p), step)
		if err := c.writeOnce(ctx, o, p[:k], from, to, key.Key); err != nil {
			c.finish(o)
			return c.refused(o, err)
		}
		p, to = p[k:], to+uint64(k)
	}
	if !c.finish(o) {
		return c.refused(o, c.Err())
	}
	c.t.cfg.Counters.written.Add(uint64(size))
	return nil
}

// refused returns the error of a write: err unless the peer has refused it.
func (c *conn) refused(o *op, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case o.status == verbs.StatusRemoteKey:
		return fmt.Errorf("rdma: %w by %q", transport.ErrRemoteAccess, c.Peer())
	case err == nil:
		return c.err
	}
	return err
}

// writeOnce posts one write when there is room.
func (c *conn) writeOnce(ctx context.Context, o *op, p []byte, from *region, to, key uint64) error {
	for {
		c.mu.Lock()
		err := errors.Join(c.err, ctx.Err())
		if err == nil && slices.Contains(c.recalled, key) {
			err = fmt.Errorf("rdma: %w: %q has recalled the key", transport.ErrRemoteAccess, c.Peer())
		}
		ready := err == nil && len(c.freeReqs) > sendSpare && (from != nil || len(c.freeSend) > 0)
		if ready {
			r := request{slot: -1, op: o}
			var local uint32
			if from != nil {
				local = from.mr.Local
			} else {
				r.slot = c.takeSendSlotLocked()
				s := c.send[r.slot]
				p, local = s.memory[:copy(s.memory, p)], s.key
				c.t.cfg.Counters.copied.Add(uint64(len(p)))
			}
			o.left++
			err = c.requestLocked(r, func(id uint64) error { return c.qp.Write(id, p, local, to, uint32(key)) })
		}
		wait := o.left > 0
		var w *sender
		if !ready && err == nil && !wait { // under the same lock, so that no completion is missed
			w = &sender{wake: make(chan struct{}, 1)}
			c.waiting = append(c.waiting, w)
		}
		c.mu.Unlock()
		switch {
		case ready && err != nil:
			c.end(err)
			return c.Err()
		case ready || err != nil:
			return err
		case wait:
			if !c.finish(o) {
				return c.Err()
			}
		default:
			c.await(w.wake, ctx.Done())
		}
	}
}
