package transporttest

import (
	"bytes"
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/nexar-go/nexar/transport"
)

// A remotePair is a conn over which one side writes to registered memory of the other.
type remotePair struct {
	*check
	writing, owning transport.Conn
	writer, owner   transport.RemoteMemory
	memory          []byte // of the owner
	reg             transport.Registration
	keys            transport.Sender // the owner writes a byte behind each grant, since keys are valid for a peer that reads from a pipe
	learn           transport.Receiver
}

// remotePair connects the two, and registers size bytes.
func (x *check) remotePair(size int) *remotePair {
	x.tb.Helper()
	p := &remotePair{check: x, memory: make([]byte, size)}
	p.connect()
	x.atEnd = func() { p.reg.Deregister() }
	return p
}

func (p *remotePair) connect() {
	p.tb.Helper()
	p.writing, p.owning = p.pair()
	p.writer = transport.CapabilitiesOf(p.writing).RemoteMemory
	p.owner = transport.CapabilitiesOf(p.owning).RemoteMemory
	p.need("remote", p.writer != nil && p.owner != nil, "its conns lack the capability RemoteMemory")
	p.keys, p.learn = p.pipe(p.owning, p.writing)
	p.register()
}

// reconnect connects the two again if a refused write has ended their conn, and reports whether it has.
func (p *remotePair) reconnect() bool {
	p.tb.Helper()
	if p.writing.Err() == nil {
		return false
	}
	p.await(p.owning.Done(), "end of the owner's side after that of the writer's")
	p.reg.Deregister()
	p.connect()
	return true
}

func (p *remotePair) register() {
	p.tb.Helper()
	var err error
	p.reg, err = p.owner.Register(p.memory)
	p.must(err, "register %d bytes", len(p.memory))
}

func (p *remotePair) grant(offset, n int) transport.Grant {
	p.tb.Helper()
	g, err := p.reg.Grant(offset, n)
	p.must(err, "grant %d bytes at %d", n, offset)
	if got := g.Key().Len; got != uint64(n) {
		p.fatal("key of a grant of %d bytes: Len is %d", n, got)
	}
	p.check.write(p.keys, []byte{1})
	_, err = p.learn.Read(make([]byte, 1))
	p.must(err, "read a byte sent after a grant")
	return g
}

// write writes n bytes of the value v.
func (p *remotePair) write(key transport.RemoteKey, offset, n int, v byte) error {
	return p.writer.WriteRemote(p.tb.Context(), key, offset, bytes.Repeat([]byte{v}, n))
}

// wantUnwritten fails if a byte of memory[from:to] has been written.
func (p *remotePair) wantUnwritten(from, to int, what string) {
	p.tb.Helper()
	for i, v := range p.memory[from:to] {
		if v != 0 {
			p.fatal("%s changed byte %d", what, from+i)
		}
	}
}

// testRemoteWrite: a write changes exactly the bytes at its offset in the grant, before
// the peer reads anything that is sent later. Grants may overlap.
func testRemoteWrite(x *check) {
	const size, margin = 3 << 20, 1000
	p := x.remotePair(size + 2*margin)
	s, r := x.pipe(p.writing, p.owning)
	d := x.data.stream(0)
	whole, first := p.grant(margin, size), p.grant(0, margin)
	if whole.Key().Key == first.Key().Key {
		x.fatal("two grants of one conn have the key %d", whole.Key().Key)
	}
	for _, piece := range [][2]int{{0, 1}, {1, size - 3}, {size - 2, 2}, {size, 0}} {
		b := d.bytes(piece[0], piece[1])
		x.must(p.writer.WriteRemote(x.tb.Context(), whole.Key(), piece[0], b), "write %d bytes at %d", piece[1], piece[0])
		clear(b) // The caller may use its slice again.
	}
	x.write(s, []byte{1})
	if _, err := r.Read(make([]byte, 1)); err != nil {
		x.fatal("read a byte sent after the remote writes: %v", err)
	}
	if i := d.diff(p.memory[margin:margin+size], 0); i >= 0 {
		x.fatal("byte %d of the grant is wrong after the remote writes", i)
	}
	p.wantUnwritten(0, margin, "a write to another grant")
	p.wantUnwritten(margin+size, len(p.memory), "a write to a grant before it")
	x.must(p.write(first.Key(), margin-1, 1, 7), "write the last byte of a second grant")
	if p.memory[margin-1] != 7 {
		x.fatal("the last byte of a grant is %d after its write, want 7", p.memory[margin-1])
	}
}

// testRemoteRefused: forged keys and writes that exceed the grant fail and change
// nothing, as do grants that exceed the registration.
func testRemoteRefused(x *check) {
	p := x.remotePair(1000)
	key := p.grant(100, 100).Key()
	for _, test := range []struct {
		what      string
		forge     func(k *transport.RemoteKey)
		offset, n int
	}{
		{"a write past the end", func(*transport.RemoteKey) {}, 99, 2},
		{"a write before the start", func(*transport.RemoteKey) {}, -1, 1},
		{"a write whose end overflows", func(*transport.RemoteKey) {}, int(^uint(0) >> 1), 2},
		{"a write with an unknown key", func(k *transport.RemoteKey) { k.Key += 77 }, 0, 1},
		{"a write with a forged length", func(k *transport.RemoteKey) { k.Len = 1000 }, 200, 1},
		{"a write before the forged start", func(k *transport.RemoteKey) { k.Addr--; k.Len++ }, 0, 1},
		{"a write with the zero key", func(k *transport.RemoteKey) { *k = transport.RemoteKey{} }, 0, 1},
	} {
		k := key
		test.forge(&k)
		x.wantError(p.write(k, test.offset, test.n, 0xEE), transport.ErrRemoteAccess, "%s", test.what)
		p.wantUnwritten(0, len(p.memory), test.what)
		if p.reconnect() {
			key = p.grant(100, 100).Key()
		}
	}
	for _, bad := range [][2]int{{-1, 1}, {999, 2}, {0, 1001}, {0, -1}} {
		if _, err := p.reg.Grant(bad[0], bad[1]); err == nil {
			x.fatal("a grant of %d bytes at %d of 1000 succeeds", bad[1], bad[0])
		}
	}
}

// testRemoteOtherConn: a key is valid over the conn of its grant alone. Over another one it does no harm.
func testRemoteOtherConn(x *check) {
	p := x.remotePair(100)
	other, _ := x.pair()
	key := p.grant(0, 100).Key()
	err := transport.CapabilitiesOf(other).RemoteMemory.WriteRemote(x.tb.Context(), key, 0, []byte{1})
	x.wantError(err, transport.ErrRemoteAccess, "write over another conn")
	p.wantUnwritten(0, 100, "a write over another conn")
	x.must(other.Err(), "a conn after a write with a key of another one")
}

// testRemoteRevoke: after Revoke or Deregister has returned no byte is written, not even
// by writes that are in progress, and the key is not valid.
func testRemoteRevoke(x *check) {
	const size = 256 << 10
	p := x.remotePair(size)
	for round := range 50 {
		g := p.grant(0, size)
		key := g.Key()
		var over atomic.Bool
		var writers sync.WaitGroup
		var once sync.Once
		wrote := make(chan struct{})
		for range 2 {
			writers.Go(func() {
				for !over.Load() && p.write(key, 0, size, 1) == nil {
					once.Do(func() { close(wrote) })
					runtime.Gosched() // With one processor, two goroutines that wake each other can keep it for long.
				}
			})
		}
		x.await(wrote, "a write under the grant") // The next one is most likely in progress.
		revoke := "Revoke"
		if round%2 == 0 {
			g.Revoke()
			g.Revoke()
		} else {
			revoke = "Deregister"
			p.reg.Deregister()
			p.reg.Deregister()
		}
		clear(p.memory) // With the race detector, this finds a write in progress.
		over.Store(true)
		writers.Wait()
		p.wantUnwritten(0, size, "a write after "+revoke)
		if err := p.write(key, 0, 1, 1); p.writing.Err() == nil {
			x.wantError(err, transport.ErrRemoteAccess, "write after %s", revoke)
		} else if err == nil {
			x.fatal("write after %s succeeds although the conn has ended", revoke)
		}
		p.wantUnwritten(0, size, "a write with the key of an ended grant")
		if p.reconnect() {
			continue
		}
		if round%2 == 1 {
			if _, err := p.reg.Grant(0, 1); err == nil {
				x.fatal("a grant after Deregister succeeds")
			}
			p.register()
		}
	}
}

// testRemoteRecall: after Recall, writes of the peer fail and change nothing, and the conn stands: also writes that are in
// progress.
func testRemoteRecall(x *check) {
	const size = 256 << 10
	p := x.remotePair(size)
	for range 20 {
		g := p.grant(0, size)
		wrote, ended := make(chan struct{}), make(chan error, 1)
		var over atomic.Bool
		go func() {
			var once sync.Once
			for {
				last := over.Load()
				err := p.write(g.Key(), 0, size, 1)
				if err != nil || last {
					ended <- err
					return
				}
				once.Do(func() { close(wrote) })
			}
		}()
		x.await(wrote, "a write under the grant")
		x.must(g.Recall(x.tb.Context()), "recall a grant during writes")
		clear(p.memory) // With the race detector, this finds a write in progress.
		over.Store(true)
		x.wantError(<-ended, transport.ErrRemoteAccess, "write after Recall")
		x.must(g.Recall(x.tb.Context()), "recall a grant again")
		g.Revoke()
		x.wantError(p.write(g.Key(), 0, 1, 1), transport.ErrRemoteAccess, "write after Recall and Revoke")
		p.wantUnwritten(0, size, "a write after Recall")
		x.must(p.writing.Err(), "the conn after Recall")
	}
}

// testRemoteEnd: the end of the conn ends its grants, and a context ends a write.
func testRemoteEnd(x *check) {
	p := x.remotePair(100)
	key := p.grant(0, 100).Key()
	ctx, cancel := context.WithCancel(x.tb.Context())
	cancel()
	x.wantError(p.writer.WriteRemote(ctx, key, 0, []byte{1}), context.Canceled, "write with a cancelled context")
	x.must(p.owning.Close(), "close a conn")
	clear(p.memory)
	x.await(p.writing.Done(), "end of the other side")
	x.wantError(p.write(key, 0, 1, 1), transport.ErrPeerClosed, "write after the end of the conn")
	p.wantUnwritten(0, 100, "a write after the end of the conn")
	if _, err := p.reg.Grant(0, 1); err == nil {
		x.fatal("a grant after the end of the conn succeeds")
	}
}
