package plan

import (
	"strings"
	"testing"
)

// rounds makes a plan of rounds of moves; Temp is as large as they need.
func rounds(chunks int, rs ...Round) Plan {
	p := Plan{Chunks: chunks}
	for _, r := range rs {
		p.round(r...)
	}
	return p
}

// A fault is a set of wrong plans and the expected error of Check.
type fault struct {
	name  string
	c     Collective
	plans []Plan
	want  []string
}

func (f fault) test(t *testing.T) {
	err := Check(f.c, 0, f.plans)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range f.want {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
}

var d0, d1, t0 = one(Data, 0), one(Data, 1), one(Temp, 0)

// exchange is the all-reduce of two ranks.
func exchange(rank int) Plan {
	return rounds(1,
		Round{send(d0, 1-rank), recv(t0, 1-rank)},
		Round{combine(d0, []Span{d0, t0}[rank], []Span{t0, d0}[rank])})
}

func TestExchangeIsRight(t *testing.T) {
	if err := Check(AllReduce, 0, []Plan{exchange(0), exchange(1)}); err != nil {
		t.Error(err)
	}
}

// Faults that only running the plans reveals.
func TestCheckNamesFaultsOfResults(t *testing.T) {
	t.Parallel()
	for _, f := range []fault{
		{"nothing done", AllReduce, []Plan{rounds(1), rounds(1)},
			[]string{"at the end Data[0:1] of rank 0", "input of rank 1 0 times instead of 1"}},
		{"twice", AllReduce, []Plan{
			rounds(1, Round{send(d0, 1), recv(t0, 1)}, Round{combine(d0, d0, t0)}, Round{combine(d0, d0, t0)}), exchange(1)},
			[]string{"at the end Data[0:1] of rank 0", "input of rank 1 2 times instead of 1"}},
		{"different expressions", AllReduce, []Plan{exchange(0),
			rounds(1, Round{send(d0, 0), recv(t0, 0)}, Round{combine(d0, d0, t0)})},
			[]string{"Data[0:1] of rank 1", "the sum (1 0)", "at rank 0 the sum (0 1)"}},
		{"message of another chunk", Broadcast, []Plan{
			rounds(2, Round{send(span(Data, 0, 1), 1)}), rounds(2, Round{recv(d1, 0)})},
			[]string{"rank 1, round 0, move 0 (receive Data[1:2] from rank 0)", "may differ in length"}},
		{"message of other length", Broadcast, []Plan{
			rounds(2, Round{send(span(Data, 0, 2), 1)}), rounds(2, Round{recv(d0, 0)})},
			[]string{"rank 1, round 0, move 0", "Data[0:1] has 1 chunks, Data[0:2] has 2"}},
		{"deadlock", AllReduce, []Plan{
			rounds(1, Round{send(d0, 1)}, Round{recv(t0, 1)}), rounds(1, Round{send(d0, 0)}, Round{recv(t0, 0)})},
			[]string{"deadlock", "rank 0, round 0, move 0 (send", "rank 1, round 0, move 0 (send"}},
		{"nothing there", Broadcast, []Plan{rounds(1), rounds(1, Round{send(d0, 2)}), rounds(1, Round{recv(d0, 1)})},
			[]string{"rank 2, round 0, move 0", "Data[0:1] of rank 1 holds nothing yet"}},
		{"scan out of order", Scan, []Plan{rounds(1, Round{send(d0, 1)}), rounds(1, Round{reduce(d0, d0, 0)})},
			[]string{"Data[0:1] of rank 1", "(1 0)", "not in the order of the ranks"}},
		{"barrier too early", Barrier, []Plan{rounds(1, Round{send(d0, 1)}), rounds(1, Round{recv(t0, 0)})},
			[]string{"rank 0 may end before rank 1 has begun"}},
		{"many inputs", AllReduce, []Plan{rounds(1, Round{copyTo(t0, d0)}, Round{combine(d0, d0, t0)}, Round{combine(d0, d0, d0)},
			Round{combine(d0, d0, d0)}, Round{combine(d0, d0, d0)})}, []string{"holds 16 inputs"}},
	} {
		t.Run(f.name, f.test)
	}
}

// Faults in the form of plans.
func TestCheckNamesFaultsOfForm(t *testing.T) {
	t.Parallel()
	for _, f := range []fault{
		{"no plans", AllReduce, nil, []string{"no plans"}},
		{"unknown collective", 0, []Plan{rounds(1)}, []string{"unknown collective"}},
		{"collective above all others", CollectiveLimit, []Plan{rounds(1)}, []string{"unknown collective"}},
		{"chunks differ", AllReduce, []Plan{exchange(0), rounds(2)}, []string{"rank 1", "2 chunks instead of 1"}},
		{"wrong chunk", AllReduce, []Plan{
			rounds(2, Round{send(span(Data, 0, 2), 1), recv(span(Temp, 0, 2), 1)}, Round{combine(d0, d0, one(Temp, 1))}),
			rounds(2, Round{send(span(Data, 0, 2), 0), recv(span(Temp, 0, 2), 0)})},
			[]string{"rank 0, round 1, move 0", "Data[0:1] and Temp[1:2] may differ in length"}},
		{"sent and overwritten", AllReduce, []Plan{
			rounds(1, Round{send(d0, 1), reduce(d0, d0, 1)}), rounds(1, Round{send(d0, 0), reduceL(d0, d0, 0)})},
			[]string{"rank 0, round 0, move 0 (send Data[0:1] to rank 1)", "move 1 writes Data[0:1] in the same round"}},
		{"written twice", Reduction, []Plan{
			rounds(1, Round{reduce(d0, d0, 1), reduce(d0, d0, 2)}), rounds(1, Round{send(d0, 0)}), rounds(1, Round{send(d0, 0)})},
			[]string{"rank 0, round 0, move 1", "move 0 writes Data[0:1], too"}},
		{"not taken", Broadcast, []Plan{rounds(1, Round{send(d0, 1)}, Round{send(d0, 1)}), rounds(1, Round{recv(d0, 0)})},
			[]string{"rank 0 sends 1 messages to rank 1 that it does not take", "rank 0, round 1, move 0"}},
		{"not sent", Broadcast, []Plan{rounds(1), rounds(1, Round{recv(d0, 0)})},
			[]string{"rank 1 waits for 1 messages of rank 0", "rank 1, round 0, move 0"}},
		{"no such peer", Broadcast, []Plan{rounds(1, Round{send(d0, 2)}), rounds(1)}, []string{"unknown rank 2"}},
		{"to oneself", Broadcast, []Plan{rounds(1, Round{send(d0, 0)}), rounds(1)}, []string{"a message to the rank itself"}},
		{"chunk out of range", Broadcast, []Plan{rounds(1, Round{send(d1, 1)}), rounds(1)}, []string{"Data[1:2] is not in Data[0:1]"}},
		{"temp out of range", AllReduce, []Plan{{Chunks: 1, Rounds: exchange(0).Rounds}, exchange(1)}, []string{"Temp[0:1] is not in Temp[0:0]"}},
		{"empty", Broadcast, []Plan{rounds(1, Round{send(span(Data, 0, 0), 1)}), rounds(1)}, []string{"Data[0:0] is empty"}},
		{"input written", AllGather, []Plan{rounds(1, Round{copyTo(one(Input, 0), d0)})}, []string{"Input[0:1] may not be written"}},
		{"no input", AllReduce, []Plan{rounds(1, Round{copyTo(d0, one(Input, 0))})}, []string{"Input[0:1] is not in Input[0:0]"}},
		{"data of another written", Reduction, []Plan{rounds(1, Round{recv(t0, 1)}, Round{combine(d0, d0, t0)}),
			rounds(1, Round{send(d0, 0)}, Round{combine(d0, d0, d0)})},
			[]string{"rank 1, round 1, move 0", "Data[0:1] may not be written by rank 1"}},
		{"data of root written", Broadcast, []Plan{rounds(1, Round{send(d0, 1)}, Round{recv(d0, 1)}), rounds(1, Round{recv(d0, 0)}, Round{send(d0, 0)})},
			[]string{"rank 0, round 1, move 0", "Data[0:1] may not be written by rank 0"}},
		{"data of rank 0 written", ExclusiveScan, []Plan{rounds(1, Round{copyTo(t0, d0)}, Round{copyTo(d0, t0)})},
			[]string{"rank 0, round 1, move 0", "Data[0:1] may not be written by rank 0"}},
		{"overlap", AllReduce, []Plan{rounds(2, Round{copyTo(span(Temp, 0, 3), span(Temp, 2, 5))})},
			[]string{"Temp[0:3] and Temp[2:5] overlap"}},
		{"stray span", Broadcast, []Plan{rounds(1, Round{{Kind: Send, A: d0, B: d0, Peer: 1}}), rounds(1)}, []string{"Data[0:1] must be empty"}},
		{"stray peer", AllGather, []Plan{rounds(2, Round{{Kind: Copy, Dst: d0, A: one(Input, 0), Peer: 1}}), rounds(2)}, []string{"rank 1 must be 0"}},
		{"stray left", Broadcast, []Plan{rounds(1, Round{{Kind: Send, A: d0, Peer: 1, Left: true}}), rounds(1)}, []string{"left"}},
		{"no kind", Broadcast, []Plan{rounds(1, Round{{A: d0, Peer: 1}}), rounds(1)}, []string{"unknown kind of move"}},
		{"op in a broadcast", Broadcast, []Plan{rounds(1, Round{combine(d0, d0, d0)})}, []string{"broadcast has no op"}},
	} {
		t.Run(f.name, f.test)
	}
	if err := Check(Broadcast, 1, []Plan{rounds(1)}); err == nil {
		t.Error("no error for an invalid root")
	}
}
