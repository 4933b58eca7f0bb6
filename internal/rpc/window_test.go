package rpc

import (
	"testing"

	"pgregory.net/rapid"
)

func newWindow(calls int, bytes int64) *window { return &window{callsMax: calls, bytesMax: bytes} }

// The window never exceeds its limits, its first waiter never fits, and waiters enter
// in order.
func TestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWindow(rapid.IntRange(1, 4).Draw(t, "calls"), rapid.Int64Range(10, 20).Draw(t, "bytes"))
		var in []int64 // bytes of admitted calls
		type place struct {
			*waiter
			quit func()
		}
		var waiting []place
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				n := rapid.Int64Range(0, 10).Draw(t, "bytes")
				if e := w.enter(n); e == nil {
					if len(waiting) > 0 {
						t.Fatal("a call has entered before the waiters")
					}
					in = append(in, n)
				} else {
					waiting = append(waiting, place{e.Value.(*waiter), func() { w.quit(e) }})
				}
			case 1:
				if len(in) > 0 {
					i := rapid.IntRange(0, len(in)-1).Draw(t, "leaves")
					w.leave(in[i])
					in = append(in[:i], in[i+1:]...)
				}
			case 2:
				if len(waiting) > 0 {
					i := rapid.IntRange(0, len(waiting)-1).Draw(t, "quits")
					waiting[i].quit()
					waiting = append(waiting[:i], waiting[i+1:]...)
				}
			}
			for len(waiting) > 0 && waiting[0].in {
				in = append(in, waiting[0].bytes)
				<-waiting[0].turn
				waiting = waiting[1:]
			}
			checkWindow(t, w, in)
			for _, p := range waiting {
				if p.in {
					t.Fatal("a call has entered before the first waiter")
				}
			}
			if len(waiting) > 0 && len(in) < w.callsMax && w.bytes+waiting[0].bytes <= w.bytesMax {
				t.Fatal("the first waiter would fit")
			}
		}
	})
}

func checkWindow(t *rapid.T, w *window, in []int64) {
	var bytes int64
	for _, n := range in {
		bytes += n
	}
	if w.calls != len(in) || w.bytes != bytes || len(in) > w.callsMax || bytes > w.bytesMax {
		t.Fatalf("%d calls of %d bytes are in, the window counts %d and %d, and may have %d and %d",
			len(in), bytes, w.calls, w.bytes, w.callsMax, w.bytesMax)
	}
}

// A waiter that was admitted may still quit, which makes room.
func TestWindowQuitAfterTurn(t *testing.T) {
	w := newWindow(1, 10)
	w.enter(1)
	a, b := w.enter(2), w.enter(3)
	w.leave(1)
	w.quit(a)
	<-b.Value.(*waiter).turn
	if w.calls != 1 || w.bytes != 3 {
		t.Errorf("%d calls of %d bytes are in, want 1 of 3", w.calls, w.bytes)
	}
}

// Dismissed waiters stop waiting, and have not entered.
func TestWindowDismiss(t *testing.T) {
	w := newWindow(1, 10)
	w.enter(1)
	a, b := w.enter(2), w.enter(3)
	w.dismiss()
	<-a.Value.(*waiter).turn
	<-b.Value.(*waiter).turn
	w.quit(a)
	if w.calls != 1 || w.bytes != 1 {
		t.Errorf("%d calls of %d bytes are in, want 1 of 1", w.calls, w.bytes)
	}
}
