package linkexec

import (
	"fmt"

	"github.com/nexar-go/nexar/internal/engine/exec"
)

// ArriveLocked implements [exec.Receiver]. It notes the frame in the instance of its move. If the move
// depends on nothing else, Receive makes it: a payload is used before the link reuses it.
func (r *Execution) ArriveLocked(rank int, f *exec.Frame) (exec.Disposition, error) {
	if r.stopped {
		return exec.Discard, nil
	}
	i, err := r.findLocked(rank, f)
	if err != nil {
		return exec.Discard, err
	}
	s := &r.instances[i]
	isReady := s.state&ready != 0
	switch f.Kind {
	case exec.Step:
		if !isReady {
			f.HoldLocked()
			s.frame = f
			return exec.Hold, nil
		}
		s.state |= done
	case exec.Offer:
		s.state |= wanted
	case exec.Grant:
		s.state |= granted
		s.grant = f.Step.Grant
	}
	switch {
	case !isReady:
		return exec.Discard, nil
	case f.Kind != exec.Step:
		r.ready = append(r.ready, int32(i))
	}
	f.Instance = i
	r.busy++
	return exec.Receive, nil
}

// Receive implements [exec.Receiver].
func (r *Execution) Receive(f *exec.Frame) {
	e := effect{kind: resume, frame: f}
	if f.Kind == exec.Step {
		e.kind, e.instance, e.channel, e.move = receive, int32(f.Instance), int32(f.Step.Channel), r.move(f.Instance)
	}
	if r.carryOut(e) {
		r.op.Wake()
	}
}

// findLocked returns the instance of a frame. It fails if the frame breaks the protocol.
func (r *Execution) findLocked(rank int, f *exec.Frame) (found int, err error) {
	g, s := r.program, &f.Step
	list := g.recvs[rank]
	if f.Kind == exec.Grant {
		list = g.sends[rank]
	}
	if int(s.Channel) >= r.Channels || int(s.Index) >= len(list) {
		return 0, fmt.Errorf("message %d of channel %d is not in the plan", s.Index, s.Channel)
	}
	m := int(list[s.Index])
	found = int(s.Channel)*len(g.moves) + m
	if !r.expectsLocked(&r.instances[found], &g.moves[m], f) {
		return 0, fmt.Errorf("message %d of channel %d arrived twice, without a request, or with an unexpected length (%d bytes)",
			s.Index, s.Channel, len(f.Payload))
	}
	return found, nil
}

// expectsLocked reports whether the protocol allows a frame for an instance now.
func (r *Execution) expectsLocked(s *instance, m *move, f *exec.Frame) bool {
	ch := int(f.Step.Channel)
	switch f.Kind {
	case exec.Grant:
		asked := s.state&wanted != 0 || r.Length(m.A, ch) > r.executor.eagerMax
		return asked && s.state&(granted|done) == 0
	case exec.Offer:
		if r.Length(m.Dst, ch) > r.executor.eagerMax {
			return false
		}
	case exec.Step:
		if len(f.Payload) != r.Length(m.Dst, ch) {
			return false
		}
	}
	return s.state&(wanted|granted|done) == 0 && s.frame == nil
}
