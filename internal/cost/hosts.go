package cost

import (
	"math/bits"

	"github.com/nexar-go/nexar/internal/plan"
)

// The classes of pairs of ranks: on the same host, or on two.
const (
	near = iota
	far
	classes
)

// A hostTuner chooses for ranks on several hosts, among flat and hierarchical plans.
type hostTuner struct {
	nets    [classes]Network
	hosts   plan.Hosts
	figures known[hostFigures]
}

// NewOnHosts returns a Tuner for ranks on hosts h, with one Network within hosts and one between
// them.
func NewOnHosts(within, between Network, h plan.Hosts) *Tuner {
	on := &hostTuner{nets: [...]Network{near: within, far: between}, hosts: h}
	return &Tuner{
		handshake: between.Handshake, hosts: h, together: h.Count() < h.Size(), predict: on.ofPlans, chosen: make(map[Need]Choice),
	}
}

// hostFigures are the costs of the plans of all ranks, for a vector of one byte.
type hostFigures struct {
	loads   []load           // of the ranks, without duplicates
	rows    [2]row           // the longest, for a short and for a long vector
	largest [classes]float64 // message
	single  bool             // every message is a single chunk
}

// A load is the work of one rank in a plan.
type load struct {
	messages, sent, received [classes]float64
	reduced, copied          float64
}

// A row is a chain of dependent messages: their number and their bytes.
type row struct{ messages, carried [classes]float64 }

// The lengths of vectors with longest rows, in bytes.
const (
	shortVector = 1 << 10
	longVector  = 4 << 20
)

// ofPlans predicts the time of an algorithm on hosts.
func (t *hostTuner) ofPlans(i int, a plan.Algorithm, n Need) (time func(channels int) float64, most int) {
	if a.Shared || t.hosts.Size() != n.Size {
		return nil, 0
	}
	f := t.figures.of(n, i, func() hostFigures { return t.measure(n.Collective, i, a) })
	return func(channels int) float64 { return t.time(&f, n, channels) }, n.channels(f.single)
}

// time predicts the time like Tuner.time, with the paths of both classes. Products are
// converted, so that they are rounded the same on every processor.
func (t *hostTuner) time(f *hostFigures, n Need, channels int) float64 {
	bytes, ch := float64(n.Bytes), float64(channels)
	var latency, perByte, each [classes]float64
	for c := range classes {
		net := &t.nets[c]
		latency[c], perByte[c], each[c] = net.Latency, net.Byte, net.Message
		if bytes*f.largest[c]/ch > float64(net.Eager) {
			latency[c], perByte[c], each[c] = net.Granted, net.Bulk, net.Grant
		}
	}
	longest := 0.0
	for _, r := range f.rows {
		s := 0.0
		for c := range classes {
			s += float64(r.messages[c]*latency[c]) + float64(bytes*r.carried[c]/ch*(perByte[c]+t.nets[near].Reduce))
		}
		longest = max(longest, s)
	}
	most := 0.0
	for i := range f.loads {
		l := &f.loads[i]
		var out, in, messages float64
		for c := range classes {
			out += float64(l.sent[c] * perByte[c])
			in += float64(l.received[c] * perByte[c])
			messages += float64(l.messages[c] * ch * each[c])
		}
		work := bytes * (max(out, in) + float64(l.reduced*t.nets[near].Reduce) + float64(l.copied*t.nets[near].Copy))
		most = max(most, max(work, longest)+messages)
	}
	return most
}

// measure computes the figures of an algorithm.
func (t *hostTuner) measure(c plan.Collective, i int, a plan.Algorithm) hostFigures {
	size := t.hosts.Size()
	f := hostFigures{single: true}
	spans := figures{single: true}
	if size > depthSizeMax {
		for _, rank := range few(size) {
			f.add(t.hosts, rank, a.Plan(rank, size, 0), &spans)
		}
		f.rows = t.rowsBeyond(c, i)
	} else {
		plans := a.Plans(size, 0)
		for rank, p := range plans {
			f.add(t.hosts, rank, p, &spans)
		}
		f.rows = t.rows(t.hosts, a, plans)
	}
	if c.Rooted() && spans.single {
		// The tree of another root may have longer messages.
		for _, p := range samples(a, size, size-1) {
			spans.spans(p)
		}
	}
	// If hosts differ, a few ranks do not represent all.
	f.single = spans.single && (size <= depthSizeMax || i < len(plan.Algorithms(c)))
	return f
}

// add adds the plan of a rank.
func (f *hostFigures) add(h plan.Hosts, rank int, p plan.Plan, spans *figures) {
	spans.spans(p)
	var l load
	for _, round := range p.Rounds {
		for i := range round {
			m := &round[i]
			class := near
			if m.Kind != plan.Copy && m.Kind != plan.Combine && !h.Same(rank, m.Peer) {
				class = far
			}
			n := float64(m.Dst.Len())
			switch m.Kind {
			case plan.Send:
				n = float64(m.A.Len())
				l.sent[class] += n
				l.messages[class]++
				f.largest[class] = max(f.largest[class], n/float64(p.Chunks))
			case plan.Recv, plan.Reduce:
				l.received[class] += n
				l.messages[class]++
			case plan.Copy:
				l.copied += n
			}
			if m.Kind == plan.Reduce || m.Kind == plan.Combine {
				l.reduced += n
			}
		}
	}
	// Sums of chunks are exact in any order.
	chunks := float64(p.Chunks)
	for c := range classes {
		l.sent[c] /= chunks
		l.received[c] /= chunks
	}
	l.reduced /= chunks
	l.copied /= chunks
	for _, other := range f.loads {
		if other == l {
			return
		}
	}
	f.loads = append(f.loads, l)
}

// rows returns the longest rows of the plans of all ranks.
func (t *hostTuner) rows(h plan.Hosts, a plan.Algorithm, plans []plan.Plan) (rows [2]row) {
	chunks := float64(plans[0].Chunks)
	short := func(net *Network) plan.Toll {
		return plan.Toll{Each: net.Latency, Chunk: shortVector / chunks * (net.Byte + t.nets[near].Reduce)}
	}
	long := func(net *Network) plan.Toll {
		return plan.Toll{Each: net.Granted, Chunk: longVector / chunks * (net.Bulk + t.nets[near].Reduce)}
	}
	within, between := &t.nets[near], &t.nets[far]
	found, err := h.Longest(plans, plan.Tolls{Near: short(within), Far: short(between)}, plan.Tolls{Near: long(within), Far: long(between)})
	if err != nil {
		panic("cost: " + a.Name + ": " + err.Error())
	}
	for k, r := range found {
		rows[k] = row{
			messages: [...]float64{float64(r.Near), float64(r.Far)},
			carried:  [...]float64{float64(r.NearChunks) / chunks, float64(r.FarChunks) / chunks},
		}
	}
	return rows
}

// hostsMeasured is the number of hosts, and of ranks per host, in the largest evaluated world.
// The rows of larger worlds are extrapolated.
const hostsMeasured = 8

// rowsBeyond estimates the rows of the plans of many ranks, like depthBeyond. It extrapolates
// from 2, 4 and 8 hosts, and from 2, 4 and 8 ranks per host.
func (t *hostTuner) rowsBeyond(c plan.Collective, i int) [2]row {
	hosts, ranks := t.hosts.Count(), t.hosts.Most()
	flat := i < len(plan.Algorithms(c))
	at := func(hosts, ranks, size int) sample {
		h := t.hosts.First(hosts, ranks)
		a := plan.AlgorithmsOn(c, h)[i]
		plans := a.Plans(h.Size(), 0)
		s := sample{rows: t.rows(h, a, plans)}
		if flat {
			plans = a.Plans(size, 0) // A power of two; others may take a few more rounds.
		}
		s.depth = depth(a, plans)
		return s
	}
	fewHosts, fewRanks := min(hosts, hostsMeasured), min(ranks, hostsMeasured)
	last := at(fewHosts, fewRanks, 32)
	rows := last.rows
	if hosts > fewHosts {
		rows = grown(at(2, fewRanks, 8), at(4, fewRanks, 16), last, hosts)
	}
	if ranks > fewRanks {
		more := grown(at(fewHosts, 2, 8), at(fewHosts, 4, 16), last, ranks)
		for k := range rows {
			for class := range classes {
				scale(&rows[k].messages[class], more[k].messages[class], last.rows[k].messages[class])
				scale(&rows[k].carried[class], more[k].carried[class], last.rows[k].carried[class])
			}
		}
	}
	return rows
}

// scale multiplies x by to / from, unless from is 0.
func scale(x *float64, to, from float64) {
	if from > 0 {
		*x *= to / from
	}
}

// A sample is the rows and the depth of the plans of fewer ranks.
type sample struct {
	rows  [2]row
	depth int
}

// grown extrapolates the rows of a, b and c at 2, 4 and 8 to n. The depths decide whether they
// grow with n or with its logarithm. No value shrinks.
func grown(a, b, c sample, n int) (rows [2]row) {
	times := float64(bits.Len(uint(n-1)) - 3)
	if before, last := b.depth-a.depth, c.depth-b.depth; 2*last > 3*before {
		times = float64(n-8) / 4
	}
	grow := func(b, c [classes]float64) (grown [classes]float64) {
		for class := range classes {
			grown[class] = c[class] + float64(max(0, c[class]-b[class])*times)
		}
		return grown
	}
	for k := range rows {
		b, c := &b.rows[k], &c.rows[k]
		rows[k] = row{grow(b.messages, c.messages), grow(b.carried, c.carried)}
	}
	return rows
}
