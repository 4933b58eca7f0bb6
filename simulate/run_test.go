//race:none it starts no goroutine

package simulate

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/plan"
)

// cable has a latency, and nothing else takes time.
var cable = machine{Model: Model{RanksPerHost: 1, Cores: 1, Network: Path{Latency: time.Microsecond}, Eager: 64 << 10}}

// algorithm returns an algorithm of a collective.
func algorithm(t *testing.T, c plan.Collective, name string) plan.Algorithm {
	t.Helper()
	for _, a := range plan.Algorithms(c) {
		if a.Name == name {
			return a
		}
	}
	t.Fatalf("%v has no algorithm %s", c, name)
	return plan.Algorithm{}
}

// simulated returns the result of a simulation that must succeed.
func simulated(t *testing.T, m machine, c call) outcome {
	t.Helper()
	r, err := m.run(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// near reports whether a time in seconds is within a part of another.
func near(got, want, part float64) bool { return math.Abs(got-want) <= part*want }

// TestTimesOfModel compares times with those that follow from the model by hand.
func TestTimesOfModel(t *testing.T) {
	const us = 1e-6
	slow := cable
	slow.Network = Path{Latency: time.Microsecond, Rate: 1e9, Message: 2 * time.Microsecond}
	copying := cable
	copying.Network.CopyRate, copying.ReduceRate = 1e9, 1e9
	oneCore := machine{Model: Model{RanksPerHost: 8, Cores: 1, Memory: Path{Message: time.Microsecond}, Eager: 64 << 10}}
	switching := oneCore
	switching.Switch = 3 * time.Microsecond
	polling, sleeping := oneCore, oneCore
	polling.Poll, polling.PollFor = time.Microsecond, time.Second
	sleeping.Poll, sleeping.Wake = time.Microsecond, 5*time.Microsecond
	for name, test := range map[string]struct {
		machine machine
		c       plan.Collective
		name    string
		ranks   int
		bytes   int
		want    float64
	}{
		"a latency for each round":              {cable, plan.AllReduce, "recursive-doubling", 1024, 8, 10 * us},
		"one more round for pairs":              {cable, plan.AllReduce, "recursive-doubling", 1025, 8, 11 * us},
		"twice the rounds":                      {cable, plan.AllReduce, "circulant", 1024, 1 << 10, 20 * us},
		"a chain":                               {cable, plan.Broadcast, "chain", 100, 8, 99 * us},
		"a ring":                                {cable, plan.AllReduce, "ring", 100, 100, 198 * us},
		"processors, link and latency":          {slow, plan.Broadcast, "chain", 2, 1000, (2 + 1 + 1 + 2) * us},
		"a grant before a long message":         {slow, plan.Broadcast, "chain", 2, 128 << 10, (2 + 1 + 2 + 131.072 + 1 + 1) * us},
		"copies at both ends, and a reduction":  {copying, plan.Reduction, "binomial", 2, 1000, (1 + 1 + 1 + 1) * us},
		"one processor for all messages":        {oneCore, plan.Barrier, "dissemination", 8, 0, 8 * 3 * 2 * us},
		"a processor that changes between them": {switching, plan.Broadcast, "chain", 8, 8, (7*2 + 8*3) * us},
		"polls of the other ranks":              {polling, plan.Broadcast, "chain", 8, 8, 7 * (1 + 7 + 1) * us},
		"ranks that have slept":                 {sleeping, plan.Broadcast, "chain", 8, 8, 7 * (1 + 5 + 1) * us},
		"no polls with a processor for each":    {slow, plan.Broadcast, "chain", 8, 0, 7 * (2 + 1 + 2) * us},
		"a copy within a rank":                  {copying, plan.AllReduce, "recursive-doubling", 2, 1000, (1 + 1 + 1 + 1 + 1) * us},
		"nothing":                               {slow, plan.AllReduce, "ring", 1, 1 << 20, 0},
	} {
		got := simulated(t, test.machine, call{Call: Call{Ranks: test.ranks, Bytes: test.bytes, FullRingMax: 4096}, algorithm: algorithm(t, test.c, test.name)})
		if !near(got.seconds, test.want, 0.02) {
			t.Errorf("%s: %v s, want %v s", name, got.seconds, test.want)
		}
	}
}

// TestEveryAlgorithmEnds simulates all algorithms, short and long vectors, on machines of all kinds,
// and counts their messages.
func TestEveryAlgorithmEnds(t *testing.T) {
	t.Parallel()
	loaded := machine{Model: Model{
		RanksPerHost: 3, Cores: 2, Network: Path{Latency: time.Microsecond, Rate: 1e9, Message: time.Microsecond, CopyRate: 2e9},
		Memory: Path{Latency: time.Microsecond, Rate: 1e9, Message: time.Microsecond, CopyRate: 2e9}, Switch: time.Microsecond, ReduceRate: 1e9, Eager: 1000,
	}}
	tree := loaded
	tree.topology = topology{shape: fatTree, hostsPerLeaf: 2, oversubscription: 2}
	for _, c := range plan.Collectives() {
		for _, ranks := range []int{1, 2, 3, 4, 7, 8, 13} {
			for i, a := range plan.AlgorithmsOn(c, plan.EvenHosts(ranks, loaded.RanksPerHost)) {
				if !a.Fits(ranks) {
					continue
				}
				hierarchical := i >= len(plan.Algorithms(c))
				root := ranks / 2
				want := int64(0)
				for _, p := range a.Plans(ranks, root) {
					for _, round := range p.Rounds {
						for _, m := range round {
							if m.Kind == plan.Send {
								want++
							}
						}
					}
				}
				for _, m := range []machine{cable, loaded, tree} {
					for _, bytes := range []int{0, 8, 100_000} {
						got := simulated(t, m, call{Call: Call{Ranks: ranks, Root: root, Bytes: bytes, FullRingMax: 4096}, algorithm: a, hierarchical: hierarchical})
						if got.Messages != want {
							t.Errorf("%v/%s of %d ranks, %d bytes: %d messages, the plans have %d", c, a.Name, ranks, bytes, got.Messages, want)
						}
						if again := simulated(t, m, call{Call: Call{Ranks: ranks, Root: root, Bytes: bytes, FullRingMax: 4096}, algorithm: a, hierarchical: hierarchical}); again != got {
							t.Errorf("%v/%s of %d ranks, %d bytes: %+v, and then %+v", c, a.Name, ranks, bytes, got, again)
						}
					}
				}
			}
		}
	}
}

// TestChannels: on several channels all algorithms send as many messages on each, with the bytes of a slice of the vector,
// and the overhead of a message counts for each channel.
func TestChannels(t *testing.T) {
	t.Parallel()
	const us = time.Microsecond
	m := machine{Model: Model{RanksPerHost: 1, Cores: 1, Network: Path{Latency: 5 * us, Message: us}, Eager: 1 << 30}}
	for _, a := range plan.Algorithms(plan.AllReduce) {
		for _, ranks := range []int{2, 4, 7, 16} {
			if a.Shared || !a.Fits(ranks) {
				continue
			}
			c := call{Call: Call{Ranks: ranks, Bytes: 5040 * 16, FullRingMax: 4096}, algorithm: a}
			one := simulated(t, m, c)
			c.Channels = 3
			if three := simulated(t, m, c); three.Messages != 3*one.Messages || three.Bytes != one.Bytes || three.seconds <= one.seconds {
				t.Errorf("%s of %d ranks: on three channels %+v, on one %+v", a.Name, ranks, three, one)
			}
		}
	}
	// Two messages of 1 µs at the sender, the latency, and 1 µs at the receiver for each.
	c := call{Call: Call{Ranks: 2, Bytes: 1000, Channels: 2, FullRingMax: 4096}, algorithm: algorithm(t, plan.Broadcast, "chain")}
	if got := simulated(t, m, c); !near(got.seconds, 8e-6, 0.001) {
		t.Errorf("two channels take %v s, want 8 µs", got.seconds)
	}
}

// TestRingBySymmetry compares rings of 1,024 ranks, or fewer in short tests, with their simulation in
// full.
func TestRingBySymmetry(t *testing.T) {
	t.Parallel()
	ranks, side := 1024, 16
	if testing.Short() {
		ranks, side = 256, 4
	}
	m := machine{Model: Model{
		RanksPerHost: 1, Cores: 1, Network: Path{Latency: 2 * time.Microsecond, Rate: 10e9, Message: time.Microsecond},
		Memory: Path{Latency: time.Microsecond, Rate: 50e9, Message: time.Microsecond}, ReduceRate: 10e9, Eager: 64 << 10,
	}}
	onTree := m
	onTree.RanksPerHost, onTree.Cores = 8, 4
	onTree.topology = topology{shape: fatTree, hostsPerLeaf: 16, oversubscription: 4}
	onTorus := m
	onTorus.topology = topology{shape: torus, dimensions: []int{side, 8, 8}}
	for name, m := range map[string]machine{"flat": m, "hosts on a fat tree": onTree, "torus": onTorus} {
		call := call{Call: Call{Ranks: ranks, Bytes: 1 << 20, FullRingMax: ranks}, algorithm: algorithm(t, plan.AllReduce, "ring")}
		full := simulated(t, m, call)
		call.FullRingMax = ranks - 1
		part := simulated(t, m, call)
		if full.Symmetric || !part.Symmetric || !near(part.seconds, full.seconds, 0.05) || !near(float64(part.Messages), float64(full.Messages), 0.001) ||
			!near(float64(part.BusiestBytes), float64(full.BusiestBytes), 0.01) {
			t.Errorf("%s: by symmetry %+v, in full %+v", name, part, full)
		}
	}
}

// TestOversubscription: an exchange between two leaves takes longer by the oversubscription, an
// exchange within them does not.
func TestOversubscription(t *testing.T) {
	m := machine{Model: Model{RanksPerHost: 1, Cores: 1, Network: Path{Rate: 1e9}, Eager: 1 << 30}}
	c := call{Call: Call{Ranks: 32, Bytes: 1 << 20}, algorithm: exchangeWith(16)}
	m.topology = topology{shape: fatTree, hostsPerLeaf: 16, oversubscription: 1}
	even := simulated(t, m, c)
	m.topology.oversubscription = 4
	if over := simulated(t, m, c); !near(over.seconds, 4*even.seconds, 0.01) || over.BusiestBytes != 4<<20 || over.BusiestLink != "from leaf 0 by link 0" {
		t.Errorf("oversubscription 4 gives %+v, none gives %+v", over, even)
	}
	c.algorithm = exchangeWith(8)
	if inside := simulated(t, m, c); !near(inside.seconds, even.seconds, 0.01) {
		t.Errorf("within the leaves %+v, without oversubscription %+v", inside, even)
	}
}

// exchangeWith returns an algorithm that exchanges the vectors of ranks that differ in one bit.
func exchangeWith(bit int) plan.Algorithm {
	data, temp := plan.Span{Buf: plan.Data, Hi: 1}, plan.Span{Buf: plan.Temp, Hi: 1}
	return plan.Algorithm{Name: "exchange", Plan: func(rank, _, _ int) plan.Plan {
		peer := rank ^ bit
		return plan.Plan{Chunks: 1, Temps: 1, Rounds: []plan.Round{{{Kind: plan.Send, A: data, Peer: peer}, {Kind: plan.Recv, Dst: temp, Peer: peer}}}}
	}}
}

// TestDeadlock: plans that wait for one another are an error.
func TestDeadlock(t *testing.T) {
	a := plan.Algorithm{Name: "wait", Plan: func(rank, size, _ int) plan.Plan {
		return plan.Plan{Chunks: 1, Temps: 1, Rounds: []plan.Round{{{Kind: plan.Recv, Dst: plan.Span{Buf: plan.Temp, Hi: 1}, Peer: (rank + 1) % size}}}}
	}}
	if r, err := cable.run(call{Call: Call{Ranks: 2, Bytes: 8}, algorithm: a}, nil); err == nil {
		t.Errorf("got %+v", r)
	}
}

// TestBadCalls: machines and calls that are impossible are errors.
func TestBadCalls(t *testing.T) {
	good := call{Call: Call{Ranks: 8, Bytes: 8, FullRingMax: 8}, algorithm: algorithm(t, plan.AllReduce, "ring")}
	for name, change := range map[string]func(m *machine, c *call){
		"no rank":           func(_ *machine, c *call) { c.Ranks = 0 },
		"negative length":   func(_ *machine, c *call) { c.Bytes = -1 },
		"root beyond":       func(_ *machine, c *call) { c.Root = 8 },
		"negative channels": func(_ *machine, c *call) { c.Channels = -1 },
		"no host":           func(m *machine, _ *call) { m.RanksPerHost = 0 },
		"no core":           func(m *machine, _ *call) { m.Cores = 0 },
		"small torus":       func(m *machine, _ *call) { m.topology = topology{shape: torus, dimensions: []int{2, 2}} },
		"too many moves": func(_ *machine, c *call) {
			c.Ranks, c.algorithm = 1<<16, algorithm(t, plan.AllGather, "direct")
		},
	} {
		m, c := cable, good
		change(&m, &c)
		if r, err := m.run(c, nil); err == nil {
			t.Errorf("%s: got %+v", name, r)
		}
	}
}

// TestStop: a progress function that returns false ends the simulation.
func TestStop(t *testing.T) {
	c := call{Call: Call{Ranks: 200, Bytes: 8, FullRingMax: 4096}, algorithm: algorithm(t, plan.AllReduce, "ring")}
	calls := 0
	_, err := cable.run(c, func(done, all int64) bool {
		calls++
		if done < 0 || done > all {
			t.Errorf("%d of %d rounds", done, all)
		}
		return calls < 2
	})
	if !errors.Is(err, errStopped) || calls != 2 {
		t.Errorf("got %v after %d calls", err, calls)
	}
}
