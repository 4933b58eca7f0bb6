package engine

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/recorder"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
)

// plainText describes calls in the tests.
type plainText struct{}

func (plainText) Operation(w *wire.Wait) trace.Operation {
	o := trace.Operation{Op: "recv", Root: -1, Peer: -1, Duration: time.Duration(w.For), Site: w.Site}
	if len(w.Peers) > 0 {
		o.Peer = int(w.Peers[0].Rank)
	}
	return o
}

func (plainText) Deadlock(e *DeadlockError) string { return e.Error() }

// A stallTest is the stalls of rank 0, which has the view of n ranks. The test sets the time and gives the answers
// of the other ranks. All of them have the same link, without traffic.
type stallTest struct {
	*stalls
	link *link.Link
	log  bytes.Buffer
	mine waits // of rank 0
}

func newStallTest(t *testing.T, n int, list ...wait) *stallTest {
	w, _, _ := newFakePeers(t, 2)
	s := &stallTest{link: w.links[0][1]}
	s.stalls = &stalls{engine: w.engines[0], calls: make(map[waitKey]*stalledCall), peers: make(map[int]*peerWaits), askers: make(map[int]time.Time)}
	s.cfg = StallConfig{DeadlockTimeout: time.Minute, Describer: plainText{}, Log: slog.New(slog.NewTextHandler(&s.log, nil))}
	for i := range list {
		list[i].comm = &Comm{id: commID}
		list[i].waitKey = waitKey{commID, list[i].wire.Kind, uint64(i)}
	}
	s.mine = waits{epoch: 1, list: list, links: make([]*link.Link, n), peers: n - 1}
	for rank := 1; rank < n; rank++ {
		s.mine.links[rank] = s.link
	}
	return s
}

// tick lets the time pass to the next check. It logs, and sends nothing.
func (s *stallTest) tick() {
	s.now += stallTick
	for _, f := range s.checkLocked(s.mine, true, stallTick, nil) {
		if s.found != nil && s.found.confirmed {
			f()
		}
	}
}

// answer is an answer of a rank to a question, which goes through the encoding.
func (s *stallTest) answer(t *testing.T, rank int, number, state uint64, list ...wire.Wait) {
	t.Helper()
	b, complete := wire.AppendWaits(nil, list, wire.WaitsMax)
	if !complete {
		t.Fatalf("the waits of rank %d do not fit into an answer", rank)
	}
	decoded, err := wire.DecodeWaits(b)
	if err != nil {
		t.Fatal(err)
	}
	s.answeredLocked(s.link, wire.Waits{Epoch: 1, Number: number, Rank: uint32(rank), State: state, Received: s.link.Traffic().Sent}, decoded)
}

func recvFrom(rank, from int, state uint64) wire.Wait {
	return wire.Wait{Rank: uint32(rank), Kind: wire.WaitRecv, Peers: []wire.WaitPeer{{Rank: uint32(from), State: state, Quiet: true}}}
}

// TestStaleAnswer: an answer counts for its own question. One that arrives late says nothing about the time after a
// later question, and neither replaces the answer to that one nor confirms a deadlock.
func TestStaleAnswer(t *testing.T) {
	s := newStallTest(t, 2, wait{wire: recvFrom(0, 1, 0), p2p: p2p.Wait{Peer: 1}})
	for s.peers[1] == nil || len(s.peers[1].open) < 3 {
		s.tick()
	}
	p := s.peers[1]
	first, second, third := p.open[0].number, p.open[1].number, p.open[2].number
	s.answer(t, 1, third+1, 6)
	if p.at != 0 {
		t.Error("an answer to a question that was never asked counts")
	}
	s.answer(t, 1, second, 7, recvFrom(1, 0, s.state))
	for _, stale := range []uint64{first, second} {
		if s.answer(t, 1, stale, 6); p.State != 7 || len(p.list) != 1 {
			t.Errorf("an answer to question %d replaces one to question %d", stale, second)
		}
	}
	found := s.now
	s.answer(t, 1, third, 7, recvFrom(1, 0, s.state))
	s.tick()
	if s.found == nil {
		t.Fatal("the deadlock is not found")
	}
	for len(p.open) == 0 {
		s.tick()
	}
	if s.found.confirmed {
		t.Errorf("found at %v, and confirmed by answers to earlier questions", found)
	}
	s.answer(t, 1, p.open[0].number, 7, recvFrom(1, 0, s.state))
	if s.tick(); s.found == nil || !s.found.confirmed {
		t.Error("an answer to a later question does not confirm the deadlock")
	}
	if !strings.Contains(s.log.String(), "2 ranks wait for each other") {
		t.Errorf("logged: %s", &s.log)
	}
}

// TestLateAnswers: answers that all arrive after the next question count, however many questions are open.
func TestLateAnswers(t *testing.T) {
	s := newStallTest(t, 2, wait{wire: recvFrom(0, 1, 0), p2p: p2p.Wait{Peer: 1}})
	for range 100 * int(askEvery/stallTick) {
		s.tick()
	}
	p := s.peers[1]
	if len(p.open) != questionsMax || p.open[0].number != 1 {
		t.Fatalf("%d open questions, the first is %d; want %d, with the first", len(p.open), p.open[0].number, questionsMax)
	}
	if text, want := s.clusterLocked().Doing(1), fmt.Sprintf("has not answered for %d s", (s.now-stallTick)/time.Second); text != want {
		t.Errorf("rank 1 is %q, want the time since the first question", text)
	}
	s.answer(t, 1, p.open[questionsMax-2].number, 7)
	if len(p.open) != 1 || p.at != s.now || s.clusterLocked().Doing(1) != "has made no call" {
		t.Errorf("%d open questions, rank 1 is %q after an answer to the last but one", len(p.open), s.clusterLocked().Doing(1))
	}
}

// TestAnyRankOfMany: 1,999 ranks that receive from any of 2,000 are in the deadlock of a rank that receives
// from one of them, unless a message is in flight to one of them.
func TestAnyRankOfMany(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
	const n = 2000
	for _, inFlight := range []bool{false, true} {
		s := newStallTest(t, n, wait{wire: recvFrom(0, 1, 0), p2p: p2p.Wait{Peer: 1}})
		state := func(rank int) uint64 {
			if rank == 0 {
				return s.state
			}
			return uint64(rank) << 32
		}
		waits := func(rank int) wire.Wait {
			w := wire.Wait{Rank: uint32(rank), Kind: wire.WaitRecv, Any: true, Ranges: []wire.RankRange{{First: 0, Last: n - 1}}, Quiet: true}
			for other := range n {
				if other != rank {
					w.States += wire.StateDigest(uint32(other), state(other))
				}
			}
			w.Quiet = !inFlight || rank != n/2
			return w
		}
		for range 20 {
			s.tick()
			for rank := 1; rank < n; rank++ {
				if p := s.peers[rank]; p != nil && len(p.open) > 0 {
					s.answer(t, rank, p.open[len(p.open)-1].number, state(rank), waits(rank))
				}
			}
		}
		if confirmed := s.found != nil && s.found.confirmed; confirmed == inFlight {
			t.Errorf("a message in flight: %v; a deadlock: %v", inFlight, confirmed)
		}
		if !inFlight && !strings.Contains(s.log.String(), "2000 ranks wait for each other") {
			t.Errorf("logged: %s", &s.log)
		}
	}
}

// TestRanges: the ranks of a communicator are ranges of ranks of its view.
func TestRanges(t *testing.T) {
	const n = 2000
	c := &Comm{rank: 3, traced: &recorder.Comm{}}
	var ranks []int
	for i := range n {
		ranks = append(ranks, (4+i)%n)
	}
	if got := c.rangesLocked(ranks); !slices.Equal(got, []wire.RankRange{{First: 0, Last: n - 1}}) {
		t.Errorf("the ranges of %d ranks are %v", n, got)
	}
	c.traced.Ranks = []int{9, 4, 7, 8, 5}
	if got := c.rangesLocked([]int{4, 0, 1, 2, 3}); !slices.Equal(got, []wire.RankRange{{First: 4, Last: 5}, {First: 7, Last: 9}}) {
		t.Errorf("the ranges of %v are %v", c.traced.Ranks, got)
	}
	if got := c.rangesLocked(nil); got == nil || len(got) > 0 {
		t.Errorf("the ranges of no rank are %v, want an empty list", got)
	}
}

// TestDeadlockOfMany: the rank that finds a deadlock and the others name the same ten ranks, and the number of all.
func TestDeadlockOfMany(t *testing.T) {
	var list []wire.Wait
	for rank := range 32 {
		w := recvFrom(rank, (rank+1)%32, 0)
		w.Any = rank%2 == 0
		list = append(list, w)
	}
	here := newDeadlockError(list)
	there, ok := deadlockOf(wire.WaitsText(len(list), list)).(*DeadlockError)
	if !ok || here.Ranks != 32 || there.Ranks != 32 || len(here.Waits) != namedMax || len(there.Waits) != namedMax {
		t.Fatalf("here %+v\nthere %+v", here, there)
	}
	for i := range here.Waits {
		if here.Waits[i].Rank != uint32(i) || there.Waits[i].Rank != uint32(i) {
			t.Errorf("wait %d is that of rank %d here, of rank %d there", i, here.Waits[i].Rank, there.Waits[i].Rank)
		}
	}
}

// waitsForAny is a collective of a rank that any of two others may let go on.
func waitsForAny(rank int, peers ...wire.WaitPeer) wire.Wait {
	return wire.Wait{Rank: uint32(rank), Kind: wire.WaitCollective, Peers: peers}
}

// answerAll gives an answer of each rank with an open question: its state, and a wait.
func (s *stallTest) answerAll(t *testing.T, state map[int]uint64, waits map[int]wire.Wait) {
	t.Helper()
	for rank := range state {
		if p := s.peers[rank]; p != nil && len(p.open) > 0 {
			s.answer(t, rank, p.open[len(p.open)-1].number, state[rank], waits[rank])
		}
	}
}

// TestCollectiveMayGoOn: a rank in a collective is not in a deadlock with one of the ranks that it waits for as long as another one
// may still answer: it sends further messages then.
func TestCollectiveMayGoOn(t *testing.T) {
	for _, late := range []bool{true, false} {
		s := newStallTest(t, 3, wait{wire: waitsForAny(0, wire.WaitPeer{Rank: 1}, wire.WaitPeer{Rank: 2})})
		for range 40 {
			s.tick()
			waits := map[int]wire.Wait{1: waitsForAny(1, wire.WaitPeer{Rank: 0, State: s.state, Quiet: true}), 2: recvFrom(2, 0, s.state)}
			if p := s.peers[2]; late && p != nil && len(p.open) > 0 {
				s.answer(t, 2, p.open[len(p.open)-1].number, 5) // in no call
			}
			s.answerAll(t, map[int]uint64{1: 3, 2: 5}, waits)
		}
		if confirmed := s.found != nil && s.found.confirmed; confirmed == late {
			t.Errorf("rank 2 is late: %v; a deadlock: %v", late, confirmed)
		}
	}
}

// TestOtherCycleIsConfirmed: a rank in a collective waits for one that it is in a cycle with, and for one in another cycle. The deadlock
// is confirmed only when the ranks of both cycles have answered again, with the same states.
func TestOtherCycleIsConfirmed(t *testing.T) {
	for name, changes := range map[string]bool{"the other cycle stands": false, "a rank of the other cycle has moved": true} {
		s := newStallTest(t, 4, wait{wire: recvFrom(0, 1, 0), p2p: p2p.Wait{Peer: 1}})
		state := map[int]uint64{1: 11, 2: 12, 3: 13}
		for range 60 {
			s.tick()
			if s.found != nil && changes && !s.found.confirmed {
				state[3] = 14 // Rank 2 still reports the state before.
			}
			s.answerAll(t, state, map[int]wire.Wait{
				1: waitsForAny(1, wire.WaitPeer{Rank: 0, State: s.state, Quiet: true}, wire.WaitPeer{Rank: 2, State: 12, Quiet: true}),
				2: recvFrom(2, 3, 13), 3: recvFrom(3, 2, 12),
			})
		}
		if confirmed := s.found != nil && s.found.confirmed; confirmed == changes {
			t.Errorf("%s: confirmed %v", name, confirmed)
		}
		if warned := strings.Contains(s.log.String(), "2 ranks wait for each other"); warned == changes {
			t.Errorf("%s: logged %s", name, &s.log)
		}
	}
}

// TestSentAfterQuestion: an answer does not show that nothing is in flight to its rank if this node has sent something after the
// question.
func TestSentAfterQuestion(t *testing.T) {
	s := newStallTest(t, 2, wait{wire: recvFrom(0, 1, 0), p2p: p2p.Wait{Peer: 1}})
	ask := func() uint64 {
		for s.peers[1] == nil || len(s.peers[1].open) == 0 {
			s.tick()
		}
		return s.peers[1].open[0].number
	}
	s.answer(t, 1, ask(), 7)
	if _, quiet := s.quietLocked(1, &s.own); !quiet {
		t.Error("something is in flight after an answer to the last question")
	}
	s.link.Closed((&wire.Closed{Last: wire.Call{Comm: commID + 9}}).Append(nil))
	if _, quiet := s.quietLocked(1, &s.own); quiet {
		t.Error("a frame that was sent after the question is not in flight")
	}
	s.answer(t, 1, ask(), 7)
	if _, quiet := s.quietLocked(1, &s.own); !quiet {
		t.Error("a frame that the rank has received is in flight")
	}
}
