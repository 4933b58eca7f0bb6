// Package cost chooses the algorithm of a collective and its number of channels.
//
// A [Tuner] predicts the time of every suitable plan from the plan itself and the parameters of
// a [Network], and chooses the fastest. It is pure: the same Network, number of ranks and
// length give the same choice on every rank, which ranks rely on. Most callers get a Tuner from
// the [PathClasses] of the ranks.
//
// The choice depends on the ranks, their hosts, the length, the constants of the network, the watches, and the result of the
// negotiation, never on the links of the moment. The first use of a link costs a handshake, and a share of it counts for the links that
// a plan needs beyond those of watches and of the negotiation.
package cost

import (
	"cmp"
	"slices"
	"sync"

	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
)

// ChannelsMax is the largest number of channels that a Tuner chooses.
const ChannelsMax = 64

// A Network has the parameters of the cost model, in seconds: latency and time per byte
// (Hockney, "The communication challenge for MPP", Parallel Computing 20(3), 1994), and the
// overhead of a message on its ranks (LogGP; Alexandrov et al., SPAA 1995).
//
// Messages longer than Eager need a grant, and may take another path than short ones.
type Network struct {
	Latency float64 // of a short message, from rank to rank
	Message float64 // overhead of a message on its sender and receiver
	Byte    float64 // per byte moved in short messages
	Reduce  float64 // per byte reduced
	Copy    float64 // per byte copied within a rank

	Eager   int     // bytes of the longest short message
	Bulk    float64 // per byte moved in long ones
	Granted float64 // latency of a long one, beyond that of its bytes
	Grant   float64 // overhead of a long one

	Handshake float64 // of the first use of a link, beyond that of a later one; 0 if ranks are linked in any case
}

// eager is the longest message, in bytes, that plans count as short. Links send some longer ones without a grant, too, but two halves of
// these take less time: one is sent while the other is reduced.
const eager = wire.PayloadMax / 2

// Local returns the Network of ranks in one process. The parameters of this and the other Networks
// were measured on a machine with two cores.
func Local() Network {
	return Network{
		Latency: 1.5e-6, Message: 0.7e-6, Byte: 0.12e-9, Reduce: 0.08e-9, Copy: 0.1e-9,
		Eager: eager, Bulk: 0.12e-9, Granted: 1.5e-6, Grant: 1.4e-6,
	}
}

// Pipes returns the Network of ranks on one host that exchange messages through pipes in shared memory.
func Pipes() Network {
	return Network{
		Latency: 1.5e-6, Message: 0.7e-6, Byte: 0.2e-9, Reduce: 0.09e-9, Copy: 0.1e-9,
		Eager: eager, Bulk: 0.1e-9, Granted: 8e-6, Grant: 3e-6,
	}
}

// QUIC returns the Network of ranks that are linked by QUIC alone.
func QUIC() Network {
	return Network{
		Latency: 35e-6, Message: 6e-6, Byte: 1.6e-9, Reduce: 0.1e-9, Copy: 0.1e-9,
		Eager: eager, Bulk: 1.6e-9, Granted: 35e-6, Grant: 30e-6, Handshake: 1.4e-3,
	}
}

// TCP returns the Network of ranks that are linked by TCP, with or without TLS.
func TCP(encrypted bool) Network {
	n := Network{
		Latency: 5e-6, Message: 8e-6, Byte: 0.3e-9, Reduce: 0.1e-9, Copy: 0.1e-9,
		Eager: eager, Bulk: 0.2e-9, Granted: 10e-6, Grant: 25e-6, Handshake: 2.5e-3,
	}
	if encrypted {
		n.Handshake = 2.9e-3
		n.Latency, n.Message, n.Byte, n.Bulk = 8e-6, 15e-6, 1.1e-9, 0.9e-9
	}
	return n
}

// A Choice is the algorithm and number of channels for a collective.
type Choice struct {
	// Index is the index of Algorithm in plan.AlgorithmsOn, for any Hosts.
	Index     int
	Algorithm plan.Algorithm
	Channels  int
	// Seconds is the predicted time, with a share of the first use of links.
	Seconds float64
}

// A Need is a collective and the requirements of a call.
type Need struct {
	Collective plan.Collective
	Size       int // ranks
	// Bytes is the length of the vector, or of all blocks together.
	Bytes int
	// Blocks says that chunks are whole blocks of the caller.
	Blocks bool
	// Uneven says that the blocks differ in length.
	Uneven bool
	// Ordered requires that operands are combined in the order of the ranks.
	Ordered bool
	// Canonical requires an algorithm that combines operands in the same way as all other
	// canonical ones, for every length.
	Canonical bool
}

// A Tuner chooses for one Network. It may be used by several goroutines.
type Tuner struct {
	net   Network
	hosts plan.Hosts
	hops  Hops
	// linked and handshake determine the time of the first use of links.
	linked    Linked
	handshake float64
	// together says that some ranks share a host, so that algorithms for ranks apart are not chosen.
	together bool
	// crowd is the number of ranks that share a processor; see Crowded.
	crowd float64
	// predict returns the time of an algorithm on a number of channels, and the largest number that is possible: 0 if the
	// algorithm cannot carry out n.
	predict func(i int, a plan.Algorithm, n Need) (time func(channels int) float64, most int)
	// least, if not nil, returns a lower bound of the time of an algorithm. It computes no more of the time than it
	// takes to find that the time is above limit.
	least func(i int, a plan.Algorithm, n Need, limit float64) float64

	mu      sync.Mutex
	chosen  map[Need]Choice
	figures known[figures]
	// distances is empty without hops.
	distances known[distance]
	// shares has the work of all ranks together if processors are crowded.
	shares known[share]
	// newLinks has the number of links that an algorithm needs beyond those of linked.
	newLinks known[int]
}

// New returns a Tuner for ranks in one Network.
func New(net Network) *Tuner {
	t := &Tuner{net: net, handshake: net.Handshake, chosen: make(map[Need]Choice)}
	t.predict, t.least = t.ofPlans, t.leastTime
	return t
}

// Choose returns the cheapest choice. It is the same for all lengths between two consecutive
// powers of two.
func (t *Tuner) Choose(n Need) Choice {
	n.Bytes = middle(n.Bytes)
	t.mu.Lock()
	defer t.mu.Unlock()
	if c, ok := t.chosen[n]; ok {
		return c
	}
	var best Choice
	algorithms := plan.AlgorithmsOn(n.Collective, t.hosts)
	for _, i := range t.candidates(algorithms, n) {
		if best.Channels > 0 && t.least != nil && t.least(i, algorithms[i], n, best.Seconds) > best.Seconds {
			continue
		}
		c, ok := t.best(i, algorithms[i], n)
		if !ok || best.Channels > 0 && c.Seconds > best.Seconds {
			continue
		}
		c.Seconds += t.firstUse(i, algorithms[i], n, c.Seconds)
		if best.Channels == 0 || c.better(best) {
			best = c
		}
	}
	if best.Channels == 0 {
		panic("cost: no algorithm fits")
	}
	t.chosen[n] = best
	return best
}

// candidates returns the indexes of the algorithms that Choose compares. If there are lower bounds, they are in
// ascending order, and the first one is exact, so that most others need no further work.
func (t *Tuner) candidates(algorithms []plan.Algorithm, n Need) []int {
	indexes, bounds := make([]int, 0, len(algorithms)), make([]float64, len(algorithms))
	for i, a := range algorithms {
		if !n.Allows(a) || a.Placed || a.Apart && t.together {
			continue
		}
		indexes = append(indexes, i)
		if t.least != nil {
			bounds[i] = t.least(i, a, n, 0)
		}
	}
	lower := func(i, k int) int { return cmp.Or(cmp.Compare(bounds[i], bounds[k]), i-k) }
	for t.least != nil && len(indexes) > 0 {
		i := slices.MinFunc(indexes, lower)
		bound := t.least(i, algorithms[i], n, bounds[i])
		if bound <= bounds[i] {
			break // It is exact.
		}
		bounds[i] = bound
	}
	slices.SortFunc(indexes, lower)
	return indexes
}

// isHierarchical reports whether the algorithm with an index depends on the hosts or groups of ranks.
func (t *Tuner) isHierarchical(i int, n Need) bool { return i >= len(plan.Algorithms(n.Collective)) }

// better reports whether c is cheaper than other. Of two with the same cost the canonical one
// is better, or else the first one.
func (c Choice) better(other Choice) bool {
	if c.Seconds != other.Seconds {
		return c.Seconds < other.Seconds
	}
	if c.Algorithm.Canonical != other.Algorithm.Canonical {
		return c.Algorithm.Canonical
	}
	return c.Index < other.Index
}

// best finds the best number of channels for an algorithm.
func (t *Tuner) best(i int, a plan.Algorithm, n Need) (best Choice, ok bool) {
	time, most := t.predict(i, a, n)
	if most == 0 {
		return Choice{}, false
	}
	best = Choice{Index: i, Algorithm: a, Channels: 1, Seconds: time(1)}
	for ch := 2; ch <= most; ch *= 2 {
		if s := time(ch); s < best.Seconds {
			best.Channels, best.Seconds = ch, s
		}
	}
	return best, true
}

// exactly returns a choice with at most its number of channels, and its time for exactly n.Bytes.
func (t *Tuner) exactly(c Choice, n Need) Choice {
	time, most := t.predict(c.Index, c.Algorithm, n)
	c.Channels = max(1, min(c.Channels, most))
	c.Seconds = time(c.Channels)
	return c
}

// channels returns the largest number of channels of a plan over links.
func (n Need) channels(single bool) int {
	if n.Blocks && !single {
		return 1 // Only whole blocks are contiguous.
	}
	return ChannelsMax
}

// ofPlans predicts the time of an algorithm in one Network.
func (t *Tuner) ofPlans(i int, a plan.Algorithm, n Need) (time func(channels int) float64, most int) {
	if a.Shared {
		return nil, 0
	}
	f := t.figuresOf(i, a, n)
	return func(channels int) float64 { return t.seconds(i, a, f, n, channels) }, n.channels(f.single)
}

// seconds returns the predicted time of an algorithm on a number of channels: that of its plans, or that of the work of
// all ranks of a host on its processors, whichever is longer.
func (t *Tuner) seconds(i int, a plan.Algorithm, f figures, n Need, channels int) float64 {
	d := t.distanceOf(i, a, n)
	return max(t.time(f, d, n, channels), t.crowdedTime(i, a, f, d, n, channels))
}

// time returns the predicted time of a plan on a number of channels. It is bounded by the bytes
// of the busiest rank, and by the longest row of dependent messages. Channels make these
// messages shorter, and more numerous.
//
// Products are converted so that no processor fuses them with a sum: ranks on different
// processors must compute the same numbers.
func (t *Tuner) time(f figures, d distance, n Need, channels int) float64 {
	bytes, ch := float64(n.Bytes), float64(channels)
	message := bytes * f.largest / ch
	latency, perByte, each := t.tolls(message, d)
	work := bytes * (float64(f.moved*perByte) + float64(f.reduced*t.net.Reduce) + float64(f.copied*t.net.Copy))
	share := 0.0 // reduced part of the moved bytes
	if f.moved > 0 {
		share = min(f.reduced/f.moved, 1)
	}
	row := f.depth * (latency + float64(message*(perByte+float64(share*t.net.Reduce))))
	return max(work, row) + float64(f.messages*ch*each)
}

// tolls returns the latency, the time per byte and the overhead of messages of a length.
func (t *Tuner) tolls(message float64, d distance) (latency, perByte, each float64) {
	latency, perByte, each = t.net.Latency, t.net.Byte, t.net.Message
	if message > float64(t.net.Eager) {
		latency, perByte, each = t.net.Granted, t.net.Bulk, t.net.Grant
	}
	return float64(latency * d.message), float64(perByte * d.byte), float64(each * d.message)
}

func (t *Tuner) figuresOf(i int, a plan.Algorithm, n Need) figures {
	return t.figures.of(n, i, func() figures { return measure(n.Collective, a, n.Size) })
}
