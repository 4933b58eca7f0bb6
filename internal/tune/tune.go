// Package tune chooses how a collective is carried out: which algorithm, and
// on how many channels.
//
// A Tuner computes the cost of every plan that fits from the plan's own data
// and the measures of a Network, and takes the cheapest. It is pure: the same
// Network, number of ranks and length give the same choice on every rank,
// which the ranks rely on.
package tune

import (
	"math/bits"
	"sync"

	"github.com/nexar-go/nexar/internal/plan"
)

// ChannelsMax is the most channels that a Tuner chooses.
const ChannelsMax = 64

// A Network is what moving data costs, in seconds, after the model of Hockney
// ("The communication challenge for MPP", Parallel Computing 20(3), 1994) with
// a term for the work that a message takes on its ranks, as LogGP has it.
type Network struct {
	Latency float64 // of a short message, from rank to rank
	Message float64 // work that a message takes on its sender and receiver
	Byte    float64 // per byte moved
	Reduce  float64 // per byte reduced
	Copy    float64 // per byte copied within a rank
}

// Local is a Network of ranks in one process, and Wide one of ranks that reach
// each other by QUIC. They are as a machine of two cores measured them.
func Local() Network {
	return Network{Latency: 1.5e-6, Message: 0.7e-6, Byte: 0.12e-9, Reduce: 0.08e-9, Copy: 0.1e-9}
}

// Wide is described with Local.
func Wide() Network {
	return Network{Latency: 35e-6, Message: 6e-6, Byte: 1.6e-9, Reduce: 0.1e-9, Copy: 0.1e-9}
}

// A Choice is how to carry a collective out.
type Choice struct {
	// Index is the place of Algorithm among plan.Algorithms.
	Index     int
	Algorithm plan.Algorithm
	Channels  int
	// Seconds is the time that the model predicts.
	Seconds float64
}

// A Need is a collective to choose for.
type Need struct {
	Collective plan.Collective
	Size       int // ranks
	// Bytes is the length of the vector, or of all blocks together.
	Bytes int
	// Blocks says that chunks are whole blocks of the caller.
	Blocks bool
	// Ordered asks for operands in the order of the ranks.
	Ordered bool
}

// A Tuner chooses for one Network. It may be used by several goroutines.
type Tuner struct {
	net Network

	mu      sync.Mutex
	chosen  map[Need]Choice
	figures map[figureKey]figures
}

// New makes a Tuner.
func New(net Network) *Tuner {
	return &Tuner{net: net, chosen: make(map[Need]Choice), figures: make(map[figureKey]figures)}
}

// Choose returns the cheapest way. Needs whose lengths lie between the same
// powers of two get the same answer.
func (t *Tuner) Choose(n Need) Choice {
	class := bits.Len(uint(n.Bytes))
	n.Bytes = 0
	if class > 0 {
		n.Bytes = 3 << class >> 2 // the middle of the class
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if c, ok := t.chosen[n]; ok {
		return c
	}
	var best Choice
	for i, a := range plan.Algorithms(n.Collective) {
		if !a.Fits(n.Size) || n.Ordered && !a.Ordered {
			continue
		}
		c := t.cheapest(i, a, n)
		if best.Channels == 0 || c.Seconds < best.Seconds {
			best = c
		}
	}
	if best.Channels == 0 {
		panic("tune: no algorithm fits")
	}
	t.chosen[n] = best
	return best
}

// cheapest finds the best number of channels for an algorithm.
func (t *Tuner) cheapest(i int, a plan.Algorithm, n Need) Choice {
	f := t.figuresOf(i, a, n)
	best := Choice{Index: i, Algorithm: a, Channels: 1, Seconds: t.time(f, n, 1)}
	if n.Blocks && !f.single {
		return best // Only whole blocks lie side by side.
	}
	for ch := 2; ch <= ChannelsMax; ch *= 2 {
		if s := t.time(f, n, ch); s < best.Seconds {
			best.Channels, best.Seconds = ch, s
		}
	}
	return best
}

// time is the predicted time of a plan on so many channels. A rank cannot be
// faster than its own share of the bytes lets it, and the vector cannot be
// faster than the longest row of messages that wait for one another; channels
// make those shorter, and more of them.
//
// Products are converted so that no processor adds to them before it rounds:
// ranks on processors of different kinds must come to the same numbers.
func (t *Tuner) time(f figures, n Need, channels int) float64 {
	bytes, ch := float64(n.Bytes), float64(channels)
	work := bytes * (float64(f.moved*t.net.Byte) + float64(f.reduced*t.net.Reduce) + float64(f.copied*t.net.Copy))
	row := f.depth * (t.net.Latency + float64(bytes*f.largest/ch*(t.net.Byte+t.net.Reduce)))
	return max(work, row) + float64(f.messages*ch*t.net.Message)
}

func (t *Tuner) figuresOf(i int, a plan.Algorithm, n Need) figures {
	key := figureKey{n.Collective, i, n.Size}
	f, ok := t.figures[key]
	if !ok {
		f = measure(n.Collective, a, n.Size)
		t.figures[key] = f
	}
	return f
}
