package engine

import (
	"errors"
	"testing"

	"github.com/nexar-go/nexar/internal/link"
)

// A stuckDevice works on its first reduction until it is released, and then fails. Its memory is that of the host.
type stuckDevice struct {
	work     []byte // for payloads that are reduced
	reducing chan struct{}
	released chan struct{}
}

func (d *stuckDevice) Temp() []byte                                      { return nil }
func (d *stuckDevice) Landing(dst []byte) (l *link.Landing, at int)      { return link.NewLanding(dst), 0 }
func (d *stuckDevice) Operand(dst []byte) []byte                         { return d.work[:len(dst)] }
func (d *stuckDevice) Deliver(t *link.Transfer, s []byte, _ func(error)) { t.Data = s }
func (d *stuckDevice) Copy(_, _ []byte) error                            { return errors.ErrUnsupported }
func (d *stuckDevice) Combine(_, _, _ []byte) error                      { return errors.ErrUnsupported }

func (d *stuckDevice) Reduce(_, _ []byte) error {
	close(d.reducing)
	<-d.released
	return errors.New("the device is broken")
}

// TestDeviceAtWorkIsBusy: while the device of a rank works for a collective, the rank counts as busy in the search for deadlocks, although
// it waits for another rank in a later collective.
func TestDeviceAtWorkIsBusy(t *testing.T) {
	w := tracedWorld(t, 2)
	d := &stuckDevice{work: make([]byte, 1<<20), reducing: make(chan struct{}), released: make(chan struct{})}
	for rank, c := range w.comms {
		work := w.work(rank, ring, vector(rank, 100_000))
		if rank == 0 {
			work.Device = d
		}
		if _, err := c.start(work); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.comms[0].start(w.work(0, ring, vector(0, 100))); err != nil {
		t.Fatal(err)
	}
	defer close(d.released)
	<-d.reducing
	if own, ok := w.engines[0].collect(nil); !ok || !own.busy {
		t.Errorf("rank 0 waits in %+v, busy: %t, want busy", own.list, own.busy)
	}
}
