package plan

import (
	"fmt"
	"math"
	"math/bits"
	"testing"
)

// A claim is the cost in the comment of an algorithm, in rounds and in vectors, for the rank
// with the maximum of each. Zero claims nothing.
type claim struct {
	rounds, depth, messages int
	sent, received          float64
}

// claims returns the claims of an algorithm for n ranks; ok is false if its comment has none
// for this n.
func claims(c Collective, name string, n int) (claim, bool) {
	up := bits.Len(uint(n - 1)) // ⌈log2 n⌉
	down := bits.Len(uint(n)) - 1
	pow := n&(n-1) == 0
	share := float64(n-1) / float64(n)
	odd := func(even, otherwise int) int {
		if pow {
			return even
		}
		return otherwise
	}
	most := func(even, otherwise float64) float64 {
		if pow {
			return even
		}
		return otherwise
	}
	all := map[string]claim{
		"barrier/dissemination": {rounds: up, depth: up, messages: 2 * up},
		"barrier/two-phase":     {rounds: 2, depth: 2, messages: 2 * (n - 1)},
		"barrier/flat":          {rounds: 1, depth: 1, messages: 2 * (n - 1)},
		"barrier/binomial":      {rounds: 2 * up, depth: 2 * up, messages: 2 * up},
		"barrier/leader":        {rounds: 2, depth: 2, messages: 2 * (n - 1)},
		"barrier/ring":          {rounds: n - 1, depth: n - 1, messages: 2 * (n - 1)},

		"barrier/recursive-doubling": {rounds: down + odd(0, 2), depth: down + odd(0, 2), messages: 2*down + odd(0, 2)},

		"broadcast/binomial":     {rounds: up, depth: up, sent: float64(up), received: 1},
		"broadcast/chain":        {rounds: 2, depth: n - 1, sent: 1, received: 1},
		"broadcast/scatter-ring": {depth: up + n - 1, sent: 2, received: 2},
		"broadcast/flat":         {rounds: 1, depth: 1, messages: n - 1, sent: float64(n - 1), received: 1},

		"reduce/binomial":     {rounds: up, depth: up, sent: 1, received: float64(up)},
		"reduce/chain":        {rounds: 2, depth: n - 1, sent: 1, received: 1},
		"reduce/rabenseifner": {rounds: 2*down + odd(0, 2), sent: most(1.5, 2.5), received: most(2, 3)},
		"reduce/staged":       {rounds: 2, depth: 2, sent: 1, received: 2 * share},
		"reduce/flat":         {depth: 1, messages: n - 1, sent: 1, received: float64(n - 1)},

		"all_reduce/recursive-doubling": {rounds: up + odd(0, 1), depth: up + odd(0, 1), sent: float64(up)},
		"all_reduce/recursive-multiplying": {rounds: (down+1)/2 + odd(0, 2), depth: (down+1)/2 + odd(0, 2), messages: 6*(down/2) + 2*(down%2) + odd(0, 2),
			sent: float64(3*(down/2) + down%2 + odd(0, 1))},
		"all_reduce/flat":         {rounds: 1, depth: 1, sent: float64(n - 1), received: float64(n - 1)},
		"all_reduce/ordered":      {rounds: 2 * up, depth: 2 * up},
		"all_reduce/rabenseifner": {rounds: 2*down + odd(0, 3), sent: most(2*share, 3.5), received: most(2*share, 3.5)},
		"all_reduce/direct":       {depth: 2, messages: 4 * (n - 1), sent: 2 * share, received: 2 * share},
		"all_reduce/circulant":    {rounds: 2 * up, depth: 2 * up, sent: 2 * share, received: 2 * share},
		"all_reduce/ring":         {rounds: 2 * (n - 1), depth: 2 * (n - 1), sent: 2 * share, received: 2 * share},
		"all_reduce/staged":       {rounds: 2, depth: 2, messages: 4 * (n - 1), sent: 2 * share, received: 2 * share},
		"all_reduce/leader":       {depth: 2, messages: 2 * (n - 1), sent: float64(n - 1), received: float64(n - 1)},
		"all_reduce/swing-1d":     {rounds: 2*down + odd(0, 3), sent: most(2*share, 3.5), received: most(2*share, 3.5)},
		"all_reduce/swing-2d":     {rounds: 2*down + odd(0, 3), sent: most(2*share, 3.5), received: most(2*share, 3.5)},
		"all_reduce/swing-3d":     {rounds: 2*down + odd(0, 3), sent: most(2*share, 3.5), received: most(2*share, 3.5)},

		"all_reduce/swing-short-2d": {rounds: up + odd(0, 1), depth: up + odd(0, 1), sent: float64(up)},
		"all_reduce/swing-short-3d": {rounds: up + odd(0, 1), depth: up + odd(0, 1), sent: float64(up)},

		"gather/binomial":  {rounds: up, depth: up, messages: up, received: share},
		"gather/direct":    {rounds: 1, depth: 1, messages: n - 1, sent: 1 / float64(n), received: share},
		"scatter/binomial": {rounds: up, depth: up, messages: up, sent: share},
		"scatter/direct":   {rounds: 1, depth: 1, messages: n - 1, sent: share, received: 1 / float64(n)},

		"all_gather/circulant": {rounds: up, depth: up, sent: share, received: share},
		"all_gather/halving":   {rounds: down + 1 + odd(0, 1), depth: down + 1 + odd(0, 1), sent: most(1+1/float64(n), 3), received: most(1+1/float64(n), 2)},
		"all_gather/pat":       {rounds: up, depth: up, messages: 4 * up, sent: share, received: share},
		"all_gather/direct":    {rounds: 1, depth: 1, messages: 2 * (n - 1), sent: share, received: share},
		"all_gather/ring":      {rounds: n - 1, depth: n - 1, sent: share, received: share},

		"all_gather/leader": {rounds: 2, depth: 2, messages: 2 * (n - 1), sent: float64(n - 1), received: 1},

		"reduce_scatter/circulant":    {rounds: up, depth: up, sent: share, received: share},
		"reduce_scatter/rabenseifner": {rounds: odd(down+1, down+3), sent: most(1, 2.5), received: most(1, 2.5)},
		"reduce_scatter/pat":          {rounds: up, depth: up, messages: 4 * up, sent: share, received: share},
		"reduce_scatter/direct":       {rounds: n - 1, depth: 1, sent: share, received: share},
		"reduce_scatter/ring":         {rounds: n - 1, depth: n - 1, sent: share, received: share},
		"reduce_scatter/staged":       {rounds: 1, depth: 1, sent: share, received: share},
		"reduce_scatter/leader":       {depth: 2, messages: 2 * (n - 1), sent: 1, received: float64(n - 1)},

		"all_to_all/bruck":    {rounds: up, depth: up, sent: float64(up) / 2},
		"all_to_all/pairwise": {rounds: n - 1, depth: 1, messages: 2 * (n - 1), sent: share, received: share},

		"scan/recursive-doubling":           {rounds: up, depth: up, sent: float64(up)},
		"scan/flat":                         {rounds: 1, depth: 1, messages: n - 1, sent: float64(n - 1), received: float64(n - 1)},
		"exclusive_scan/flat":               {rounds: 1, depth: 1, messages: n - 1, sent: float64(n - 1), received: float64(n - 1)},
		"exclusive_scan/recursive-doubling": {rounds: 1 + bits.Len(uint(n-2)), depth: 1 + bits.Len(uint(n-2))},
	}
	got, ok := all[fmt.Sprintf("%v/%s", c, name)]
	return got, ok
}

// The costs in the comments of the algorithms are measured.
func TestCostsAreAsClaimed(t *testing.T) {
	t.Parallel()
	const bytes = 1 << 20
	forEach(t, func(t *testing.T, c Collective, a Algorithm) {
		for n := 2; n <= 33; n++ {
			want, ok := claims(c, a.Name, n)
			if !ok {
				t.Fatal("no claim is tested")
			}
			for _, root := range roots(c, a, n) {
				plans := a.Plans(n, root)
				var got Cost
				for _, p := range plans {
					cost := CostOf(p, bytes)
					got.Rounds = max(got.Rounds, cost.Rounds)
					got.Messages = max(got.Messages, cost.Messages)
					got.Sent = max(got.Sent, cost.Sent/bytes)
					got.Received = max(got.Received, cost.Received/bytes)
				}
				depth, err := Depth(plans)
				if err != nil {
					t.Fatal(err)
				}
				const inexact = 1e-9
				if want.rounds > 0 && got.Rounds > want.rounds ||
					want.messages > 0 && got.Messages > want.messages ||
					want.depth > 0 && depth > want.depth ||
					want.sent > 0 && got.Sent > want.sent+inexact ||
					want.received > 0 && got.Received > want.received+inexact {
					t.Fatalf("size %d, root %d: %+v and depth %d, claimed %+v", n, root, got, depth, want)
				}
			}
		}
	})
}

func TestCostOf(t *testing.T) {
	t.Parallel()
	p := rounds(4,
		Round{send(span(Data, 0, 2), 1), reduce(span(Temp, 2, 3), span(Data, 2, 3), 1)},
		Round{combine(one(Data, 2), one(Temp, 2), one(Data, 2)), copyTo(span(Data, 0, 2), span(Temp, 0, 2))},
		Round{recv(span(Data, 0, 3), 2), send(one(Data, 3), 2)})
	want := Cost{Rounds: 2, Messages: 4, Sent: 30, Received: 40, Reduced: 20, Copied: 20}
	if got := CostOf(p, 40); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// In a whole collective as many bytes are received as sent, and an all-reduce reduces at least
// n-1 vectors.
func TestCostsAddUp(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, c Collective, a Algorithm) {
		for n := 1; n <= 20; n++ {
			var sum Cost
			for _, p := range a.Plans(n, n/2) {
				cost := CostOf(p, n)
				sum.Sent += cost.Sent
				sum.Received += cost.Received
				sum.Reduced += cost.Reduced
			}
			if math.Abs(sum.Sent-sum.Received) > 1e-6 {
				t.Errorf("size %d: %v bytes sent, %v received", n, sum.Sent, sum.Received)
			}
			least := 0.0
			if c == Reduction || c == AllReduce || c == ReduceScatter {
				least = float64(n * (n - 1))
			}
			if sum.Reduced < least-1e-6 || !c.Reduces() && sum.Reduced > 0 {
				t.Errorf("size %d: %v bytes reduced, want at least %v", n, sum.Reduced, least)
			}
		}
	})
}

func TestDepthFindsDeadlock(t *testing.T) {
	t.Parallel()
	d0, t0 := one(Data, 0), one(Temp, 0)
	_, err := Depth([]Plan{
		rounds(1, Round{send(d0, 1)}, Round{recv(t0, 1)}), rounds(1, Round{send(d0, 0)}, Round{recv(t0, 0)})})
	if err == nil {
		t.Error("no error")
	}
}
