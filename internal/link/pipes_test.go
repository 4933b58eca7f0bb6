package link

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A wrappedConn wraps its i-th sender by make.
type wrappedConn struct {
	transport.Conn
	opened int
	make   func(i int, s transport.Sender) transport.Sender
}

func (w *wrappedConn) OpenPipe(ctx context.Context) (transport.Sender, error) {
	s, err := w.Conn.OpenPipe(ctx)
	if err == nil {
		s = w.make(w.opened, s)
		w.opened++
	}
	return s, err
}

// TestUngrantAndRecallOverPipes withdraws transfers at random, over several pipes with small
// writes.
func TestUngrantAndRecallOverPipes(t *testing.T) {
	x := newApart(t)
	chopped := func(i int, s transport.Sender) transport.Sender { return chop(9999)(wire.Lane(i), s) }
	x.ba, x.bb = &wrappedConn{Conn: x.ba, make: chopped}, &wrappedConn{Conn: x.bb, make: chopped}
	x.start(3, 2).transferBothWays(t, 6)
	for _, l := range []*Link{x.a, x.b} {
		l.exchange().bulk.mu.Lock()
		for i, c := range l.exchange().bulk.writers {
			if c.load != 0 && len(c.queue) == 0 && c.current == nil {
				t.Errorf("writer %d is idle with a load of %d bytes", i, c.load)
			}
		}
		l.exchange().bulk.mu.Unlock()
	}
}

// TestShortestQueue: a transfer takes the pipe with the smallest load, and does not wait for a
// blocked pipe.
func TestShortestQueue(t *testing.T) {
	x := newApart(t)
	var valves []*valve
	x.ba = &wrappedConn{Conn: x.ba, make: func(_ int, s transport.Sender) transport.Sender {
		v := newValve(s, wire.PreambleSize)
		valves = append(valves, v)
		return v
	}}
	x.start(3, 1)
	x.a.OpenBulk()
	soon(t, "the bulk lane", func() { awaitPipes(x.a) })
	for _, v := range valves {
		t.Cleanup(func() { v.allow(1 << 40) })
	}
	valves = valves[1:] // without that of the data lane
	sums := make([]int, len(valves))
	var loads []*load
	var at []int // the pipe of each
	for i, n := range []int{3000, 2000, 1000, 500, 400, 2000} {
		least := slices.Index(sums, slices.Min(sums))
		sums[least] += n
		at = append(at, least)
		loads = append(loads, send(x.a, x.b, n, i))
	}
	x.a.exchange().bulk.mu.Lock()
	for i, c := range x.a.exchange().bulk.writers {
		if c.load != sums[i] {
			t.Errorf("the load of pipe %d is %d bytes, want %d", i, c.load, sums[i])
		}
	}
	x.a.exchange().bulk.mu.Unlock()
	for pipe := len(valves) - 1; pipe >= 0; pipe-- {
		valves[pipe].allow(1 << 40)
		for i, l := range loads {
			if at[i] == pipe {
				l.wait(t)
			}
		}
	}
}

// awaitPipes waits until the bulk lane of a link has its pipes.
func awaitPipes(l *Link) {
	for hasPipes := false; !hasPipes; time.Sleep(time.Millisecond) {
		l.exchange().bulk.mu.Lock()
		hasPipes = len(l.exchange().bulk.writers) > 0
		l.exchange().bulk.mu.Unlock()
	}
}

// TestTwoSinksAtOnce: each pipe has a reader, and no reader waits for another.
func TestTwoSinksAtOnce(t *testing.T) {
	x := newApart(t).start(2, 1)
	var both sync.WaitGroup
	both.Add(2)
	meet := func(dst, a, b []byte) {
		both.Done()
		both.Wait()
		copy(dst, b)
	}
	var filled [2]signal
	for i := range filled {
		filled[i] = make(signal)
		dst := make([]byte, 100)
		s := &Sink{Dst: dst, A: dst, Reduce: meet, Elem: 1, Owner: filled[i]}
		x.a.Deliver(&Transfer{Grant: x.b.Grant(s), Data: filler(100, i), Owner: ignore{}})
	}
	for i, f := range filled {
		f.wait(t, fmt.Sprint("sink ", i))
	}
}

// TestRecallBeforeThereIsAPipe: a transfer that waits for the second connection can be recalled; the
// later ones are sent.
func TestRecallBeforeThereIsAPipe(t *testing.T) {
	x := newApart(t)
	x.startA(1)
	x.startB(2)
	s := make(signal)
	tr := &Transfer{Grant: x.a.Grant(&Sink{Dst: make([]byte, 10), Owner: s}), Data: make([]byte, 10), Owner: s}
	x.b.Deliver(tr)
	next := send(x.b, x.a, 1000, 2)
	soon(t, "Recall", func() { x.b.Recall(tr) })
	x.come <- x.bb
	next.wait(t)
	if s.told() {
		t.Error("a recalled transfer was sent")
	}
}

// TestBulkPipesMustBeNamed: the preambles of the pipes of a bulk lane must agree.
func TestBulkPipesMustBeNamed(t *testing.T) {
	bulk := func(index, others uint8) []byte {
		return wire.Preamble{Lane: wire.Bulk, Index: index, Others: others}.Append(nil)
	}
	segment := func(offset uint64, n int) []byte {
		s := wire.Segment{Grant: 1, Offset: offset, Length: n}
		return append(s.Append(nil), make([]byte, n)...)
	}
	for name, test := range map[string]struct {
		pipes [][]byte
		want  string
	}{
		"the same twice":        {[][]byte{bulk(1, 2), bulk(1, 2)}, "a second bulk lane"},
		"of different counts":   {[][]byte{bulk(0, 2), bulk(1, 3)}, "pipes and of"},
		"another lane":          {[][]byte{wire.Preamble{Lane: wire.Control}.Append(nil)}, "a control lane on the second connection"},
		"too many":              {make([][]byte, wire.BulkPipesMax+2), "more than 9 pipes"},
		"a transfer over pipes": {[][]byte{append(bulk(0, 1), segment(0, 10)...), append(bulk(1, 1), segment(10, 10)...)}, "grant 1 through several pipes"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newApart(t)
			x.come <- x.bb
			x.startB(1)
			sink := &Sink{Dst: make([]byte, 100), Owner: ignore{}}
			x.b.Grant(sink)
			control, err := x.ca.OpenPipe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			control.Write(wire.Preamble{Lane: wire.Control, Flags: wire.PreambleApart}.Append(nil))
			for i, b := range test.pipes {
				s, err := x.ba.OpenPipe(t.Context())
				if err != nil {
					break
				}
				s.Write(b)
				for len(b) > wire.PreambleSize && i == 0 && x.b.Filling(sink) < 10 {
					runtime.Gosched()
				}
			}
			if err := x.hb.wait(t); !strings.Contains(err.Error(), "bulk over test: link: protocol error") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %q, want a protocol error with %q", err, test.want)
			}
		})
	}
}
