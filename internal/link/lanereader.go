package link

import (
	"runtime"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A laneReader handles the frames of one pipe of the peer in order. One goroutine at a time
// owns it: its own goroutine, which reads the pipe to its end, or one that polls inline
// ([Polling]) and so need not be woken.
type laneReader struct {
	link *Link
	of   *attachment
	lane wire.Lane
	reader
	dispatcher
	owned   atomic.Bool          // a goroutine owns the reader
	poller  transport.Poller     // nil if the pipe cannot be polled
	locator transport.CPULocator // nil if the transport does not know the processor of the peer

	// Only the owner uses these.
	numbered  int   // length of the current frame if it has a number, else 0
	failed    error // found while polling inline; for the reader's own goroutine
	attended  bool  // received bytes do not wake the reader's own goroutine
	recent    bool  // polled since the last call of expire
	scheduled bool  // known to the idle timer
}

// laneReadersMax is the number of pipes that can be polled.
const laneReadersMax = int(wire.Lanes) - 1 + wire.BulkPipesMax

// emptyReadsMax bounds the consecutive reports of bytes by a pipe that has none. After that a
// blocking Read determines the reason.
const emptyReadsMax = 4

// readFrames handles the frames of a pipe until it ends.
func (l *Link) readFrames(a *attachment, pre wire.Preamble, p transport.Receiver, d dispatcher, f *flow) error {
	r := &laneReader{
		link: l, of: a, lane: pre.Lane, dispatcher: d,
		reader: reader{pipe: p, flow: f, segments: pre.Lane == wire.Bulk},
	}
	if pre.Lane != wire.Control {
		r.received = &l.exchange().read
		l.exchange().heard.Add(1) // acceptLane has read the preamble.
	}
	can := transport.CapabilitiesOf(p)
	r.locator = can.CPULocator
	if can.Poller != nil {
		r.poller = can.Poller
		a.laneReaders[int(pre.Lane)+int(pre.Index)].Store(r)
		if pre.Lane == wire.Bulk {
			a.bulkReaders.Add(1)
		}
	}
	return r.run()
}

// run handles frames until an error. It then keeps the reader, so that no frame is handled
// later.
func (r *laneReader) run() error {
	defer r.unattend() // The pipe may keep its memory until then.
	for r.poller == nil {
		if err := r.next(); err != nil {
			return err
		}
	}
	for empty := 0; ; {
		r.poller.WaitReadable()
		if !r.tryAcquire() {
			runtime.Gosched()
			continue
		}
		if r.failed != nil {
			return r.failed
		}
		some, err := r.handle(empty > emptyReadsMax)
		if err != nil {
			return err
		}
		r.release()
		if empty++; some {
			empty = 0
		}
	}
}

// tryAcquire makes the caller the owner of a reader without an owner.
func (r *laneReader) tryAcquire() bool {
	return !r.owned.Load() && r.owned.CompareAndSwap(false, true)
}

func (r *laneReader) release() { r.owned.Store(false) }

// handle handles the available frames; with block it waits for one. It handles one frame of the
// bulk lane, where frames are long. On other lanes it handles all frames of one read: another
// read takes as long as handling a frame, and the caller may not have to wait any more. It
// reports whether anything has arrived.
func (r *laneReader) handle(block bool) (some bool, err error) {
	if block {
		r.unattend() // Read must not be called while polling is on.
		r.poll = nil
		return true, r.next()
	}
	r.poll, r.some = r.poller, false
	for {
		switch err := r.next(); {
		case err == errLater:
			return r.some, nil
		case err != nil:
			return true, err
		case r.segments || r.isDrained():
			return true, nil
		}
	}
}

// isDrained reports whether all bytes read have been handled.
func (r *laneReader) isDrained() bool { return r.lo == r.hi && r.use == nil && !r.flow.flows() }

// next handles the next frame, or the rest of the current one.
func (r *laneReader) next() error {
	if r.use == nil && !r.flow.flows() {
		t, b, err := r.frame()
		if err != nil {
			return err
		}
		if r.received == nil { // otherwise bytes are counted
			r.link.exchange().heard.Add(1)
		}
		r.numbered = 0
		if r.lane != wire.Bulk && !wire.IsTransient(t) {
			r.numbered = len(b)
		}
		if err := r.dispatch(&r.reader, t, b); err != nil {
			return err
		}
		switch {
		case r.numbered == 0:
		case r.use != nil:
			r.numbered += r.want
		case r.flow.flows():
			r.numbered += r.flow.left
		}
	}
	var err error
	if r.flow.flows() {
		err = r.flow.more(&r.reader)
	} else {
		err = r.payload()
	}
	if err == nil && r.numbered > 0 {
		r.handled()
	}
	return err
}

// handled counts a frame that was handled, and acknowledges it if that is due.
func (r *laneReader) handled() {
	if x := r.link.exchange(); x.in[r.lane].Handled(r.numbered) {
		r.link.acknowledge()
	}
	r.of.noteRead()
}

// attend stops received bytes from waking the reader's own goroutine: the owner polls.
func (r *laneReader) attend() {
	if !r.attended {
		r.attended = true
		r.poller.SetPolling(true)
	}
}

func (r *laneReader) unattend() {
	if r.attended {
		r.attended = false
		r.poller.SetPolling(false)
	}
}

// fail passes an error to the reader's own goroutine, and releases the reader.
func (r *laneReader) fail(err error) {
	r.failed = err
	r.pipe.SetReadDeadline(past)
	r.unattend()
	r.release()
}
