package sim_test

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"net"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/transport/sim"
)

// sockets returns sockets at port 9 of hosts a and b of a new network.
func sockets(t *testing.T, config sim.Config) (*sim.Network, net.PacketConn, net.PacketConn) {
	t.Helper()
	network := sim.New(config)
	t.Cleanup(func() { network.Close() })
	a, err := network.Host("a").PacketConn(9)
	if err != nil {
		t.Fatal(err)
	}
	b, err := network.Host("b").PacketConn(9)
	if err != nil {
		t.Fatal(err)
	}
	return network, a, b
}

// A delivery is a datagram that was read.
type delivery struct {
	number int
	at     time.Duration
}

// exchange sends count numbered datagrams of the given size from a to b at one instant,
// and returns those that arrive within a minute.
func exchange(t *testing.T, a, b net.PacketConn, count, size int) (got []delivery) {
	t.Helper()
	start := time.Now()
	for i := range count {
		p := make([]byte, size)
		binary.BigEndian.PutUint32(p, uint32(i))
		if n, err := a.WriteTo(p, b.LocalAddr()); n != size || err != nil {
			t.Fatalf("WriteTo: got %d, %v", n, err)
		}
	}
	b.SetReadDeadline(start.Add(time.Minute))
	buf := make([]byte, 1<<16)
	for {
		n, from, err := b.ReadFrom(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return got
		}
		if n != size || err != nil || from.String() != a.LocalAddr().String() {
			t.Fatalf("ReadFrom: got %d bytes from %v, %v", n, from, err)
		}
		got = append(got, delivery{int(binary.BigEndian.Uint32(buf)), time.Since(start)})
	}
}

// numbers returns the numbers of the datagrams, in the order of delivery.
func numbers(got []delivery) (n []int) {
	for _, a := range got {
		n = append(n, a.number)
	}
	return n
}

func TestDatagramDelayAndRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := sockets(t, sim.Config{Delay: 20 * time.Millisecond, Rate: 1e6})
		got := exchange(t, a, b, 10, 1000)
		if len(got) != 10 {
			t.Fatalf("%d of 10 datagrams arrive", len(got))
		}
		for i, d := range got {
			if want := 20*time.Millisecond + time.Duration(i+1)*time.Millisecond; d.number != i || d.at != want {
				t.Errorf("datagram %d arrives after %v as number %d, want %v", d.number, d.at, i, want)
			}
		}
	})
}

func TestDatagramQueueDropsItsTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := sockets(t, sim.Config{Rate: 1e6, Queue: 5000})
		if got := numbers(exchange(t, a, b, 10, 1000)); !slices.Equal(got, []int{0, 1, 2, 3, 4}) {
			t.Errorf("datagrams %v arrive, want the first 5", got)
		}
	})
}

func TestDatagramLossReplays(t *testing.T) {
	run := func(seed int64) (got []delivery) {
		synctest.Test(t, func(t *testing.T) {
			_, a, b := sockets(t, sim.Config{Seed: seed, Delay: time.Millisecond, Jitter: time.Second, Loss: 0.2})
			got = exchange(t, a, b, 1000, 10)
		})
		return got
	}
	got := run(1)
	if n := len(got); n < 740 || n > 860 {
		t.Errorf("%d of 1000 datagrams arrive, want about 800", n)
	}
	if !slices.IsSorted(numbers(got)) {
		t.Error("jitter alone reorders datagrams")
	}
	if !slices.Equal(run(1), got) {
		t.Error("the same seed gives different losses or times")
	}
	if slices.Equal(run(2), got) {
		t.Error("another seed gives the same losses and times")
	}
}

func TestDatagramReorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := sockets(t, sim.Config{Delay: 10 * time.Millisecond, Reorder: 0.1})
		got := exchange(t, a, b, 1000, 10)
		late := 0
		for _, d := range got {
			if d.at == 21*time.Millisecond {
				late++
			} else if d.at != 10*time.Millisecond {
				t.Fatalf("datagram %d arrives after %v, want 10ms or 21ms", d.number, d.at)
			}
		}
		if len(got) != 1000 || late < 60 || late > 140 || slices.IsSorted(numbers(got)) {
			t.Errorf("%d datagrams arrive, %d of them late, want 1000 and about 100", len(got), late)
		}
	})
}

func TestDatagramFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, a, b := sockets(t, sim.Config{Delay: time.Millisecond})
		wantDeliveries := func(when string, want int) {
			t.Helper()
			if got := len(exchange(t, a, b, 3, 10)); got != want {
				t.Errorf("%s: %d of 3 datagrams arrive, want %d", when, got, want)
			}
		}
		wantDeliveries("at first", 3)
		network.Partition("a")
		wantDeliveries("in a partition", 0)
		network.Heal()
		wantDeliveries("after Heal", 3)
		network.SetLink("a", "b", sim.Link{Loss: 1})
		wantDeliveries("over a link that loses everything", 0)
		network.SetLink("a", "b", sim.Link{})
		if _, err := a.WriteTo([]byte{1}, &net.UDPAddr{IP: net.IPv4(10, 9, 9, 9), Port: 1}); err != nil {
			t.Errorf("WriteTo an address without a socket: %v", err)
		}

		network.Crash("b")
		if _, _, err := b.ReadFrom(nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("ReadFrom on a crashed host: %v, want %v", err, net.ErrClosed)
		}
		var err error
		if b, err = network.Host("b").PacketConn(9); err != nil {
			t.Fatal(err)
		}
		wantDeliveries("after a restart of the process", 3)
	})
}

func TestSocketBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := sockets(t, sim.Config{})
		for range 3000 {
			if _, err := a.WriteTo(make([]byte, 1024), b.LocalAddr()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if got := len(exchange(t, a, b, 0, 1024)); got != 1024 {
			t.Errorf("an unread socket buffers %d datagrams of 1 KiB, want 1024", got)
		}
	})
}

func TestPacketConnDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := sockets(t, sim.Config{})
		start := time.Now()
		a.SetDeadline(start.Add(time.Minute))
		if _, _, err := a.ReadFrom(nil); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("ReadFrom with a deadline: %v after %v", err, time.Since(start))
		}
		if _, err := a.WriteTo(nil, b.LocalAddr()); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("WriteTo past the deadline: %v", err)
		}
		a.SetDeadline(time.Time{})
		if _, err := a.WriteTo(nil, b.LocalAddr()); err != nil {
			t.Errorf("WriteTo without a deadline: %v", err)
		}
		go func() {
			time.Sleep(time.Minute)
			a.SetReadDeadline(time.Unix(1, 0))
		}()
		if _, _, err := a.ReadFrom(nil); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("interrupted ReadFrom: %v", err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if _, err := a.WriteTo(nil, b.LocalAddr()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("WriteTo on a closed socket: %v", err)
		}
		if err := a.SetDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("SetDeadline on a closed socket: %v", err)
		}
	})
}

// TestCorrupt: the configured share of datagrams arrives with exactly one flipped bit.
func TestCorrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count, size = 5000, 100
		_, a, b := sockets(t, sim.Config{Seed: 1, Delay: time.Millisecond, Corrupt: 0.02})
		go func() {
			for range count {
				a.WriteTo(make([]byte, size), b.LocalAddr())
				time.Sleep(time.Millisecond)
			}
		}()
		damaged := 0
		for range count {
			p := make([]byte, size)
			if n, _, err := b.ReadFrom(p); n != size || err != nil {
				t.Fatalf("read %d bytes, %v", n, err)
			}
			flipped := 0
			for _, x := range p {
				flipped += bits.OnesCount8(x)
			}
			if flipped > 1 {
				t.Fatalf("%d bits of a datagram are flipped, want at most one", flipped)
			}
			damaged += flipped
		}
		if damaged < count/100 || damaged > count*3/100 {
			t.Errorf("%d of %d datagrams were corrupted, want about 2 %%", damaged, count)
		}
	})
}
