package sim_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/sim"
)

// wantEndIn fails unless c ends after exactly d with the error want.
func (w *world) wantEndIn(c transport.Conn, d time.Duration, want error) {
	w.Helper()
	start := time.Now()
	select {
	case <-c.Done():
	case <-time.After(d + time.Hour):
		w.Fatalf("the conn has not ended after %v", d+time.Hour)
	}
	if got := time.Since(start); got != d || !errors.Is(c.Err(), want) {
		w.Errorf("the conn ended after %v with %v, want %v with %v", got, c.Err(), d, want)
	}
}

// wantAliveAfter fails if c has ended after d.
func (w *world) wantAliveAfter(c transport.Conn, d time.Duration) {
	w.Helper()
	time.Sleep(d)
	if err := c.Err(); err != nil {
		w.Errorf("the conn has ended: %v", err)
	}
}

func TestPartition(t *testing.T) {
	inBubble(t, sim.Config{Delay: time.Millisecond}, func(w *world) {
		s, r := w.pipe(w.a, w.b)
		c, d := w.connect("a", "c")
		other, otherReader := w.pipe(c, d)

		w.write(s, []byte{1}) // in flight when the partition begins
		w.network.Partition("b")
		w.write(s, []byte{2})
		w.write(other, []byte{3})
		w.wantDelivery(otherReader, 1, time.Now(), time.Millisecond)
		r.SetReadDeadline(time.Now().Add(time.Minute))
		if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil {
			w.Errorf("read %d bytes across a partition, %v", n, err)
		}
		r.SetReadDeadline(time.Time{})
		w.wantAliveAfter(w.a, time.Hour)

		w.network.Heal()
		start := time.Now()
		for want := range 2 {
			if _, err := r.ReadFunc(1, func(p []byte) {
				if int(p[0]) != want+1 {
					w.Errorf("read %d, want %d", p[0], want+1)
				}
			}); err != nil {
				w.Fatal(err)
			}
		}
		if got := time.Since(start); got != time.Millisecond {
			w.Errorf("bytes came %v after Heal, want 1ms", got)
		}
	})
}

func TestHostsOfAPartition(t *testing.T) {
	inBubble(t, sim.Config{}, func(w *world) {
		w.network.Partition("a", "c")
		w.connect("a", "c")
		w.network.Partition("b", "d")
		w.connect("b", "d")
		w.connect("e", "f")
		ctx, cancel := context.WithTimeout(w.Context(), time.Hour)
		defer cancel()
		l, err := w.network.Host("a").Listen(0)
		if err != nil {
			w.Fatal(err)
		}
		for _, host := range []string{"b", "e"} {
			server, err := w.network.Host(host).Listen(0)
			if err != nil {
				w.Fatal(err)
			}
			if _, err := l.Dial(ctx, server.Addr(), ""); !errors.Is(err, context.DeadlineExceeded) {
				w.Errorf("dial from a to %s: %v, want a missed deadline", host, err)
			}
		}
	})
}

func TestOneWay(t *testing.T) {
	inBubble(t, sim.Config{Delay: time.Millisecond}, func(w *world) {
		s, r := w.pipe(w.a, w.b)
		back, backReader := w.pipe(w.b, w.a)
		w.network.SetOneWay("a", "b", sim.Link{Down: true})
		start := time.Now()
		w.write(s, []byte{1})
		w.write(back, []byte{1})
		w.wantDelivery(backReader, 1, start, time.Millisecond)
		time.Sleep(time.Second)
		w.network.SetLink("a", "b", sim.Link{Delay: time.Minute})
		w.wantDelivery(r, 1, start, time.Minute+time.Second+time.Millisecond)
		w.write(back, []byte{1})
		w.wantDelivery(backReader, 1, start, 2*time.Minute+time.Second+time.Millisecond)
	})
}

// TestCutAt: a conn ends at one of its hosts, and at the other one when that is told. Later conns do not.
func TestCutAt(t *testing.T) {
	inBubble(t, sim.Config{Delay: time.Millisecond}, func(w *world) {
		s, _ := w.pipe(w.b, w.a)
		tell := w.network.CutAt("a", "b")
		w.wantEndIn(w.a, 0, transport.ErrPeerGone)
		w.write(s, []byte{1})
		w.wantAliveAfter(w.b, time.Hour)
		later, _ := w.connect("a", "b")
		tell()
		w.wantEndIn(w.b, 0, transport.ErrPeerGone)
		w.wantAliveAfter(later, time.Hour)
	})
}

// TestCutAfter: a conn ends at a byte, at one of its hosts or at both, with the other conns of the hosts or alone.
func TestCutAfter(t *testing.T) {
	for name, x := range map[string]struct {
		cut              sim.Cut
		from, to, others bool // these sides end
	}{
		"both":     {sim.Cut{After: 5}, true, true, false},
		"all":      {sim.Cut{After: 5, All: true}, true, true, true},
		"sender":   {sim.Cut{After: 5, To: -1}, true, false, false},
		"stalled":  {sim.Cut{After: 5, From: -1}, true, true, false},
		"receiver": {sim.Cut{After: 5, From: time.Minute}, true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, sim.Config{Delay: time.Millisecond}, func(w *world) {
				s, r := w.pipe(w.a, w.b)
				other, _ := w.connect("a", "b")
				w.network.CutAfter("a", "b", x.cut)
				w.write(s, []byte{1, 2, 3})
				w.write(s, []byte{4, 5, 6, 7})
				w.wantDelivery(r, 5, time.Now(), time.Millisecond)
				if n := w.network.Broken(); n.Conns != 0 {
					w.Errorf("broken before the end: %+v", n)
				}
				time.Sleep(time.Hour)
				for c, ends := range map[transport.Conn]bool{w.a: x.from, w.b: x.to, other: x.others} {
					if (c.Err() != nil) != ends {
						w.Errorf("the conn to %s has ended: %v, want %v", c.Peer(), c.Err(), ends)
					}
				}
				if n := w.network.Broken(); n.Conns < 1 || n.Bytes != 2 {
					w.Errorf("broken: %+v, want a conn with 2 bytes", n)
				}
			})
		})
	}
}

// TestCutAfterClose: a cut breaks all conns of two hosts in the middle of bytes that are in flight on a conn which the writer has closed. Nothing
// behind the cut arrives.
func TestCutAfterClose(t *testing.T) {
	inBubble(t, sim.Config{Delay: time.Millisecond}, func(w *world) {
		s, r := w.pipe(w.a, w.b)
		w.network.CutAfter("a", "b", sim.Cut{After: 5, All: true})
		w.write(s, []byte{1, 2, 3})
		w.write(s, []byte{4, 5, 6, 7})
		w.write(s, []byte{8, 9})
		time.Sleep(time.Millisecond / 2) // The end of the conn arrives after the bytes.
		w.a.Close()
		got, err := io.ReadAll(r)
		if want := []byte{1, 2, 3, 4, 5}; !bytes.HasPrefix(want, got) || err == nil {
			w.Errorf("read %v and %v, want a beginning of %v and an error", got, err, want)
		}
	})
}

func TestCrash(t *testing.T) {
	inBubble(t, sim.Config{Delay: 30 * time.Millisecond}, func(w *world) {
		w.network.Crash("b")
		w.wantEndIn(w.b, 0, transport.ErrClosed)
		w.wantEndIn(w.a, 30*time.Millisecond, transport.ErrPeerGone)
		// A new process can listen on the host.
		w.connect("a", "b")
	})
}

func TestCrashInPartition(t *testing.T) {
	inBubble(t, sim.Config{Delay: 30 * time.Millisecond}, func(w *world) {
		w.network.Partition("b")
		w.network.Crash("b")
		w.wantAliveAfter(w.a, time.Hour)
		w.network.Heal()
		w.wantEndIn(w.a, 30*time.Millisecond, transport.ErrPeerGone)
	})
}

func TestPowerOff(t *testing.T) {
	inBubble(t, sim.Config{Delay: 30 * time.Millisecond}, func(w *world) {
		addr := w.a.RemoteAddr()
		w.network.PowerOff("b")
		w.wantEndIn(w.b, 0, transport.ErrClosed)
		w.wantAliveAfter(w.a, time.Hour)

		if _, err := w.network.Host("b").Listen(1); err == nil {
			w.Error("Listen succeeds on a host that is powered off")
		}
		l, err := w.network.Host("a").Listen(0)
		if err != nil {
			w.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Hour)
		defer cancel()
		if _, err := l.Dial(ctx, addr, ""); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("dial to a host that is powered off: %v, want a missed deadline", err)
		}

		w.network.Restart("b")
		w.wantEndIn(w.a, 30*time.Millisecond, transport.ErrPeerGone)
		w.connect("a", "b")
	})
}

func TestCancelDialAcrossPartition(t *testing.T) {
	inBubble(t, sim.Config{Delay: time.Millisecond}, func(w *world) {
		client, err := w.network.Host("c").Listen(1)
		if err != nil {
			w.Fatal(err)
		}
		server, err := w.network.Host("d").Listen(1)
		if err != nil {
			w.Fatal(err)
		}
		w.network.Partition("d")
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if _, err := client.Dial(ctx, server.Addr(), ""); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("dial across a partition: %v, want a missed deadline", err)
		}
		w.network.Heal()
		ctx, cancel = context.WithTimeout(w.Context(), time.Hour)
		defer cancel()
		if _, err := server.Accept(ctx); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("Accept after a cancelled dial: %v, want a missed deadline", err)
		}
	})
}

func TestInvalidAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := sim.New(sim.Config{})
		defer network.Close()
		host := network.Host("a")
		l, err := host.Listen(80)
		if err != nil {
			t.Fatal(err)
		}
		for _, port := range []int{-1, 80, 65536} {
			if _, err := host.Listen(port); err == nil {
				t.Errorf("Listen(%d) succeeds, want an error", port)
			}
		}
		for _, addr := range []string{"", "a", "unknown:80", "a:81", "a:x"} {
			if _, err := l.Dial(t.Context(), addr, ""); err == nil {
				t.Errorf("Dial(%q) succeeds, want an error", addr)
			}
		}
		l.Close()
		if _, err := host.Listen(80); err != nil {
			t.Errorf("Listen at the port of a closed transport: %v", err)
		}
	})
}
