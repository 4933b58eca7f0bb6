package rpc

import "container/list"

// A window bounds the calls of one rank in flight to another, and the bytes of their arguments.
// A call that does not fit is queued. All methods are called with the lock of the peer held.
type window struct {
	callsMax int
	bytesMax int64

	calls   int
	bytes   int64
	waiting list.List // of *waiter
}

// A waiter is a call in the queue.
type waiter struct {
	bytes int64
	turn  chan struct{} // closed when the call has entered or is dismissed
	in    bool
}

// enter admits a call, or returns its element of the queue. A call of at most bytesMax
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

// leave removes a call, and admits waiting calls that now fit.
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

// quit removes a call from the queue, or from the window if it was admitted.
func (w *window) quit(e *list.Element) {
	if q := e.Value.(*waiter); q.in {
		w.leave(q.bytes)
		return
	}
	w.waiting.Remove(e)
	w.admit() // It may have been the first one, and too large.
}

// dismiss wakes all waiting calls without admitting them.
func (w *window) dismiss() {
	for e := w.waiting.Front(); e != nil; e = w.waiting.Front() {
		close(w.waiting.Remove(e).(*waiter).turn)
	}
}
