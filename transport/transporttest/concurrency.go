package transporttest

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// testConcurrency: everything at once, with conns that end at any moment. Its
// worth lies with the race detector; beside that, no call may hang, and no
// wrong byte may arrive.
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
				x.visit(ctx, rng)
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

// visit dials somebody, writes to some pipes at once, and hangs up while it
// does, sooner or later.
func (x *check) visit(ctx context.Context, rng *rand.Rand) {
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
			x.push(ctx, c, n, pause)
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

// push writes n bytes to a new pipe, interrupted once, unless the conn ends.
func (x *check) push(ctx context.Context, c transport.Conn, n int, pause time.Duration) {
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
