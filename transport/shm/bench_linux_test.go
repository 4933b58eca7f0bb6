package shm

import (
	"crypto/rand"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// BenchmarkProcesses measures a conn to another process. Compare its numbers
// with those of Copy and of other transports in the same run.
func BenchmarkProcesses(b *testing.B) {
	b.Run("PingPong8B/spinning", func(b *testing.B) { benchPingPong(b, 0) })
	b.Run("PingPong8B/sleeping", func(b *testing.B) { benchPingPong(b, -1) })
	for _, size := range []int{30, 1 << 10, 4 << 10, 16 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("PingPong%dB/polling", size), func(b *testing.B) { benchPolling(b, size) })
	}
	b.Run("Star8B", benchStar)
	b.Run("OneWay", func(b *testing.B) { benchFlood(b, false) })
	b.Run("BothWays", func(b *testing.B) { benchFlood(b, true) })
	b.Run("Copy", func(b *testing.B) {
		src, dst := make([]byte, 8<<20), make([]byte, 8<<20)
		b.SetBytes(8 << 20)
		for b.Loop() {
			copy(dst, src)
		}
	})
}

// dialChild starts a child, and opens a pipe to it and gets one back.
func dialChild(b *testing.B, task string, spinMax time.Duration) (transport.Sender, transport.Receiver) {
	o := orders{Task: task, Cluster: uniqueCluster(), Node: "child", SpinMax: spinMax}
	startChild(b, o)
	node := newNode(b, Config{Cluster: o.Cluster, Node: "parent " + rand.Text()})
	if spinMax != 0 {
		node.spinMax = spinMax
	}
	c, err := node.Dial(b.Context(), "child", "child")
	if err != nil {
		b.Fatal(err)
	}
	s, err := c.OpenPipe(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	r, err := c.AcceptPipe(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return s, r
}

func benchPingPong(b *testing.B, spinMax time.Duration) {
	s, r := dialChild(b, "echo", spinMax)
	var p [8]byte
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Write(p[:]); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(r, p[:]); err != nil {
			b.Fatal(err)
		}
	}
}

// benchPolling is a round trip of messages with TryWrite and TryRead.
func benchPolling(b *testing.B, size int) {
	s, r := dialChild(b, "poll", 0)
	p, try := transport.CapabilitiesOf(r).Poller, transport.CapabilitiesOf(s).TryWriter
	p.SetPolling(true)
	defer p.SetPolling(false)
	out, in := make([]byte, size), make([]byte, size)
	b.ReportAllocs()
	for b.Loop() {
		out[0]++
		for !try.TryWrite(out) {
		}
		for at := 0; at < size; {
			n, err := p.TryRead(in[at:])
			if err != nil {
				b.Fatal(err)
			}
			at += n
		}
	}
}

// benchStar is a round trip to seven processes at once, more than there are
// cores.
func benchStar(b *testing.B) {
	var senders [7]transport.Sender
	var receivers [7]transport.Receiver
	for i := range senders {
		senders[i], receivers[i] = dialChild(b, "echo", 0)
	}
	var p [8]byte
	b.ReportAllocs()
	for b.Loop() {
		for _, s := range senders {
			if _, err := s.Write(p[:]); err != nil {
				b.Fatal(err)
			}
		}
		for _, r := range receivers {
			if _, err := io.ReadFull(r, p[:]); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// benchFlood writes 8 MiB at a time, and reads as much meanwhile if both.
func benchFlood(b *testing.B, both bool) {
	s, r := dialChild(b, "flood", 0)
	const size = 8 << 20
	out, in := make([]byte, size), make([]byte, size)
	turn, done := make(chan struct{}), make(chan error)
	go func() {
		for range turn {
			_, err := io.ReadFull(r, in)
			done <- err
		}
		close(done)
	}()
	b.SetBytes(size)
	for b.Loop() {
		if both {
			turn <- struct{}{}
		}
		if _, err := s.Write(out); err != nil {
			b.Fatal(err)
		}
		if both {
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		}
	}
	close(turn)
	<-done
}
