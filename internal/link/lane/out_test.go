package lane

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nexar-go/nexar/internal/wire"
)

// An Out of long frames gives each connection the bytes from the position of the peer on, in whole frames between transient
// ones, and the bytes of a writer stay in place. The peer of this model receives all bytes written before a cut, up to a
// frame.
func TestOut(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		var o Out
		var all []byte            // numbered frames
		ends := []uint64{0}       // of numbered frames
		var received, wire uint64 // positions of the peer, and of the connection
		var old []held
		var now held
		writing, flowed := false, 0 // the bytes of the write that have arrived before its return
		for range 400 {
			switch k := rnd.IntN(13); {
			case k < 4:
				frame := randomFrame(rnd, len(all))
				b := o.Buffer(len(frame) >> rnd.IntN(2)) // The frame may be longer than the room that it has asked for.
				o.Commit(append(b, frame...))
				all = append(all, frame...)
				ends = append(ends, uint64(len(all)))
			case k == 12 && !writing && !o.HasNext():
				frame := randomFrame(rnd, len(all))
				begin := rnd.IntN(len(frame))
				split := begin + rnd.IntN(len(frame)-begin)
				b := o.Buffer(len(frame) >> rnd.IntN(2))
				o.Direct(append(b, frame[:begin]...), frame[begin:split], [][]byte{frame[split:]})
				all = append(all, frame...)
				ends = append(ends, uint64(len(all)))
				wire = uint64(len(all))
			case k == 4:
				o.Transient([]byte{255, 254})
			case k < 7 && !writing:
				transient, numbered := o.Next()
				now, writing = held{transient, numbered, slices.Concat(transient, numbered)}, true
				flowed = 0
				if len(transient) > 0 && !slices.Contains(ends, wire) {
					t.Fatalf("seed %d: transient frames at byte %d, inside a numbered one", seed, wire)
				}
				if !bytes.Equal(numbered, all[wire:wire+uint64(len(numbered))]) {
					t.Fatalf("seed %d: other bytes from byte %d on", seed, wire)
				}
				if len(now.copied) == 0 && wire < uint64(len(all)) {
					t.Fatalf("seed %d: nothing to write at byte %d of %d", seed, wire, len(all))
				}
			case k < 9 && writing:
				n := len(now.copied)
				if rnd.IntN(2) == 0 {
					n = flowed + rnd.IntN(n-flowed+1)
				}
				must(t, o.Wrote(n))
				wire, writing, flowed = wire+uint64(max(0, n-len(now.transient))), false, 0
				if !now.check() {
					t.Fatalf("seed %d: the bytes of the writer have changed", seed)
				}
			case k == 9: // The acknowledgement may come before the return of the write.
				if writing {
					if flowed += rnd.IntN(len(now.copied) - flowed + 1); rnd.IntN(2) == 0 {
						flowed = len(now.copied)
					}
					received = whole(ends, wire+uint64(max(0, flowed-len(now.transient))))
				} else {
					received = whole(ends, wire)
				}
				must(t, o.Ack(received))
			case k == 10 && rnd.IntN(4) == 0:
				if writing { // The peer has received a part of the write.
					received = max(received, whole(ends, wire+uint64(rnd.IntN(len(now.numbered)+1))))
					old = append(old, now)
				} else if wire > received {
					received = max(received, whole(ends, received+rnd.Uint64N(wire-received+1)))
				}
				must(t, o.Resume(received))
				wire, writing = received, false
			case k == 11 && rnd.IntN(4) == 0:
				o.Trim()
			}
			kept := len(all) - int(received)
			if o.Kept() != kept || o.Memory() > 3*kept+(sparesMax+3)*large {
				t.Fatalf("seed %d: keeps %d bytes in %d, want %d", seed, o.Kept(), o.Memory(), kept)
			}
		}
		for i := range old {
			if !old[i].check() {
				t.Fatalf("seed %d: the bytes of a writer of an earlier connection have changed", seed)
			}
		}
		must(t, o.Resume(received))
		for int(received) < len(all) {
			transient, numbered := o.Next()
			must(t, o.Wrote(len(transient)+len(numbered)))
			received += uint64(len(numbered))
			must(t, o.Ack(received))
		}
		if o.Trim(); o.Kept() != 0 || o.Memory() > 2*idleMax {
			t.Fatalf("seed %d: an idle lane keeps %d bytes in %d", seed, o.Kept(), o.Memory())
		}
	}
}

// randomFrame returns a frame, which depends on its position.
func randomFrame(rnd *rand.Rand, at int) []byte {
	n := 1 + rnd.IntN(100)
	if rnd.IntN(3) == 0 {
		n = 1 + rnd.IntN(wire.PayloadMax+16<<10)
	}
	frame := make([]byte, n)
	for i := range frame {
		frame[i] = byte(at + i*7 + n)
	}
	return frame
}

// whole returns the end of the last frame before a position.
func whole(ends []uint64, position uint64) uint64 {
	i, ok := slices.BinarySearch(ends, position)
	if !ok {
		i--
	}
	return ends[i]
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The buffer of transient frames does not grow if frames are added during each write.
func TestTransientsPass(t *testing.T) {
	var o Out
	frame := make([]byte, 20)
	o.Transient(frame)
	for range 10_000 {
		transient, _ := o.Next()
		o.Transient(frame)
		if len(transient) != len(frame) {
			t.Fatalf("%d bytes to write, want one frame", len(transient))
		}
		must(t, o.Wrote(len(transient)))
	}
	if n := o.Memory(); n > 10*len(frame) {
		t.Errorf("the buffers have %d bytes, and one frame waits", n)
	}
}

// A lasting connection keeps nothing, and takes frames from other memory.
func TestOutLasting(t *testing.T) {
	var o Out
	o.Lasting(true)
	o.Commit(append(o.Buffer(3), 1, 2, 3))
	o.Next()
	must(t, o.Wrote(3))
	o.Direct(append(o.Buffer(2), 1, 2), []byte{3}, [][]byte{{4, 5}})
	o.Commit(append(o.Buffer(2), 4, 5))
	if _, numbered := o.Next(); !bytes.Equal(numbered, []byte{4, 5}) || o.Kept() != 2 || o.Position() != 10 {
		t.Errorf("%v is next, %d bytes are kept and %d were appended", numbered, o.Kept(), o.Position())
	}
	must(t, o.Wrote(2))
	if o.Kept() != 0 || o.Acked() != 10 {
		t.Errorf("%d bytes are kept after %d", o.Kept(), o.Acked())
	}
}

// A stream of long frames whose acknowledgements come late reuses its buffers.
func TestOutReuses(t *testing.T) {
	var o Out
	o.Share(new(Buffers))
	frame := make([]byte, wire.PayloadMax+45)
	send := func() {
		o.Commit(append(o.Buffer(len(frame)), frame...))
		_, b := o.Next()
		must(t, o.Wrote(len(b)))
		if acked := o.Position() - min(o.Position(), 3*uint64(len(frame))); acked > o.Acked() {
			must(t, o.Ack(acked))
		}
	}
	for range 10 {
		send()
	}
	if n := testing.AllocsPerRun(100, send); n != 0 {
		t.Errorf("%v allocations for a frame, want 0", n)
	}
}

// An acknowledgement is due beside another frame above besideBytes, and alone from aloneBytes on.
func TestInDue(t *testing.T) {
	var i In
	if i.Handled(besideBytes); i.IsDue() {
		t.Errorf("due beside a frame after %d bytes", i.Received())
	}
	if i.Handled(aloneBytes-1-besideBytes) || !i.IsDue() || i.IsStated() {
		t.Errorf("due after %d bytes, or not due beside a frame", i.Received())
	}
	if !i.Handled(1) || i.State() != aloneBytes || i.IsDue() || i.Handled(1) || i.IsStated() || i.State() != aloneBytes+1 || !i.IsStated() {
		t.Errorf("not due after %d bytes, or due again", i.Received())
	}
}

func BenchmarkOut(b *testing.B) {
	var o Out
	frame := make([]byte, 40)
	b.ReportAllocs()
	for b.Loop() {
		o.Commit(append(o.Buffer(len(frame)), frame...))
		_, n := o.Next()
		if o.Wrote(len(n)) != nil || o.Ack(o.Position()) != nil {
			b.Fatal("no acknowledgement")
		}
	}
}
