package link

import (
	"bytes"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A valve writes some bytes and then blocks until more are allowed or the deadline has passed.
type valve struct {
	transport.Sender
	mu    sync.Mutex
	wake  sync.Cond
	left  int
	late  bool
	stuck bool // the writer waits
}

func newValve(s transport.Sender, left int) *valve {
	v := &valve{Sender: s, left: left}
	v.wake.L = &v.mu
	return v
}

func (v *valve) Write(p []byte) (int, error) {
	n := 0
	v.mu.Lock()
	defer v.mu.Unlock()
	for n < len(p) {
		for v.left == 0 && !v.late {
			v.stuck = true
			v.wake.Broadcast()
			v.wake.Wait()
		}
		v.stuck = false
		if v.late {
			return n, os.ErrDeadlineExceeded
		}
		k := min(len(p)-n, v.left)
		v.left -= k
		v.mu.Unlock()
		m, err := v.Sender.Write(p[n : n+k])
		v.mu.Lock()
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

func (v *valve) SetWriteDeadline(t time.Time) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.late = !t.IsZero()
	v.wake.Broadcast()
	return nil
}

func (v *valve) allow(n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.left += n
	v.wake.Broadcast()
}

func (v *valve) waitStuck() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for !v.stuck {
		v.wake.Wait()
	}
}

// A vectorValve has a VectorWriter and counts its calls.
type vectorValve struct {
	*valve
	calls *int
}

func (v vectorValve) Capabilities() transport.Capabilities {
	return transport.Capabilities{VectorWriter: v}
}

func (v vectorValve) WriteVectored(pieces [][]byte) (n int, err error) {
	*v.calls++
	for i, p := range pieces {
		m, err := v.Write(p)
		n += m
		if err != nil {
			return n, err
		}
		pieces[i] = nil // as net.Buffers does
	}
	return n, nil
}

// withValve returns a link, the valve of its bulk lane, and the link of the peer.
func withValve(t *testing.T, left int) (a *Link, v *valve, b *Link) {
	t.Helper()
	return withValves(t, left, nil)
}

// withValves is withValve. With a counter, the pipe is a vectorValve.
func withValves(t *testing.T, left int, calls *int) (a *Link, v *valve, b *Link) {
	t.Helper()
	ca, cb := conns(t)
	v = newValve(nil, left)
	a = start(t, &conn{Conn: ca, sender: func(lane wire.Lane, s transport.Sender) transport.Sender {
		if lane != wire.Bulk {
			return s
		}
		if v.Sender = s; calls != nil {
			return vectorValve{v, calls}
		}
		return v
	}}, newHandler())
	t.Cleanup(func() { v.allow(1 << 40) })
	return a, v, start(t, cb, newHandler())
}

// headSize is the length of the head of a segment.
var headSize = func() int {
	var s wire.Segment
	return len(s.Append(nil))
}()

// TestRecallAtEveryMoment recalls a transfer where the pipe blocks: in the preamble, in a head, in a
// payload, between segments. The memory is free at once, and the next transfer is complete.
func TestRecallAtEveryMoment(t *testing.T) {
	t.Run("one piece after the other", func(t *testing.T) { recallAtEveryMoment(t, nil) })
	t.Run("both pieces at once", func(t *testing.T) {
		calls := 0
		if recallAtEveryMoment(t, &calls); calls == 0 {
			t.Error("head and payload are written separately")
		}
	})
}

func recallAtEveryMoment(t *testing.T, calls *int) {
	const size = 2*wire.SegmentMax + 1000
	segment := headSize + wire.SegmentMax
	for _, pass := range []int{
		0, 1, wire.PreambleSize, wire.PreambleSize + 1, wire.PreambleSize + headSize - 1, wire.PreambleSize + headSize,
		wire.PreambleSize + headSize + 1, wire.PreambleSize + segment/2, wire.PreambleSize + segment - 1,
		wire.PreambleSize + segment, wire.PreambleSize + segment + 3, wire.PreambleSize + 2*segment + headSize + 999,
	} {
		a, v, b := withValves(t, pass, calls)
		data := filler(size, 1)
		first := newPlace(size)
		s := &Sink{Dst: first.mem, Owner: make(signal)}
		tr := &Transfer{Grant: b.Grant(s), Data: data, Owner: make(signal)}
		a.Deliver(tr)
		soon(t, "the valve", v.waitStuck)
		soon(t, "Recall", func() { a.Recall(tr) })
		clear(data) // for the race detector
		second, filled := newPlace(1000), make(signal)
		next := filler(1000, 2)
		a.Deliver(&Transfer{Grant: b.Grant(&Sink{Dst: second.mem, Owner: filled}), Data: next, Owner: make(signal)})
		v.allow(1 << 40)
		filled.wait(t, "the next sink")
		if !bytes.Equal(second.mem, next) {
			t.Errorf("after %d bytes: the payload of the next transfer differs", pass)
		}
		soon(t, "Ungrant", func() { b.Ungrant(s) })
		got := s.next.at
		if want := filler(size, 1); !bytes.Equal(first.mem[:got], want[:got]) {
			t.Errorf("after %d bytes: the first %d bytes of the payload differ", pass, got)
		}
		if tr.Owner.(signal).told() || s.Owner.(signal).told() && got < size {
			t.Errorf("after %d bytes: Delivered was called", pass)
		}
		a.Abort()
		b.Abort()
	}
}

// TestRecallOfQueuedTransfer: a transfer that is not the current one leaves the queue. Recall of one
// that was never delivered, or on a link that has ended, has no effect.
func TestRecallOfQueuedTransfer(t *testing.T) {
	a, v, b := withValve(t, 0)
	grant := func() (uint64, signal) {
		s := make(signal)
		return b.Grant(&Sink{Dst: make([]byte, 100), Owner: s}), s
	}
	id1, s1 := grant()
	id2, s2 := grant()
	id3, s3 := grant()
	one := &Transfer{Grant: id1, Data: make([]byte, 100), Owner: make(signal)}
	two := &Transfer{Grant: id2, Data: make([]byte, 100), Owner: make(signal)}
	three := &Transfer{Grant: id3, Data: make([]byte, 100), Owner: make(signal)}
	a.Deliver(one)
	a.Deliver(two)
	a.Deliver(three)
	soon(t, "the valve", v.waitStuck)
	soon(t, "Recall", func() { a.Recall(two); a.Recall(&Transfer{}) })
	v.allow(1 << 40)
	s1.wait(t, "the first")
	s3.wait(t, "the third")
	if s2.told() || two.Owner.(signal).told() {
		t.Error("a recalled transfer was sent")
	}
	a.Abort()
	soon(t, "Recall", func() { a.Recall(one); a.Recall(three) })
	a.Deliver(two) // It has no effect.
	soon(t, "Recall", func() { a.Recall(two) })
}

// TestTransfersTakeTurns: a short transfer behind a long one is sent after one segment of it, and
// long transfers share the lane.
func TestTransfersTakeTurns(t *testing.T) {
	ca, cb := conns(t)
	v := newValve(nil, wire.PreambleSize+1)
	a := start(t, &conn{Conn: ca, sender: func(lane wire.Lane, s transport.Sender) transport.Sender {
		if lane != wire.Bulk {
			return s
		}
		v.Sender = s
		return v
	}}, newHandler())
	long := make([]byte, 4*wire.SegmentMax)
	a.Deliver(&Transfer{Grant: 1, Data: long, Owner: ignore{}})
	soon(t, "the valve", v.waitStuck)
	a.Deliver(&Transfer{Grant: 2, Data: make([]byte, 10), Owner: ignore{}})
	a.Deliver(&Transfer{Grant: 3, Data: long, Owner: ignore{}})
	v.allow(1 << 40)
	bulk := laneOf(t, cb, wire.Bulk)
	want := []uint64{1, 2, 3, 1, 3, 1, 3, 1, 3}
	for i, grant := range want {
		head := make([]byte, headSize)
		if _, err := io.ReadFull(bulk, head); err != nil {
			t.Fatal(err)
		}
		s, err := wire.ParseSegment(head)
		if err != nil {
			t.Fatal(err)
		}
		if s.Grant != grant {
			t.Errorf("segment %d is of transfer %d, want %d", i, s.Grant, grant)
		}
		if _, err := bulk.ReadFunc(s.Length, func([]byte) {}); err != nil {
			t.Fatal(err)
		}
	}
}

// laneOf accepts the lanes of a link and returns one of them.
func laneOf(t testing.TB, c transport.Conn, want wire.Lane) transport.Receiver {
	t.Helper()
	for range wire.Lanes {
		p, err := c.AcceptPipe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pre, err := acceptLane(p)
		if err == nil {
			_, err = readResume(p, pre)
		}
		if err != nil {
			t.Fatal(err)
		}
		if pre.Lane == want {
			return p
		}
	}
	t.Fatalf("no %v lane", want)
	return nil
}

// TestCloseWaitsForTransfers: the goodbye of the bulk lane follows all transfers.
func TestCloseWaitsForTransfers(t *testing.T) {
	a, v, b := withValve(t, 0)
	filled := make(signal)
	data := filler(3<<20, 1)
	dst := make([]byte, len(data))
	a.Deliver(&Transfer{Grant: b.Grant(&Sink{Dst: dst, Owner: filled}), Data: data, Owner: make(signal)})
	closed := make(signal)
	go func() {
		a.Close(within(t, 10*time.Second))
		close(closed)
	}()
	time.Sleep(10 * time.Millisecond)
	if closed.told() {
		t.Fatal("Close does not wait for a transfer")
	}
	v.allow(1 << 40)
	closed.wait(t, "Close")
	if !filled.told() || !bytes.Equal(dst, data) {
		t.Error("the transfer has not arrived")
	}
}

// TestDeliverWhenClosed: a transfer that is reused on a closed link loses its writer of the earlier
// link.
func TestDeliverWhenClosed(t *testing.T) {
	a, b := pair(t, newHandler(), newHandler(), nil)
	sent := make(signal)
	data := filler(2<<20, 1)
	tr := &Transfer{Grant: b.Grant(&Sink{Dst: make([]byte, len(data)), Owner: make(signal)}), Data: data, Owner: sent}
	a.Deliver(tr)
	a.Push()
	sent.wait(t, "the transfer")
	if tr.writer == nil {
		t.Fatal("the transfer had no writer")
	}
	other, _ := pair(t, newHandler(), newHandler(), nil)
	other.exchange().bulk.mu.Lock()
	other.exchange().bulk.closed = true
	other.exchange().bulk.mu.Unlock()
	other.Deliver(tr)
	if tr.writer != nil {
		t.Error("the transfer still has a writer")
	}
	other.Recall(tr)
}
