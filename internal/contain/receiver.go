package contain

import (
	"sync"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// A receiver checks the calls of a Receiver and of its capabilities. Reads go through a
// buffer, and views end with the call, so that an abandoned call writes none of the
// caller's memory.
type receiver struct {
	*pipe
	inner transport.Receiver
}

// Capabilities implements [transport.Capable].
func (r *receiver) Capabilities() (can transport.Capabilities) {
	if r.can.Poller != nil {
		can.Poller = r
	}
	if r.can.CPULocator != nil {
		can.CPULocator = r
	}
	return can
}

func (r *receiver) Read(p []byte) (int, error) {
	n, err := r.read("Read", p, r.inner.Read, r.byDeadline)
	if n == 0 && err == nil && len(p) > 0 {
		return 0, r.fault("Read", "returned neither a byte nor an error")
	}
	return n, err
}

// TryRead implements [transport.Poller].
func (r *receiver) TryRead(p []byte) (int, error) {
	return r.read("TryRead", p, r.can.Poller.TryRead, r.atOnce)
}

// read runs a call that reads into a buffer, and copies the result to p.
func (r *receiver) read(call string, p []byte, f func([]byte) (int, error), run runFunc) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	buf := r.take(bufferBytes)
	part := buf[:min(len(p), len(buf))]
	n, err := run(call, func() (int, error) { return f(part) })
	if isFault(err) {
		return 0, err
	}
	if n < 0 || n > len(part) {
		return 0, r.fault(call, "into %d bytes returned %d", len(part), n)
	}
	copy(p, part[:n])
	r.giveBack(buf)
	return n, err
}

func (r *receiver) ReadFunc(n int, view func(p []byte)) (int, error) {
	got, err := r.readFunc("ReadFunc", n, view, r.inner.ReadFunc, r.byDeadline)
	if got < n && err == nil {
		return got, r.fault("ReadFunc", "of %d bytes returned %d without an error", n, got)
	}
	return got, err
}

// TryReadFunc implements [transport.Poller].
func (r *receiver) TryReadFunc(n int, view func(p []byte)) (int, error) {
	views := 0
	got, err := r.readFunc("TryReadFunc", n, func(p []byte) { views++; view(p) }, r.can.Poller.TryReadFunc, r.atOnce)
	if views > 1 && err == nil {
		return got, r.fault("TryReadFunc", "called view %d times, expected at most once", views)
	}
	return got, err
}

// readFunc runs a call that shows at most n bytes to view. It compares the number of
// bytes shown with the number returned.
func (r *receiver) readFunc(call string, n int, view func([]byte), f func(int, func([]byte)) (int, error), run runFunc) (int, error) {
	if n <= 0 {
		return 0, nil
	}
	var mu sync.Mutex
	seen, hasReturned := 0, false
	got, err := run(call, func() (int, error) {
		return f(n, func(p []byte) {
			mu.Lock()
			defer mu.Unlock()
			if hasReturned {
				return
			}
			if seen += len(p); seen <= n {
				view(p)
			}
		})
	})
	mu.Lock()
	hasReturned = true
	shown := seen
	mu.Unlock()
	if isFault(err) {
		return min(shown, n), err
	}
	if got != shown || got > n {
		return min(shown, n), r.fault(call, "of %d bytes showed %d and returned %d", n, shown, got)
	}
	return got, err
}

// WaitReadable implements [transport.Poller].
func (r *receiver) WaitReadable() {
	r.blocking("WaitReadable", false, func() (int, error) { r.can.Poller.WaitReadable(); return 0, nil })
}

// SetPolling implements [transport.Poller].
func (r *receiver) SetPolling(on bool) {
	r.do("SetPolling", func() error { r.can.Poller.SetPolling(on); return nil })
}

// PeerCPU implements [transport.CPULocator]. It is -1 after a fault.
func (r *receiver) PeerCPU() int {
	n, err := r.atOnce("PeerCPU", func() (int, error) { return r.can.CPULocator.PeerCPU(), nil })
	if err != nil {
		return -1
	}
	if n < -1 {
		r.fault("PeerCPU", "returned %d, expected -1 or the number of a processor", n)
		return -1
	}
	return n
}

func (r *receiver) SetReadDeadline(t time.Time) error {
	r.setDeadline(t)
	return r.do("SetReadDeadline", func() error { return r.inner.SetReadDeadline(t) })
}

func (r *receiver) Close() error {
	r.shut.Do(func() { close(r.closed) })
	return r.do("Close of a pipe", r.inner.Close)
}
