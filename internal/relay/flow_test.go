package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/relay/relaytest"
	"github.com/nexar-go/nexar/transport"
)

// A flow sends bytes from a node to another one, over conns that are dialed again when they end, from the byte on that has not arrived: as a
// link does.
type flow struct {
	n        *network
	id       uint32
	from, to int
	size     int
	abort    chan struct{} // closed if one of the nodes dies
	dials    int
	started  time.Time
	took     time.Duration

	mu       sync.Mutex
	reader   transport.Conn // over which the destination reads
	reading  sync.Mutex     // held by the goroutine that reads
	got      int
	progress atomic.Int64
}

// byteAt is a byte of the flow.
func (f *flow) byteAt(i int) byte { return byte(i*7) ^ byte(i>>8) ^ byte(f.id*31) }

// flows are the flows of a network, by id.
type flows struct {
	n    *network
	mu   sync.Mutex
	list []*flow
	work sync.WaitGroup
}

// newFlows lets all nodes accept conns.
func newFlows(n *network) *flows {
	x := &flows{n: n}
	for _, e := range n.endpoints {
		x.work.Go(func() {
			for {
				c, err := e.Accept(context.Background())
				if err != nil {
					return
				}
				x.work.Go(func() { x.serve(c) })
			}
		})
	}
	return x
}

// add returns a new flow.
func (x *flows) add(from, to, size int) *flow {
	x.mu.Lock()
	defer x.mu.Unlock()
	f := &flow{n: x.n, id: uint32(len(x.list)), from: from, to: to, size: size, abort: make(chan struct{})}
	x.list = append(x.list, f)
	return f
}

// serve reads a flow from a conn: it tells the sender the first byte that is missing.
func (x *flows) serve(c transport.Conn) {
	defer c.Close()
	r, err := c.AcceptPipe(context.Background())
	if err != nil {
		return
	}
	var id [4]byte
	if _, err := io.ReadFull(r, id[:]); err != nil {
		return
	}
	x.mu.Lock()
	f := x.list[binary.BigEndian.Uint32(id[:])]
	x.mu.Unlock()
	f.mu.Lock()
	before := f.reader
	f.reader = c
	f.mu.Unlock()
	if before != nil {
		before.Close()
	}
	f.reading.Lock()
	defer f.reading.Unlock()
	s, err := c.OpenPipe(context.Background())
	if err != nil {
		return
	}
	if _, err := s.Write(binary.BigEndian.AppendUint64(nil, uint64(f.got))); err != nil {
		return
	}
	buf := make([]byte, 16<<10)
	for {
		k, err := r.Read(buf)
		for _, b := range buf[:k] {
			if b != f.byteAt(f.got) {
				x.n.tb.Errorf("flow %d from %d to %d: byte %d is %#x, want %#x", f.id, f.from, f.to, f.got, b, f.byteAt(f.got))
				return
			}
			f.got++
		}
		f.progress.Add(int64(k))
		if err == io.EOF && f.got == f.size {
			s.Write([]byte{1})
			<-c.Done()
			return
		}
		if err != nil {
			return
		}
	}
}

// run sends the flow, and returns when all of it has arrived.
func (f *flow) run(ctx context.Context) error {
	f.started = time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-f.abort:
			cancel(errAborted)
		case <-ctx.Done():
		}
	}()
	for {
		f.dials++
		err := f.attempt(ctx)
		if err == nil {
			f.took = time.Since(f.started)
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("flow %d from %d to %d: %d of %d bytes after %d dials: %w: %w", f.id, f.from, f.to, f.progress.Load(), f.size, f.dials, context.Cause(ctx), err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

var errAborted = errors.New("a node has died")

// attempt sends the flow over one conn.
func (f *flow) attempt(ctx context.Context) error {
	c, err := f.n.endpoints[f.from].Dial(ctx, relaytest.ID(f.to).String(), "")
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	s, err := c.OpenPipe(ctx)
	if err != nil {
		return err
	}
	if _, err := s.Write(binary.BigEndian.AppendUint32(nil, f.id)); err != nil {
		return err
	}
	r, err := c.AcceptPipe(ctx)
	if err != nil {
		return err
	}
	var number [8]byte
	if _, err := io.ReadFull(r, number[:]); err != nil {
		return err
	}
	buf := make([]byte, 16<<10)
	for at := int(binary.BigEndian.Uint64(number[:])); at < f.size; {
		k := min(len(buf), f.size-at)
		for i := range k {
			buf[i] = f.byteAt(at + i)
		}
		if _, err := s.Write(buf[:k]); err != nil {
			return err
		}
		at += k
	}
	if err := s.Close(); err != nil {
		return err
	}
	_, err = io.ReadFull(r, number[:1])
	return err
}
