package link

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/shm"
)

// shmPair returns two links to each other in shared memory. writes counts the lazy writes of a.
func shmPair(t *testing.T, writes *atomic.Int64) (a, b *Link) {
	t.Helper()
	var nodes [2]transport.Transport
	for i, name := range []string{"a", "b"} {
		n, err := shm.New(shm.Config{Cluster: fmt.Sprintf("link-%s-%d", t.Name(), os.Getpid()), Node: name, AreaSize: 1 << 12})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Close() })
		nodes[i] = n
	}
	ctx := within(t, time.Minute)
	ca, err := nodes[0].Dial(ctx, "b", "b")
	if err != nil {
		t.Fatal(err)
	}
	cb, err := nodes[1].Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return newPair(t, ctx, lazyConn{ca, writes}, cb)
}

// newPair returns two links over a connection, each of which has read a frame of the other one.
func newPair(t *testing.T, ctx context.Context, ca, cb transport.Conn) (a, b *Link) {
	t.Helper()
	var both sync.WaitGroup
	for _, side := range []struct {
		link **Link
		conn transport.Conn
	}{{&a, ca}, {&b, cb}} {
		both.Go(func() { *side.link = start(t, side.conn, newHandler()) })
	}
	both.Wait()
	for _, l := range []*Link{a, b} {
		select {
		case <-l.ConfirmedPing():
		case <-ctx.Done():
			t.Fatal("a ping has no answer")
		}
	}
	return a, b
}

// A lazyConn counts the lazy writes of its pipes.
type lazyConn struct {
	transport.Conn
	writes *atomic.Int64
}

func (c lazyConn) Capabilities() transport.Capabilities {
	can := transport.CapabilitiesOf(c.Conn)
	can.LargeOpener = nil
	return can
}

func (c lazyConn) OpenPipe(ctx context.Context) (transport.Sender, error) {
	s, err := c.Conn.OpenPipe(ctx)
	return lazySender{s, c.writes}, err
}

type lazySender struct {
	transport.Sender
	writes *atomic.Int64
}

func (s lazySender) Capabilities() transport.Capabilities {
	can := transport.CapabilitiesOf(s.Sender)
	can.LazyWriter = s
	return can
}

func (s lazySender) TryWriteLazy(p []byte) bool {
	s.writes.Add(1)
	return transport.CapabilitiesOf(s.Sender).LazyWriter.TryWriteLazy(p)
}

// TestBeatsAreLazy: in shared memory beats are written lazily, ReadLazy reads them, and they arrive before a later frame.
func TestBeatsAreLazy(t *testing.T) {
	var writes atomic.Int64
	a, b := shmPair(t, &writes)
	const beats = 100
	before := b.exchange().heard.Load()
	for i := range beats {
		a.Beat()
		for end := time.Now().Add(time.Minute); b.exchange().heard.Load() < before+uint64(i)+1; runtime.Gosched() {
			b.ReadLazy() // Its own goroutine may be reading.
			if time.Now().After(end) {
				t.Fatalf("beat %d is not read", i)
			}
		}
	}
	if n := writes.Load(); n != beats {
		t.Errorf("%d of %d beats were written lazily", n, beats)
	}
	before = b.exchange().heard.Load()
	for range 3 {
		a.Beat()
	}
	<-a.ConfirmedPing()
	if got := b.exchange().heard.Load() - before; got != 4 {
		t.Errorf("read %d frames before the answer to a ping, want 3 beats and the ping", got)
	}
}

// TestBeatsWithoutWatcher: beats that no watcher reads wake the reader before they fill the pipe.
func TestBeatsWithoutWatcher(t *testing.T) {
	a, b := shmPair(t, new(atomic.Int64))
	<-a.ConfirmedPing() // The frames of the beginning have arrived.
	before := b.exchange().heard.Load()
	const beats = 20_000 // more bytes than the pipe holds
	for range beats {
		a.Beat()
	}
	<-a.ConfirmedPing()
	if got := b.exchange().heard.Load() - before; got != beats+1 {
		t.Errorf("read %d frames, want %d", got, beats+1)
	}
}
