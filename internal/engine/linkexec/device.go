package linkexec

import (
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/plan"
)

// A Device carries out the moves of one operation in memory of a device: it is [exec.Work].Device. All slices are such memory,
// which the processor cannot access, and are not empty. Methods that return an error block, and run on
// goroutines of the operation.
type Device interface {
	// Temp is the memory for Temp, of the length of [Needs].
	Temp() []byte
	// Landing returns where payloads for dst arrive.
	Landing(dst []byte) (d *link.Landing, at int)
	// Operand returns the memory for a payload that is reduced into dst.
	Operand(dst []byte) []byte
	// Deliver sets the payload of a transfer. If it must be copied to the host and that fails, failed is called.
	Deliver(t *link.Transfer, src []byte, failed func(error))
	// Copy makes dst = a. Combine makes dst = a op b, and Reduce dst = a op the payload in Operand(dst). The device has
	// the result when they return.
	Copy(dst, a []byte) error
	Combine(dst, a, b []byte) error
	Reduce(dst, a []byte) error
}

// Needs are the requirements of a call for its Device.
type Needs struct {
	Temp    int   // bytes
	Reduces bool  // there are moves with Operand, or Combine
	Peers   []int // that payloads are exchanged with
}

// DeviceNeeds returns the requirements of work, which is not in progress. It reports false if the work must not have a
// Device: another executor carries it out, or it has payloads of at most shortMax bytes, which are sent without a grant.
func DeviceNeeds(w *exec.Work, shortMax int) (n Needs, ok bool) {
	g, ok := w.Plan.(*Program)
	if !ok || w.Executor != exec.Links {
		return Needs{}, false
	}
	var v exec.Vectors
	v.Set(w, g.chunks)
	n = Needs{Temp: v.SizeTemp(g.temp.Lo, g.temp.Hi, false), Peers: g.peers}
	for i := range g.moves {
		m := &g.moves[i]
		n.Reduces = n.Reduces || m.Kind == plan.Reduce || m.Kind == plan.Combine
		if isLocal(m) {
			continue
		}
		span := m.Dst
		if m.Kind == plan.Send {
			span = m.A
		}
		for ch := range v.Channels {
			if k := v.Length(span, ch); k > 0 && k <= shortMax {
				return Needs{}, false
			}
		}
	}
	return n, true
}

// launchLocked makes a move that the device carries out, on a goroutine.
func (r *Execution) launchLocked(e *effect) {
	r.busy++
	r.launches++
	e.kind = launch
}

// launch carries a move without a peer out, or the reduction of a payload that has arrived.
func (r *Execution) launch(i int) {
	m, ch := r.move(i), i/len(r.program.moves)
	dst, d := r.Bytes(m.Dst, ch), r.device
	go func() {
		var err error
		switch m.Kind {
		case plan.Copy:
			err = d.Copy(dst, r.Bytes(m.A, ch))
		case plan.Combine:
			err = d.Combine(dst, r.Bytes(m.A, ch), r.Bytes(m.B, ch))
		default:
			err = d.Reduce(dst, r.Bytes(m.A, ch))
		}
		r.launched(i, err)
	}()
}

// launched ends a move of launch.
func (r *Execution) launched(i int, err error) {
	r.executor.mu.Lock()
	r.launches--
	if err == nil && !r.stopped {
		r.finishLocked(i)
	}
	isStopped := r.stopped
	if err != nil && !isStopped {
		r.executor.mu.Unlock()
		r.op.Abort(err) // The operation cannot complete, and this goroutine counts as busy.
		r.executor.mu.Lock()
	}
	e := r.nextLocked(&effect{kind: resume})
	r.executor.mu.Unlock()
	if r.carryOut(e) {
		r.op.Wake()
	}
}

// OnDeviceLocked implements [exec.DeviceUser]. The device reduces or copies, or has to provide a payload that the peer has granted.
func (r *Execution) OnDeviceLocked() bool {
	if r.launches > 0 || r.device == nil {
		return r.launches > 0
	}
	for i := range r.transfers {
		if r.transfers[i].Owner != nil {
			return true
		}
	}
	return false
}

// deliverDevice sets the payload of a transfer.
func (r *Execution) deliverDevice(t *link.Transfer, src []byte) { r.device.Deliver(t, src, r.op.Abort) }

// sinkDevice makes a sink receive memory of the device.
func (r *Execution) sinkDevice(s *link.Sink, m *move) {
	if m.Kind == plan.Reduce {
		s.Dst = r.device.Operand(s.Dst)
	}
	s.Landing, s.At = r.device.Landing(s.Dst)
}
