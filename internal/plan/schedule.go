package plan

import (
	"fmt"
	"strings"
)

// A schedule runs plans with messages that wait until they are taken. All moves of a round
// happen at once, and a rank enters the next round when all of them are done. The messages of
// all pairs must match in number.
type schedule struct {
	plans []Plan
	step  func(rank int, m, sent *Move) error

	round   []int     // the current round of each rank
	open    []int     // messages of that round that are not yet done
	waiting []waiting // by sender and receiver
	ready   []int     // ranks that have completed their round
}

// waiting are the messages from one rank to another that wait for the other side: for the
// receiver if count is positive, else for the sender. They belong to the current round of the
// waiting side; move is the first of them.
type waiting struct{ count, move int32 }

// run calls step for every move that writes, in a possible order of execution. A move that
// takes a message comes with the move that sent it.
func run(plans []Plan, step func(rank int, m, sent *Move) error) error {
	size := len(plans)
	s := schedule{
		plans: plans, step: step,
		round: make([]int, size), open: make([]int, size), waiting: make([]waiting, size*size),
	}
	for rank := range plans {
		if err := s.enter(rank); err != nil {
			return err
		}
	}
	for len(s.ready) > 0 {
		rank := s.ready[len(s.ready)-1]
		s.ready = s.ready[:len(s.ready)-1]
		s.round[rank]++
		if err := s.enter(rank); err != nil {
			return err
		}
	}
	for rank, plan := range plans {
		if s.round[rank] < len(plan.Rounds) {
			return s.deadlock(rank)
		}
	}
	return nil
}

// enter begins the current round of a rank, and continues with the next as long as there are no
// open messages.
func (s *schedule) enter(rank int) error {
	for rounds := s.plans[rank].Rounds; s.round[rank] < len(rounds); s.round[rank]++ {
		round := rounds[s.round[rank]]
		for i := range round {
			if round[i].messages() {
				s.open[rank]++
			}
		}
		for i := range round {
			var err error
			if round[i].messages() {
				err = s.post(rank, i)
			} else {
				err = s.do(rank, i, nil)
			}
			if err != nil {
				return err
			}
		}
		if s.open[rank] > 0 {
			return nil
		}
	}
	return nil
}

// current returns the current round of a rank.
func (s *schedule) current(rank int) Round { return s.plans[rank].Rounds[s.round[rank]] }

// do executes a move.
func (s *schedule) do(rank, move int, sent *Move) error {
	if err := s.step(rank, &s.current(rank)[move], sent); err != nil {
		return fmt.Errorf("%s: %w", place(s.plans, rank, s.round[rank], move), err)
	}
	return nil
}

// post makes one side of a message known, and executes it if the other side is known.
func (s *schedule) post(rank, move int) error {
	m := &s.current(rank)[move]
	from, to, side := rank, m.Peer, int32(1)
	if m.Kind != Send {
		from, to, side = to, from, -1
	}
	w := &s.waiting[from*len(s.plans)+to]
	if w.count*side >= 0 {
		if w.count == 0 {
			w.move = int32(move)
		}
		w.count += side
		return nil
	}
	other := s.current(m.Peer)
	partner := int(w.move)
	if w.count += side; w.count != 0 {
		// The next waiting move is the next of its kind in the round.
		for next := partner + 1; ; next++ {
			o := &other[next]
			if o.messages() && o.Peer == rank && (o.Kind == Send) == (m.Kind != Send) {
				w.move = int32(next)
				break
			}
		}
	}
	s.open[rank]--
	if s.open[m.Peer]--; s.open[m.Peer] == 0 {
		s.ready = append(s.ready, m.Peer)
	}
	if m.Kind == Send {
		return s.do(m.Peer, partner, m)
	}
	return s.do(rank, move, &other[partner])
}

// deadlock names ranks that wait for one another in a cycle.
func (s *schedule) deadlock(rank int) error {
	var text strings.Builder
	seen := make(map[int]bool)
	for !seen[rank] && s.round[rank] < len(s.plans[rank].Rounds) {
		seen[rank] = true
		move := s.stuck(rank)
		fmt.Fprintf(&text, "; %s", place(s.plans, rank, s.round[rank], move))
		rank = s.current(rank)[move].Peer
	}
	return fmt.Errorf("deadlock: each waits for the next%s", text.String())
}

// stuck returns a move of the current round of a rank with an incomplete message.
func (s *schedule) stuck(rank int) int {
	for i, m := range s.current(rank) {
		if !m.messages() {
			continue
		}
		w := s.waiting[m.Peer*len(s.plans)+rank]
		if m.Kind == Send {
			w = s.waiting[rank*len(s.plans)+m.Peer]
		}
		if (m.Kind == Send) == (w.count > 0) && w.count != 0 && i >= int(w.move) {
			return i
		}
	}
	panic("plan: a rank is stuck, but none of its messages is")
}
