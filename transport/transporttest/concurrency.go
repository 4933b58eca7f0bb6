package transporttest

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// testConcurrency: with many dials, pipes and writes at once, and conns that end at any
// moment, no call hangs and no wrong byte arrives. Run it with the race detector.
func testConcurrency(x *check) {
	const dialers, rounds = 4, 8
	ctx, cancel := context.WithCancel(x.tb.Context())
	defer cancel()
	for i := range x.cluster.Transports {
		x.spawn(func() { x.serve(ctx, i) })
	}
	var group sync.WaitGroup
	for i := range dialers {
		group.Add(1)
		x.spawn(func() {
			defer group.Done()
			rng := rand.New(rand.NewPCG(5, uint64(i)))
			for range rounds {
				x.dialAndWrite(ctx, rng)
			}
		})
	}
	group.Wait()
}

// serve accepts all conns of a transport and reads all their pipes.
func (x *check) serve(ctx context.Context, i int) {
	for {
		c, err := x.cluster.Transports[i].Accept(ctx)
		if !x.accepted(err, "accept") {
			return
		}
		x.spawn(func() {
			for {
				r, err := c.AcceptPipe(ctx)
				if !x.accepted(err, "accept a pipe") {
					return
				}
				x.spawn(func() { x.drain(r, x.data.stream(0)) })
			}
		})
	}
}

// dialAndWrite dials a random transport, writes to several pipes concurrently, and closes
// the conn during or after the writes.
func (x *check) dialAndWrite(ctx context.Context, rng *rand.Rand) {
	from := rng.IntN(len(x.cluster.Transports))
	to := (from + 1 + rng.IntN(len(x.cluster.Transports)-1)) % len(x.cluster.Transports)
	c, err := x.cluster.Transports[from].Dial(ctx, x.cluster.Transports[to].Addr(), x.cluster.identity(to))
	x.must(err, "dial from %d to %d", from, to)
	var group sync.WaitGroup
	for range 3 {
		n, pause := rng.IntN(300_000), time.Duration(rng.IntN(2000))*time.Microsecond
		group.Add(1)
		x.spawn(func() {
			defer group.Done()
			x.writePipe(ctx, c, n, pause)
		})
	}
	if rng.IntN(2) == 0 {
		group.Wait()
	} else {
		time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond)
	}
	x.must(c.Close(), "close a conn")
	group.Wait()
}

// writePipe writes n bytes to a new pipe, with one interruption, unless the conn ends.
func (x *check) writePipe(ctx context.Context, c transport.Conn, n int, pause time.Duration) {
	s, err := c.OpenPipe(ctx)
	if !x.accepted(err, "open a pipe") {
		return
	}
	timer := time.AfterFunc(pause, func() { s.SetWriteDeadline(time.Unix(1, 0)) })
	defer timer.Stop()
	for off := 0; off < n; {
		k, err := s.Write(x.data.stream(0).bytes(off, n-off))
		off += k
		if err != nil && isEnd(err) {
			return
		}
		s.SetWriteDeadline(time.Time{})
	}
	x.must(s.Close(), "close a pipe")
}
