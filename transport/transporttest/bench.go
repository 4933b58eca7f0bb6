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
	p := newPair(b, factory)
	defer p.close(b)
	there, back := p.pipe(b, 0, size), p.pipe(b, 1, size)
	echo := make(chan struct{})
	go func() {
		defer close(echo)
		for there.receive() == nil && back.send() == nil {
		}
	}()
	b.SetBytes(int64(2 * size))
	b.ReportAllocs()
	for b.Loop() {
		if err := there.send(); err != nil {
			b.Fatal(err)
		}
		if err := back.receive(); err != nil {
			b.Fatal(err)
		}
	}
	p.ends[0].Close()
	<-echo
}

// oneWay measures a stream of messages without answers.
func oneWay(b *testing.B, factory Factory, size int) {
	p := newPair(b, factory)
	defer p.close(b)
	pipe := p.pipe(b, 0, size)
	sink := make(chan struct{})
	go func() {
		defer close(sink)
		for pipe.receive() == nil {
		}
	}()
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		if err := pipe.send(); err != nil {
			b.Fatal(err)
		}
	}
	pipe.sender.Close()
	<-sink
}

// A benchPair is a conn between two transports.
type benchPair struct {
	cluster Cluster
	ends    [2]transport.Conn
}

func newPair(b *testing.B, factory Factory) *benchPair {
	p := &benchPair{cluster: factory(b, 2)}
	accepted := make(chan error, 1)
	go func() {
		var err error
		p.ends[1], err = p.cluster.Transports[1].Accept(b.Context())
		accepted <- err
	}()
	var err error
	p.ends[0], err = p.cluster.Transports[0].Dial(b.Context(), p.cluster.Transports[1].Addr(), p.cluster.identity(1))
	if err != nil {
		b.Fatal(err)
	}
	if err := <-accepted; err != nil {
		b.Fatal(err)
	}
	return p
}

func (p *benchPair) close(b *testing.B) {
	for _, t := range p.cluster.Transports {
		if err := t.Close(); err != nil {
			b.Error(err)
		}
	}
}

// A benchPipe carries messages of one size from src to dst.
type benchPipe struct {
	sender   transport.Sender
	receiver transport.Receiver
	src, dst []byte
	off      int
	view     func(p []byte)
}

// pipe opens a pipe from one end to the other.
func (p *benchPair) pipe(b *testing.B, from, size int) *benchPipe {
	m := &benchPipe{src: make([]byte, size), dst: make([]byte, size)}
	m.view = func(piece []byte) { m.off += copy(m.dst[m.off:], piece) }
	var err error
	if m.sender, err = p.ends[from].OpenPipe(b.Context()); err != nil {
		b.Fatal(err)
	}
	if _, err = m.sender.Write([]byte{1}); err != nil {
		b.Fatal(err)
	}
	if m.receiver, err = p.ends[1-from].AcceptPipe(b.Context()); err != nil {
		b.Fatal(err)
	}
	if _, err = m.receiver.Read(make([]byte, 1)); err != nil {
		b.Fatal(err)
	}
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
