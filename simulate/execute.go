package simulate

import (
	"fmt"
	"math"
	"sort"
	"time"

	"github.com/nexar-go/nexar/internal/plan"
)

// A picos is a time or a duration in picoseconds. They are integers, so that the order of events
// does not depend on rounding.
type picos = int64

const picosPerSecond = 1e12

// pico converts a duration.
func pico(d time.Duration) picos { return picos(d) * 1000 }

// An eventKind is the kind of an event.
type eventKind uint8

const (
	computed eventKind = iota // a move without a message has ended
	granted                   // the sender has the grant of a message
	injected                  // the first bytes of a message leave the sender
	left                      // the last bytes of a message have left the sender
	arrived                   // the first bytes of a message reach the receiver
	taken                     // a receive has ended
)

// A message is on its way from one rank to another.
type message struct {
	from, to int32
	bytes    int64
	send     int32 // number of the move at the sender
	receive  int32 // number of the move at the receiver, or -1
	offered  bool  // it was not sent yet, since it needs a grant
	here     bool  // it has arrived
	head     picos // when its first bytes are ready to leave the sender
	end      picos // when its last bytes are; later: when they arrive
}

// openMax is the number of rounds that a rank works on at a time.
const openMax = 8

// A world is a simulation in progress.
type world struct {
	machine *machine
	plans   source
	chunks  int64
	bytes   int64
	now     picos
	queue   queue
	ranks   []rank
	cores   []core // of all hosts; empty if every rank has a core of its own
	net     network

	messages []message
	free     []int32 // unused messages

	switching    picos
	turn         picos // until a rank that waits and polls runs again
	pollFor      picos // how long a rank polls
	wake         picos // of a rank that no longer polls
	memory, wire pathCost
	reduce       float64 // picoseconds per byte
	result       outcome
	begun        int64 // rounds
}

// A core is one processor.
type core struct {
	free picos // when it has nothing more to do
	last int32 // the rank that used it last
}

// A pathCost is a [Path] in picoseconds.
type pathCost struct {
	latency, message picos
	copying          float64 // per byte
}

func costOf(p Path) pathCost {
	return pathCost{pico(p.Latency), pico(p.Message), perByte(p.CopyRate)}
}

// perByte returns the picoseconds for a byte at a rate per second. A rate of 0 is unlimited.
func perByte(rate float64) float64 {
	if rate == 0 {
		return 0
	}
	return picosPerSecond / rate
}

// execute runs the plans of a source.
func (m *machine) execute(c call, plans source, progress progressFunc) (outcome, error) {
	hosts := m.hosts(c.Ranks)
	if c.Channels > 1 {
		plans = &sliced{source: plans, channels: c.Channels}
	}
	w := &world{
		machine: m, plans: plans, chunks: int64(plans.chunks()), bytes: int64(c.Bytes),
		ranks: make([]rank, c.Ranks), net: newNetwork(m, hosts),
		switching: pico(m.Switch), pollFor: pico(m.PollFor), wake: pico(m.Wake), memory: costOf(m.Memory), wire: costOf(m.Network), reduce: perByte(m.ReduceRate),
	}
	if m.Cores < m.RanksPerHost {
		w.turn = picos(float64(pico(m.Poll)) * (float64(min(m.RanksPerHost, c.Ranks))/float64(m.Cores) - 1))
		w.cores = make([]core, hosts*m.Cores)
		for i := range w.cores {
			w.cores[i].last = -1
		}
	}
	if err := w.run(progress); err != nil {
		return outcome{}, err
	}
	for i := range w.ranks {
		if r := &w.ranks[i]; int(r.next) < plans.length(i) || len(r.open) > 0 {
			return outcome{}, fmt.Errorf("%s of %d ranks: rank %d has not ended after %d of %d rounds", c.algorithm.Name, c.Ranks, i, r.next, plans.length(i))
		}
	}
	w.result.seconds = float64(w.now) / picosPerSecond
	w.result.BusiestLink, w.result.BusiestBytes = w.net.busiest()
	return w.result, nil
}

// progressEvents is the number of events between two calls of the progress function.
const progressEvents = 1 << 16

func (w *world) run(progress progressFunc) error {
	all := int64(w.plans.length(0)) * int64(len(w.ranks))
	events := 0
	report := func() error {
		if events++; events%progressEvents == 0 && progress != nil && !progress(min(w.begun, all), all) {
			return errStopped
		}
		return nil
	}
	for i := range w.ranks {
		w.open(int32(i))
		if err := report(); err != nil {
			return err
		}
	}
	for {
		e, ok := w.queue.next()
		if !ok {
			return nil
		}
		w.now = e.at
		w.handle(e)
		if err := report(); err != nil {
			return err
		}
	}
}

// handle carries out an event.
func (w *world) handle(e event) {
	switch e.kind {
	case computed:
		w.finish(e.rank, e.arg)
		w.open(e.rank)
	case granted:
		w.send(e.arg)
	case injected:
		w.inject(e.arg)
	case left:
		msg := &w.messages[e.arg]
		w.finish(msg.from, msg.send)
		w.open(msg.from)
	case arrived:
		w.arrive(e.arg)
	case taken:
		msg := w.messages[e.arg]
		w.free = append(w.free, e.arg)
		w.finish(msg.to, msg.receive)
		w.open(msg.to)
	}
}

// open opens rounds of a rank as long as all that was opened is in progress, except for receives:
// these may wait for others.
func (w *world) open(at int32) {
	r := &w.ranks[at]
	length := int32(w.plans.length(int(at)))
	r.trim()
	for r.next < length && r.held == 0 && (len(r.open) == 0 || r.next-r.open[r.head].round < openMax) {
		first := len(r.open)
		r.open = w.plans.round(r.open, int(at), int(r.next))
		for i := first; i < len(r.open); i++ {
			m := &r.open[i]
			m.round = r.next
			for j := int(r.head); j < first; j++ {
				if e := &r.open[j]; e.state != done && m.follows(e) {
					m.waits++
				}
			}
			if m.waits > 0 {
				w.count(r, m, 1)
			}
		}
		r.next++
		w.begun++
		for number, last := r.first+int32(first), r.first+int32(len(r.open)); number < last; number++ {
			if m := r.move(number); m.waits == 0 {
				w.begin(at, number)
			}
		}
		r.trim()
	}
}

// count adds to the blocked moves of a rank.
func (w *world) count(r *rank, m *move, n int32) {
	r.blocked += n
	if !m.receives() {
		r.held += n
	}
}

// begin begins a move that waits for no other.
func (w *world) begin(at, number int32) {
	r := &w.ranks[at]
	m := r.move(number)
	m.state, m.since = ready, w.now
	switch m.kind {
	case plan.Send:
		w.post(at, number)
	case plan.Recv, plan.Reduce:
		w.match(at, m.peer)
	default:
		_, end := w.compute(at, w.now, picos(w.reduce*float64(w.length(m.dst))))
		if end > w.now {
			w.queue.add(event{at: end, rank: at, arg: number, kind: computed})
			return
		}
		w.finish(at, number)
	}
}

// finish ends a move and begins those that have waited for it.
func (w *world) finish(at, number int32) {
	r := &w.ranks[at]
	ended := r.move(number)
	ended.state = done
	if r.blocked == 0 {
		return
	}
	// Moves of the same round do not wait for each other. There may be one for each rank.
	rest := r.open[number+1-r.first:]
	later := sort.Search(len(rest), func(i int) bool { return rest[i].round > ended.round })
	for i := number + 1 + int32(later); r.blocked > 0 && int(i-r.first) < len(r.open); i++ {
		m := r.move(i)
		if m.waits == 0 || !m.follows(ended) {
			continue
		}
		if m.waits--; m.waits == 0 {
			w.count(r, m, -1)
			w.begin(at, i)
		}
	}
}

// length returns the bytes of a span.
func (w *world) length(s span) int64 {
	lo, hi := int64(s.lo), int64(s.hi)
	if lo >= w.chunks { // a later vector of Temp
		lo, hi = lo%w.chunks, lo%w.chunks+hi-lo
	}
	return hi*w.bytes/w.chunks - lo*w.bytes/w.chunks
}

// compute uses a processor for a rank, from a time on. It returns when it begins and ends.
func (w *world) compute(at int32, from, duration picos) (begin, end picos) {
	r := &w.ranks[at]
	begin = max(from, r.busy)
	if duration == 0 {
		return begin, begin
	}
	if w.wake > 0 && from-r.busy > w.pollFor {
		duration += w.wake
	}
	if len(w.cores) > 0 {
		host := int(at) / w.machine.RanksPerHost
		c := pick(w.cores[host*w.machine.Cores:(host+1)*w.machine.Cores], at, begin)
		begin = max(begin, c.free)
		if c.last != at {
			duration += w.switching
			c.last = at
		}
		c.free = begin + duration
	}
	r.busy = begin + duration
	return begin, r.busy
}

// pick returns the core that a rank uses at a time: the one that it used last, if that one is idle,
// or else the first that is.
func pick(cores []core, at int32, from picos) *core {
	best, least := 0, picos(math.MaxInt64)
	for i := range cores {
		switch c := &cores[i]; {
		case c.last == at && c.free <= from:
			return c
		case c.free < least:
			best, least = i, c.free
		}
	}
	return &cores[best]
}
