package transporttest

import (
	"fmt"
	"testing"

	"github.com/nexar-go/nexar/transport"
)

// Bench measures round trips of 8 B, 64 KiB and 8 MiB, and one-way throughput. The reader
// copies the views of ReadFunc.
func Bench(b *testing.B, factory Factory) {
	for _, size := range []int{8, 64 << 10, 8 << 20} {
		b.Run("PingPong/"+sizeName(size), func(b *testing.B) { pingPong(b, factory, size) })
	}
	for _, size := range []int{64 << 10, 1 << 20, 8 << 20} {
		b.Run("OneWay/"+sizeName(size), func(b *testing.B) { oneWay(b, factory, size) })
	}
}

func sizeName(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%dMiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%dKiB", n>>10)
	}
	return fmt.Sprintf("%dB", n)
}

// pingPong measures a message of size bytes to the peer and back.
func pingPong(b *testing.B, factory Factory, size int) {
	x := newBench(b, factory)
	dialed, accepted := x.pair()
	there, back := x.benchPipe(dialed, accepted, size), x.benchPipe(accepted, dialed, size)
	echo := x.background(func() {
		for there.receive() == nil && back.send() == nil {
		}
	})
	b.SetBytes(int64(2 * size))
	b.ReportAllocs()
	for b.Loop() {
		x.must(there.send(), "write a message")
		x.must(back.receive(), "read a message")
	}
	dialed.Close()
	<-echo
}

// oneWay measures a stream of messages without answers.
func oneWay(b *testing.B, factory Factory, size int) {
	x := newBench(b, factory)
	dialed, accepted := x.pair()
	pipe := x.benchPipe(dialed, accepted, size)
	sink := x.background(func() {
		for pipe.receive() == nil {
		}
	})
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		x.must(pipe.send(), "write a message")
	}
	pipe.sender.Close()
	<-sink
}

// newBench starts two transports, which are closed at the end of the benchmark.
func newBench(b *testing.B, factory Factory) *check {
	x := newCheck(b, nil, factory(b, 2))
	finished := make(chan struct{})
	close(finished)
	b.Cleanup(func() { x.close(finished) })
	return x
}

// A benchPipe carries messages of one size from src to dst.
type benchPipe struct {
	sender   transport.Sender
	receiver transport.Receiver
	src, dst []byte
	off      int
	view     func(p []byte)
}

// benchPipe opens a pipe from one conn to the other.
func (x *check) benchPipe(from, to transport.Conn, size int) *benchPipe {
	m := &benchPipe{src: make([]byte, size), dst: make([]byte, size)}
	m.view = func(piece []byte) { m.off += copy(m.dst[m.off:], piece) }
	m.sender, m.receiver = x.pipe(from, to)
	return m
}

func (m *benchPipe) send() error {
	_, err := m.sender.Write(m.src)
	return err
}

func (m *benchPipe) receive() error {
	m.off = 0
	_, err := m.receiver.ReadFunc(len(m.src), m.view)
	return err
}
