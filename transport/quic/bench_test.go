package quic

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	quicgo "github.com/quic-go/quic-go"

	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport/transporttest"
)

func BenchmarkQUIC(b *testing.B) { transporttest.Bench(b, newCluster) }

// BenchmarkAgainstBare measures the cost of a pipe beyond a bare stream of quic-go with
// the same windows: both in turn, operation by operation. It reports the medians.
func BenchmarkAgainstBare(b *testing.B) {
	for _, size := range []int{8, 8 << 20} {
		b.Run(fmt.Sprintf("PingPong/%dB", size), func(b *testing.B) { alternate(b, size, size) })
	}
	b.Run("OneWay/8388608B", func(b *testing.B) { alternate(b, 8<<20, 1) })
}

// alternate measures operations that send size bytes and receive back bytes.
func alternate(b *testing.B, size, back int) {
	bare := newBareEcho(b, size, back)
	pipe := newPipeEcho(b, size, back)
	var bareTimes, pipeTimes []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		bareTimes = append(bareTimes, bare.roundTrip(b))
		pipeTimes = append(pipeTimes, pipe.roundTrip(b))
	}
	report := func(name string, times []time.Duration) {
		slices.Sort(times)
		m := times[len(times)/2]
		b.ReportMetric(float64(m.Nanoseconds()), name+"-ns")
		b.ReportMetric(float64(size+back)/m.Seconds()/1e6, name+"-MB/s")
	}
	report("bare", bareTimes)
	report("pipe", pipeTimes)
}

// An echoPair is the near end of two streams. Goroutines serve the far ends.
type echoPair struct {
	out, in []byte
	write   func(p []byte) (int, error)
	read    func(p []byte) (int, error)
}

func (e *echoPair) roundTrip(b *testing.B) time.Duration {
	start := time.Now()
	if _, err := e.write(e.out); err != nil {
		b.Fatal(err)
	}
	if _, err := e.read(e.in); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

func newPipeEcho(b *testing.B, size, back int) *echoPair {
	nodes := newTestNodes(b, 2, Config{})
	near, far := connect(b, nodes[0], nodes[1])
	there, arrived := pipeBetween(b, near, far)
	homeward, home := pipeBetween(b, far, near)
	go func() {
		in, out := make([]byte, size), make([]byte, back)
		for {
			if _, err := readWhole(arrived, in); err != nil {
				return
			}
			if _, err := homeward.Write(out); err != nil {
				return
			}
		}
	}()
	return &echoPair{
		out: make([]byte, size), in: make([]byte, back), write: there.Write,
		read: func(p []byte) (int, error) { return readWhole(home, p) },
	}
}

// readWhole reads with ReadFunc, as the layers above do.
func readWhole(r interface {
	ReadFunc(n int, view func(p []byte)) (int, error)
}, p []byte) (int, error) {
	at := 0
	return r.ReadFunc(len(p), func(piece []byte) { at += copy(p[at:], piece) })
}

func newBareEcho(b *testing.B, size, back int) *echoPair {
	near, far := bareConns(b)
	open := func(from, to *quicgo.Conn) (*quicgo.SendStream, *quicgo.ReceiveStream) {
		s, err := from.OpenUniStreamSync(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		s.Write([]byte{1})
		r, err := to.AcceptUniStream(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		io.ReadFull(r, make([]byte, 1))
		return s, r
	}
	there, arrived := open(near, far)
	homeward, home := open(far, near)
	go func() {
		in, out := make([]byte, size), make([]byte, back)
		for {
			if _, err := io.ReadFull(arrived, in); err != nil {
				return
			}
			if _, err := homeward.Write(out); err != nil {
				return
			}
		}
	}()
	return &echoPair{
		out: make([]byte, size), in: make([]byte, back), write: there.Write,
		read: func(p []byte) (int, error) { return io.ReadFull(home, p) },
	}
}

// bareConns returns both ends of a connection without this package.
func bareConns(b *testing.B) (near, far *quicgo.Conn) {
	ca := testpeer.NewCA(b)
	here, there := ca.Node(b, "here"), ca.Node(b, "there")
	window := uint64(Config{}.withDefaults().PipeWindow)
	conf := &quicgo.Config{
		InitialStreamReceiveWindow: window, MaxStreamReceiveWindow: window,
		InitialConnectionReceiveWindow: 64 * window, MaxConnectionReceiveWindow: 64 * window,
		InitialPacketSize: largestPacket,
	}
	ln, err := quicgo.ListenAddr("127.0.0.1:0", there.Server(), conf)
	if err != nil {
		b.Fatal(err)
	}
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	tr := &quicgo.Transport{Conn: udp}
	near, err = tr.Dial(b.Context(), ln.Addr(), here.Client("there"), conf)
	if err != nil {
		b.Fatal(err)
	}
	if far, err = ln.Accept(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		near.CloseWithError(0, "")
		far.CloseWithError(0, "")
		tr.Close()
		udp.Close()
		ln.Close()
	})
	return near, far
}

// BenchmarkMesh connects all pairs of 64 nodes in this process, 2,016 connections, by
// mutual TLS with P-256 certificates.
func BenchmarkMesh(b *testing.B) {
	for _, watched := range []bool{false, true} {
		b.Run(fmt.Sprintf("watched=%v", watched), func(b *testing.B) { benchMesh(b, 64, watched) })
	}
}

func benchMesh(b *testing.B, n int, watched bool) {
	ca := testpeer.NewCA(b)
	creds := make([]*testpeer.Creds, n)
	for i := range creds {
		creds[i] = ca.Node(b, fmt.Sprintf("n%d", i))
	}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		nodes := make([]*testNode, n)
		for i := range nodes {
			nodes[i] = newTestNode(b, Config{Watch: func(string) bool { return watched }}, creds[i])
		}
		b.StartTimer()
		mesh(b, nodes)
		b.StopTimer()
		var wg sync.WaitGroup
		for _, node := range nodes {
			wg.Go(func() { node.Close() })
		}
		wg.Wait()
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n*(n-1)/2), "µs/conn")
}

// mesh connects every node to all before it, and waits until all have accepted.
func mesh(tb testing.TB, nodes []*testNode) {
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for i, node := range nodes {
		wg.Go(func() {
			for range len(nodes) - 1 - i {
				if _, err := node.Accept(ctx); err != nil {
					tb.Errorf("accept: %v", err)
				}
			}
		})
		wg.Go(func() {
			for _, peer := range nodes[:i] {
				if _, err := node.Dial(ctx, peer.Addr(), peer.name); err != nil {
					tb.Errorf("dial: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkIdleMemory reports the heap and stacks of an idle connection, both ends
// together, watched or not.
func BenchmarkIdleMemory(b *testing.B) {
	for _, watched := range []bool{false, true} {
		b.Run(fmt.Sprintf("watched=%v", watched), func(b *testing.B) {
			for b.Loop() {
				heap, stack := idleMemory(b, 500, watched)
				b.ReportMetric(float64(heap)/1024, "heapKiB/conn")
				b.ReportMetric(float64(stack)/1024, "stackKiB/conn")
			}
		})
	}
}

func idleMemory(tb testing.TB, conns int, watched bool) (heap, stack int64) {
	nodes := newTestNodes(tb, 2, Config{Watch: func(string) bool { return watched }})
	connect(tb, nodes[0], nodes[1]) // makes one-time allocations
	before := memory()
	for range conns {
		near, far := connect(tb, nodes[0], nodes[1])
		pipeBetween(tb, near, far)
		pipeBetween(tb, far, near)
	}
	time.Sleep(300 * time.Millisecond) // until all is acknowledged and watched
	after := memory()
	heap = int64(after.HeapAlloc-before.HeapAlloc) / int64(conns)
	stack = int64(after.StackInuse-before.StackInuse) / int64(conns)
	for _, n := range nodes {
		n.Close()
	}
	return heap, stack
}

func memory() (m runtime.MemStats) {
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m
}
