package link

import (
	"errors"
	"runtime"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A desk is where the frames of a lane are handled, in order: by one goroutine
// at a time, whose turn it is. That is the one that reads the lane until its
// end, or a visitor who waits for something and would rather not be woken.
type desk struct {
	link *Link
	lane wire.Lane
	reader
	dispatcher
	turn   atomic.Bool
	visits transport.Poller // nil if the lane cannot be polled
	// locator is nil where the transport cannot tell on which processor the peer runs.
	locator transport.Locator

	// Of the one whose turn it is.
	failed   error // what a visitor has run into
	attended bool
	lately   bool // there was a visit since lapse was called
	minded   bool // lapse will be called
}

// errOver is how a desk ends in good order.
var errOver = errors.New("link: the lane is over")

// desksMax is how many lanes can be visited, each pipe of the bulk lane counted.
const desksMax = int(wire.Lanes) - 1 + wire.BulkPipesMax

// idleMax is how often in a row there may be nothing to read when a pipe says
// that there is something. Then only a Read can tell why.
const idleMax = 4

// readFrames handles the frames of a lane until the peer has said goodbye.
func (l *Link) readFrames(pre wire.Preamble, p transport.Receiver, d dispatcher) error {
	k := &desk{link: l, lane: pre.Lane, reader: reader{pipe: p}, dispatcher: d}
	if pre.Lane != wire.Control {
		k.received = &l.received
		l.received.Add(wire.PreambleSize) // Its reader was acceptLane.
	}
	switch d := d.(type) {
	case bulkReader:
		k.flow, k.segments = d.flow, true
	case *dataReader:
		k.flow = d.flow
	}
	can := transport.CapabilitiesOf(p)
	k.locator = can.Locator
	if can.Poller != nil {
		k.visits = can.Poller
		l.desks[int(pre.Lane)+int(pre.Index)].Store(k)
		if pre.Lane == wire.Bulk {
			l.bulkDesks.Add(1)
		}
	}
	err := k.run()
	if err == errOver {
		return nil
	}
	return err
}

// run handles frames until an error. It keeps its turn when it returns, so that
// nobody handles anything later.
func (k *desk) run() error {
	for k.visits == nil {
		if err := k.next(); err != nil {
			return err
		}
	}
	for idle := 0; ; {
		k.visits.Await()
		if !k.take() {
			runtime.Gosched()
			continue
		}
		if k.failed != nil {
			return k.failed
		}
		some, err := k.serve(idle > idleMax)
		if err != nil {
			return err
		}
		k.turn.Store(false)
		if idle++; some {
			idle = 0
		}
	}
}

// take reports whether it is the caller's turn now.
func (k *desk) take() bool { return !k.turn.Load() && k.turn.CompareAndSwap(false, true) }

// serve handles what has come, at least one frame if there is one, or waits for
// one if patient. On the bulk lane, whose frames are long, it handles one at the
// most, and on others as many as have been read at once: to look for more takes as
// long as to handle one, and the caller may have what he waits for. It reports
// whether anything has come.
func (k *desk) serve(patient bool) (some bool, err error) {
	if patient {
		k.poll = nil
		return true, k.next()
	}
	k.poll, k.some = k.visits, false
	for {
		switch err := k.next(); {
		case err == errLater:
			return k.some, nil
		case err != nil:
			return true, err
		case k.segments || k.between():
			return true, nil
		}
	}
}

// between reports whether all is handled that was read.
func (k *desk) between() bool { return k.lo == k.hi && k.use == nil && !k.flow.flows() }

// next handles the next frame, or the rest of it.
func (k *desk) next() error {
	if k.use == nil && !k.flow.flows() {
		t, b, err := k.frame()
		if err != nil {
			return err
		}
		k.link.heard.Add(1)
		if t == wire.TypeBye {
			y, err := wire.ParseBye(b)
			if err = errors.Join(err, k.link.bye(k.lane, y)); err == nil && k.lane != wire.Control {
				err = errOver
			}
			return err // Acknowledgements of our own goodbye may still come.
		}
		if err := k.dispatch(&k.reader, t, b); err != nil {
			return err
		}
	}
	if k.flow.flows() {
		return k.flow.more(&k.reader)
	}
	return k.payload()
}
