package rpc

import "container/list"

// A window limits the calls that one rank has in flight to another, and the bytes of
// their arguments. A call that does not fit waits in a queue. Methods are called with
// the lock of the peer held.
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

// enter admits a call, or returns its place in the queue. A call of at most bytesMax
// fits if nothing else is in flight.
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

// leave removes a call, and admits those of the queue that now fit.
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

// quit removes a call from the queue, or from the window if it has been admitted.
func (w *window) quit(e *list.Element) {
	if q := e.Value.(*waiter); q.in {
		w.leave(q.bytes)
		return
	}
	w.waiting.Remove(e)
	w.admit() // It may have been the first, and too large.
}

// dismiss wakes all waiting calls without admitting them.
func (w *window) dismiss() {
	for e := w.waiting.Front(); e != nil; e = w.waiting.Front() {
		close(w.waiting.Remove(e).(*waiter).turn)
	}
}
