package transporttest

import (
	"context"
	"sync"

	"github.com/nexar-go/nexar/transport"
)

// remotes are both ends of a conn with the capability RemoteMemory, and memory of
// the second that is registered there.
func (x *check) remotes(n int) (a, b transport.Conn, writer transport.RemoteMemory, memory []byte, reg transport.Registration) {
	x.tb.Helper()
	a, b = x.pair()
	writer = transport.CapabilitiesOf(a).RemoteMemory
	owner := transport.CapabilitiesOf(b).RemoteMemory
	if writer == nil || owner == nil {
		x.skip("remote", "its conns lack the capability RemoteMemory")
	}
	memory = make([]byte, n)
	reg, err := owner.Register(memory)
	x.must(err, "register memory")
	return a, b, writer, memory, reg
}

func (x *check) grant(r transport.Registration, offset, n int) transport.Grant {
	x.tb.Helper()
	g, err := r.Grant(offset, n)
	x.must(err, "grant %d bytes at %d", n, offset)
	if got := g.Key().Len; got != uint64(n) {
		x.fatal("the key of a grant of %d bytes says %d", n, got)
	}
	return g
}

// testRemoteWrite: what is written is where it was granted, and nowhere else, before
// anything that is sent afterwards; keys differ, and several grants may be open.
func testRemoteWrite(x *check) {
	const size, room = 3 << 20, 1000
	a, b, writer, memory, reg := x.remotes(size + 2*room)
	s, r := x.pipe(a, b)
	d := x.data.stream(0)
	whole, first := x.grant(reg, room, size), x.grant(reg, 0, room)
	if whole.Key() == first.Key() || whole.Key().Key == first.Key().Key {
		x.fatal("two grants have the key %+v", whole.Key())
	}
	ctx := x.tb.Context()
	for _, piece := range [][2]int{{0, 1}, {1, size - 3}, {size - 2, 2}, {size, 0}} {
		p := d.bytes(piece[0], piece[1])
		x.must(writer.WriteRemote(ctx, whole.Key(), piece[0], p), "write %d bytes at %d", piece[1], piece[0])
		clear(p) // It may be used again.
	}
	x.write(s, []byte{1})
	if _, err := r.Read(make([]byte, 1)); err != nil {
		x.fatal("read what was sent after the writes: %v", err)
	}
	if i := d.diff(memory[room:room+size], 0); i >= 0 {
		x.fatal("byte %d of the granted memory is wrong", i)
	}
	for i, v := range memory {
		if (i < room || i >= room+size) && v != 0 {
			x.fatal("byte %d, which is outside the grant, was written", i)
		}
	}
	reg.Deregister()
}

// testRemoteRefused: a key that was forged, and a write beyond the grant, change nothing.
func testRemoteRefused(x *check) {
	_, _, writer, memory, reg := x.remotes(1000)
	key := x.grant(reg, 100, 100).Key()
	forged := func(change func(k *transport.RemoteKey)) transport.RemoteKey {
		k := key
		change(&k)
		return k
	}
	for what, test := range map[string]struct {
		key       transport.RemoteKey
		offset, n int
	}{
		"beyond the end":    {key, 99, 2},
		"before the start":  {key, -1, 1},
		"an overflow":       {key, int(^uint(0) >> 1), 2},
		"another key":       {forged(func(k *transport.RemoteKey) { k.Key += 77 }), 0, 1},
		"a longer grant":    {forged(func(k *transport.RemoteKey) { k.Len = 1000 }), 200, 1},
		"the key of nobody": {transport.RemoteKey{}, 0, 1},
	} {
		p := make([]byte, test.n)
		for i := range p {
			p[i] = 0xEE
		}
		x.wantError(writer.WriteRemote(x.tb.Context(), test.key, test.offset, p), transport.ErrRemoteAccess, "write with %s", what)
	}
	for i, v := range memory {
		if v != 0 {
			x.fatal("a refused write has changed byte %d", i)
		}
	}
	for _, wrong := range [][2]int{{-1, 1}, {999, 2}, {0, 1001}, {0, -1}} {
		if _, err := reg.Grant(wrong[0], wrong[1]); err == nil {
			x.fatal("a grant of %d bytes at %d of 1000 succeeds", wrong[1], wrong[0])
		}
	}
}

// testRemoteRevoke: when Revoke or Deregister has returned nothing touches the memory,
// whatever the peer does at that moment, and the key stays invalid.
func testRemoteRevoke(x *check) {
	const size = 256 << 10
	_, _, writer, memory, reg := x.remotes(size)
	ones := make([]byte, size)
	for i := range ones {
		ones[i] = 1
	}
	for round := range 50 {
		g := x.grant(reg, 0, size)
		key := g.Key()
		var writers sync.WaitGroup
		for range 2 {
			writers.Go(func() {
				for writer.WriteRemote(x.tb.Context(), key, 0, ones) == nil {
				}
			})
		}
		if round%2 == 0 {
			g.Revoke()
			g.Revoke()
		} else {
			reg.Deregister()
		}
		clear(memory) // The race detector sees a write that is still under way.
		writers.Wait()
		for i, v := range memory {
			if v != 0 {
				x.fatal("byte %d was written after the grant was revoked", i)
			}
		}
		x.wantError(writer.WriteRemote(x.tb.Context(), key, 0, ones[:1]), transport.ErrRemoteAccess, "write with a revoked key")
	}
}

// testRemoteEnd: grants end with their conn, and a cancelled write is an error.
func testRemoteEnd(x *check) {
	a, b, writer, memory, reg := x.remotes(100)
	key := x.grant(reg, 0, 100).Key()
	ctx, cancel := context.WithCancel(x.tb.Context())
	cancel()
	x.wantError(writer.WriteRemote(ctx, key, 0, []byte{1}), context.Canceled, "write with a cancelled context")
	x.must(b.Close(), "close a conn")
	x.await(a.Done(), "end of the other side")
	x.wantError(writer.WriteRemote(x.tb.Context(), key, 0, []byte{1}), transport.ErrPeerClosed, "write over a conn that has ended")
	clear(memory)
	if _, err := reg.Grant(0, 1); err == nil {
		x.fatal("a grant over a conn that has ended succeeds")
	}
}
