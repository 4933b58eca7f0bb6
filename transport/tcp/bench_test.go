package tcp

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport/transporttest"
)

func BenchmarkTCP(b *testing.B) {
	for name, cfg := range variants() {
		b.Run(name, func(b *testing.B) { transporttest.Bench(b, cluster(cfg)) })
	}
}

// A benchPipe carries bytes in one direction, over a pipe or a bare connection.
type benchPipe struct {
	write func(p []byte) error
	read  func(n int) error // reads and discards n bytes
}

func newBenchPipe(tb testing.TB, from, to *conn) benchPipe {
	s, r := pipeBetween(tb, from, to)
	return benchPipe{
		write: func(p []byte) error { _, err := s.Write(p); return err },
		read:  func(n int) error { _, err := r.ReadFunc(n, func([]byte) {}); return err },
	}
}

func barePipe(from io.Writer, to io.Reader) benchPipe {
	buf := make([]byte, viewBytes)
	return benchPipe{
		write: func(p []byte) error { _, err := from.Write(p); return err },
		read: func(n int) error {
			for n > 0 {
				m, err := to.Read(buf[:min(n, len(buf))])
				if err != nil {
					return err
				}
				n -= m
			}
			return nil
		},
	}
}

// barePair returns the ends of a TCP connection, with TLS unless cfg is plain.
func barePair(tb testing.TB, cfg Config) (a, b net.Conn) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		tb.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { a.Close(); b.Close() })
	if cfg.Plain {
		return a, b
	}
	ca := newTestCA(tb)
	server := tls.Server(b, ca.node(tb, "b").Server())
	var group sync.WaitGroup
	group.Go(func() { server.Handshake() })
	client := tls.Client(a, ca.node(tb, "a").Client("b"))
	if err := client.Handshake(); err != nil {
		tb.Fatal(err)
	}
	group.Wait()
	return client, server
}

// pass returns the time to send bytes over all pipes at once.
func pass(b *testing.B, pipes []benchPipe, bytes int) time.Duration {
	const piece = 1 << 20
	src := make([]byte, piece)
	var group sync.WaitGroup
	start := time.Now()
	for _, w := range pipes {
		group.Go(func() {
			for range bytes / piece {
				if err := w.write(src); err != nil {
					b.Error(err)
					return
				}
			}
		})
		group.Go(func() {
			for range bytes / piece {
				if err := w.read(piece); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	return time.Since(start)
}

// bounce returns the time of round trips of 8 bytes.
func bounce(b *testing.B, pipes []benchPipe, rounds int) time.Duration {
	var group sync.WaitGroup
	group.Go(func() {
		msg := make([]byte, 8)
		for range rounds {
			if pipes[0].read(len(msg)) != nil || pipes[1].write(msg) != nil {
				b.Error("the echo has failed")
				return
			}
		}
	})
	msg := make([]byte, 8)
	start := time.Now()
	for range rounds {
		if pipes[0].write(msg) != nil || pipes[1].read(len(msg)) != nil {
			b.Error("a round trip has failed")
			break
		}
	}
	took := time.Since(start)
	group.Wait()
	return took
}

// BenchmarkAgainstBare measures pipes and bare connections in turn with the same code,
// and reports the medians.
func BenchmarkAgainstBare(b *testing.B) {
	layouts := []struct {
		name        string
		there, back int // numbers of pipes
	}{{"1 there", 1, 0}, {"2 there", 2, 0}, {"1 there, 1 back", 1, 1}, {"2 there, 2 back", 2, 2}}
	for name, cfg := range variants() {
		for _, l := range layouts {
			b.Run(fmt.Sprintf("%s/%s", name, l.name), func(b *testing.B) {
				const bytes = 64 << 20
				perSecond := func(d time.Duration) float64 { return float64(bytes*(l.there+l.back)) / d.Seconds() / 1e6 }
				inTurn(b, cfg, l.there, l.back, "MB/s", func(pipes []benchPipe) float64 { return perSecond(pass(b, pipes, bytes)) })
			})
		}
		b.Run(name+"/8 bytes there and back", func(b *testing.B) {
			const rounds = 5000
			inTurn(b, cfg, 1, 1, "us", func(pipes []benchPipe) float64 {
				return bounce(b, pipes, rounds).Seconds() * 1e6 / rounds
			})
		})
	}
}

// inTurn measures pipes and bare connections in turn.
func inTurn(b *testing.B, cfg Config, there, back int, unit string, measure func([]benchPipe) float64) {
	nodes := newTestNodes(b, 2, cfg)
	dialed, accepted := connect(b, nodes[0], nodes[1])
	var ours, bare []benchPipe
	for i := range max(there, back) {
		x, y := barePair(b, cfg)
		if i < there {
			ours = append(ours, newBenchPipe(b, dialed, accepted))
			bare = append(bare, barePipe(x, y))
		}
		if i < back {
			ours = append(ours, newBenchPipe(b, accepted, dialed))
			bare = append(bare, barePipe(y, x))
		}
	}
	var o, n []float64
	for b.Loop() {
		n = append(n, measure(bare))
		o = append(o, measure(ours))
	}
	slices.Sort(o)
	slices.Sort(n)
	b.ReportMetric(o[len(o)/2], unit)
	b.ReportMetric(n[len(n)/2], "bare-"+unit)
	b.ReportMetric(o[len(o)/2]/n[len(n)/2], "ratio")
	b.ReportMetric(0, "ns/op")
}
