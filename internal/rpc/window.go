package rpc

import "container/list"

// A window is how much one rank may have under way to another: calls, and the
// bytes of their arguments. Who does not fit waits behind those who came
// before. Whoever uses it holds a lock.
type window struct {
	callsMax int
	bytesMax int64

	calls   int
	bytes   int64
	waiting list.List // of *waiter
}

// A waiter is a call that does not fit yet.
type waiter struct {
	bytes int64
	turn  chan struct{} // closed when it has entered, or need not wait any more
	in    bool
}

// enter lets a call in, or returns its place among those who wait. A call of at
// most bytesMax fits if nothing else is under way.
func (w *window) enter(bytes int64) *list.Element {
	if w.waiting.Len() == 0 && w.fits(bytes) {
		w.add(bytes)
		return nil
	}
	return w.waiting.PushBack(&waiter{bytes: bytes, turn: make(chan struct{})})
}

func (w *window) fits(bytes int64) bool { return w.calls < w.callsMax && w.bytes+bytes <= w.bytesMax }

func (w *window) add(bytes int64) {
	w.calls++
	w.bytes += bytes
}

// leave takes a call out, and lets in those who now fit.
func (w *window) leave(bytes int64) {
	w.calls--
	w.bytes -= bytes
	w.admit()
}

func (w *window) admit() {
	for e := w.waiting.Front(); e != nil; e = w.waiting.Front() {
		first := e.Value.(*waiter)
		if !w.fits(first.bytes) {
			return
		}
		w.waiting.Remove(e)
		w.add(first.bytes)
		first.in = true
		close(first.turn)
	}
}

// quit takes back a place among those who wait, or, if its turn has come, the
// call itself.
func (w *window) quit(e *list.Element) {
	if q := e.Value.(*waiter); q.in {
		w.leave(q.bytes)
		return
	}
	w.waiting.Remove(e)
	w.admit() // It may have been the first, and too large.
}

// dismiss wakes all who wait; none of them enters.
func (w *window) dismiss() {
	for e := w.waiting.Front(); e != nil; e = w.waiting.Front() {
		close(w.waiting.Remove(e).(*waiter).turn)
	}
}
