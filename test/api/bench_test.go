package api

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	quicgo "github.com/quic-go/quic-go"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/pki"
)

// newWorldOf forms a world of n nodes in this process over loopback QUIC.
func newWorldOf(tb testing.TB, n int) []*nexar.Comm {
	tb.Helper()
	ctx := context.Background()
	token := nexar.NewToken()
	s, err := nexar.StartSeed(ctx, nexar.SeedConfig{Listen: "127.0.0.1:0", World: n, Token: token})
	if err != nil {
		tb.Fatal(err)
	}
	nodes := make([]*nexar.Node, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range nodes {
		wg.Go(func() {
			nodes[i], errs[i] = nexar.Join(ctx, nexar.Config{Seeds: []string{s.Addr()}, Token: token, Listen: "127.0.0.1:0", Rank: &i})
		})
	}
	wg.Wait()
	tb.Cleanup(func() {
		for _, n := range nodes {
			if n != nil {
				wg.Go(func() { n.Close() })
			}
		}
		wg.Wait()
		s.Close()
	})
	comms := make([]*nexar.Comm, n)
	for i, n := range nodes {
		if errs[i] != nil {
			tb.Fatal(errs[i])
		}
		comms[i] = n.World()
	}
	return comms
}

// newLocal forms a world of n ranks over mem.
func newLocal(tb testing.TB, n int) []*nexar.Comm {
	tb.Helper()
	comms, err := nexar.Local(context.Background(), n, nexar.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		for _, c := range comms {
			c.Close()
		}
	})
	return comms
}

// together runs an operation on all ranks, b.N times each.
func together(b *testing.B, comms []*nexar.Comm, bytes int, op func(c *nexar.Comm, data []float32) error) {
	b.SetBytes(int64(bytes))
	b.ReportAllocs()
	var others sync.WaitGroup
	rounds := make([]chan struct{}, len(comms))
	for r, c := range comms[1:] {
		rounds[r] = make(chan struct{}, 1)
		data := make([]float32, bytes/4)
		others.Go(func() {
			for range rounds[r] {
				if err := op(c, data); err != nil {
					b.Error(err)
				}
			}
		})
	}
	data := make([]float32, bytes/4)
	for b.Loop() {
		for r := range comms[1:] {
			rounds[r] <- struct{}{}
		}
		if err := op(comms[0], data); err != nil {
			b.Fatal(err)
		}
	}
	for r := range comms[1:] {
		close(rounds[r])
	}
	others.Wait()
}

func allReduceSum(c *nexar.Comm, data []float32) error {
	return nexar.AllReduce(context.Background(), c, data, nexar.Sum)
}

func BenchmarkAllReduce(b *testing.B) {
	worlds := []struct {
		name string
		make func(testing.TB, int) []*nexar.Comm
	}{{"mem", newLocal}, {"quic", newWorldOf}}
	for _, w := range worlds {
		for _, n := range []int{2, 4} {
			for _, bytes := range []int{8, 64 << 10, 1 << 20, 8 << 20, 64 << 20} {
				b.Run(fmt.Sprintf("%s/n=%d/%dB", w.name, n, bytes), func(b *testing.B) {
					together(b, w.make(b, n), bytes, allReduceSum)
				})
			}
		}
	}
}

// BenchmarkOneRank is the time of calls in a world of one rank, which exchange nothing. The least time
// of a batch of calls, min-ns/op, varies by 2 ns even on a loaded machine, so it shows small changes in
// the cost of a call.
func BenchmarkOneRank(b *testing.B) {
	const batch = 500
	c, ctx := newLocal(b, 1)[0], b.Context()
	data, dst := make([]float32, 2), make([]float32, 2)
	for _, op := range []struct {
		name string
		call func() error
	}{
		{"barrier", func() error { return c.Barrier(ctx) }},
		{"all_reduce", func() error { return nexar.AllReduce(ctx, c, data, nexar.Sum) }},
		{"broadcast", func() error { return nexar.Broadcast(ctx, c, data, 0) }},
		{"all_to_all", func() error { return nexar.AllToAll(ctx, c, dst, data) }},
		{"send_recv", func() error {
			if err := nexar.Send(ctx, c, data, 0, 1); err != nil {
				return err
			}
			_, err := nexar.Recv(ctx, c, dst, 0, 1)
			return err
		}},
	} {
		b.Run(op.name, func(b *testing.B) {
			b.ReportAllocs()
			least := time.Duration(math.MaxInt64)
			for begun, calls := time.Now(), 1; b.Loop(); calls++ {
				if err := op.call(); err != nil {
					b.Fatal(err)
				}
				if calls%batch == 0 {
					now := time.Now()
					least, begun = min(least, now.Sub(begun)), now
				}
			}
			if least < math.MaxInt64 {
				b.ReportMetric(float64(least)/batch, "min-ns/op")
			}
		})
	}
}

func BenchmarkBarrier(b *testing.B) {
	for _, n := range []int{2, 4, 8} {
		b.Run(fmt.Sprintf("mem/n=%d", n), func(b *testing.B) {
			together(b, newLocal(b, n), 0, func(c *nexar.Comm, _ []float32) error { return c.Barrier(context.Background()) })
		})
	}
}

// BenchmarkAgainstBareStream alternates operations with round trips of the same bytes on a
// stream of quic-go, and reports both medians and their ratio. An all-reduce of two ranks moves
// one vector in each direction, as a round trip does.
func BenchmarkAgainstBareStream(b *testing.B) {
	comms := newWorldOf(b, 2)
	for _, bytes := range []int{8, 8 << 20} {
		b.Run(fmt.Sprintf("PingPong/%dB", bytes), func(b *testing.B) {
			againstBare(b, comms, bytes, func(c *nexar.Comm, data []float32) error {
				ctx := context.Background()
				if c.Rank() == 0 {
					if err := nexar.Send(ctx, c, data, 1, 0); err != nil {
						return err
					}
					_, err := nexar.Recv(ctx, c, data, 1, 0)
					return err
				}
				if _, err := nexar.Recv(ctx, c, data, 0, 0); err != nil {
					return err
				}
				return nexar.Send(ctx, c, data, 0, 0)
			})
		})
		b.Run(fmt.Sprintf("AllReduce/%dB", bytes), func(b *testing.B) {
			againstBare(b, comms, bytes, allReduceSum)
		})
	}
}

func againstBare(b *testing.B, comms []*nexar.Comm, bytes int, op func(c *nexar.Comm, data []float32) error) {
	trip := newBareTrip(b, bytes)
	rounds := make(chan struct{}, 1)
	var other sync.WaitGroup
	other.Go(func() {
		data := make([]float32, bytes/4)
		for range rounds {
			if err := op(comms[1], data); err != nil {
				b.Error(err)
			}
		}
	})
	data := make([]float32, bytes/4)
	var ours, bare []time.Duration
	for b.Loop() {
		start := time.Now()
		trip()
		between := time.Now()
		rounds <- struct{}{}
		if err := op(comms[0], data); err != nil {
			b.Fatal(err)
		}
		bare = append(bare, between.Sub(start))
		ours = append(ours, time.Since(between))
	}
	close(rounds)
	other.Wait()
	slices.Sort(ours)
	slices.Sort(bare)
	o, s := ours[len(ours)/2], bare[len(bare)/2]
	b.ReportMetric(float64(o.Microseconds()), "nexar-µs")
	b.ReportMetric(float64(s.Microseconds()), "bare-µs")
	b.ReportMetric(float64(o)/float64(s), "times-bare")
}

// newBareTrip returns a function that sends bytes on a QUIC stream to an echo server and waits
// for the reply.
func newBareTrip(b *testing.B, bytes int) func() {
	near, far := bareConns(b)
	st, err := near.OpenStreamSync(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	st.Write([]byte{1})
	back, err := far.AcceptStream(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	io.ReadFull(back, make([]byte, 1))
	go func() {
		p := make([]byte, bytes)
		for {
			if _, err := io.ReadFull(back, p); err != nil {
				return
			}
			if _, err := back.Write(p); err != nil {
				return
			}
		}
	}()
	p := make([]byte, bytes)
	return func() {
		if _, err := st.Write(p); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(st, p); err != nil {
			b.Fatal(err)
		}
	}
}

// bareConns returns both ends of a QUIC connection without nexar.
func bareConns(b *testing.B) (near, far *quicgo.Conn) {
	authority, err := pki.NewAuthority()
	if err != nil {
		b.Fatal(err)
	}
	joining, err := authority.Joining()
	if err != nil {
		b.Fatal(err)
	}
	conf := &quicgo.Config{
		InitialStreamReceiveWindow: 16 << 20, MaxStreamReceiveWindow: 64 << 20,
		InitialConnectionReceiveWindow: 64 << 20, MaxConnectionReceiveWindow: 256 << 20,
		InitialPacketSize: 1452,
	}
	transport := func(conn net.PacketConn) *quicgo.Transport { return &quicgo.Transport{Conn: conn} }
	listen := func() net.PacketConn {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		return c
	}
	here, there := listen(), listen()
	a, z := transport(here), transport(there)
	ln, err := z.Listen(joining.Server(), conf)
	if err != nil {
		b.Fatal(err)
	}
	client := pki.Joining{}.Client("")
	if near, err = a.Dial(b.Context(), there.LocalAddr(), client, conf); err != nil {
		b.Fatal(err)
	}
	if far, err = ln.Accept(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		near.CloseWithError(0, "")
		far.CloseWithError(0, "")
		a.Close()
		z.Close()
		here.Close()
		there.Close()
	})
	return near, far
}
