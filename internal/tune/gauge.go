package tune

import (
	"slices"

	"github.com/nexar-go/nexar/internal/plan"
)

// A Trial is an all-reduce that ranks time to learn how fast their links are.
type Trial struct {
	Bytes int // of its vector
	Index int // of its algorithm
	Times int // how often it is carried out in a row, which is timed as a whole
	Rows  int // how many rows there are; the fastest counts
}

// The lengths of the vectors of trials. A long one has messages that have to be
// granted, unless there are so many ranks that all of them together would then
// move more than takes a moment.
const (
	shortTrial     = 8
	longTrial      = 1 << 20
	longTrialLeast = 64 << 10
	longTrialsMost = 8 << 20 // of all ranks together
	trialsRanks    = 16      // more of them carry out few trials, which take long
)

// Trials are a short and a long one for so many ranks.
func Trials(size int) (short, long Trial) {
	bytes := min(longTrial, max(longTrialLeast, longTrialsMost/size))
	short = Trial{shortTrial, allReduce("recursive-doubling"), 16, 3}
	long = Trial{bytes, allReduce("rabenseifner"), 2, 2}
	if size > trialsRanks {
		short.Times, short.Rows, long.Times, long.Rows = 2, 2, 1, 1
	}
	return short, long
}

func allReduce(name string) int {
	return slices.IndexFunc(plan.Algorithms(plan.AllReduce), func(a plan.Algorithm) bool { return a.Name == name })
}

// Links are what the links between ranks, or between hosts, have been found to
// be, beside what the Network of their Way says. The zero value is no finding.
type Links struct {
	// Delay is how many seconds longer a message takes.
	Delay float64
	// Work is how many times as long its work takes, and Byte each byte; 0
	// stands for 1.
	Work, Byte float64
}

// ordinary is how many times as fast, or as slow, as predicted links may be to
// count as what their Way says. The figures of a Way have been tried out on
// whole collectives, which a few trials on a busy machine are not worth more
// than.
const ordinary = 5

// as is a Network with such links.
func (l Links) as(n Network) Network {
	if l.Work > 0 {
		n.Latency, n.Message, n.Granted, n.Grant = n.Latency*l.Work, n.Message*l.Work, n.Granted*l.Work, n.Grant*l.Work
	}
	if l.Byte > 0 {
		n.Byte, n.Bulk = n.Byte*l.Byte, n.Bulk*l.Byte
	}
	n.Latency += l.Delay
	n.Granted += l.Delay
	return n
}

// Fit finds the Links with which trials take as many seconds as they have
// taken. The same seconds give the same Links everywhere.
func (s Ways) Fit(h plan.Hosts, short, long float64) (l Links) {
	shortTrial, longTrial := Trials(h.Size())
	if s.Tuner(h, l) == nil || !(short > 0 && long > 0) {
		return l
	}
	short, long = min(short, secondsMax), min(long, secondsMax)
	// One tuner for all: what plans are made of stays the same.
	tuner := s.Tuner(h, l)
	predict := func(t Trial, l Links) float64 {
		*tuner.between = l.as(s.slowest(h))
		need := Need{Collective: plan.AllReduce, Size: h.Size(), Bytes: t.Bytes}
		c, _ := tuner.Way(need, t.Index, 1)
		return c.Seconds
	}
	switch p := predict(shortTrial, l); {
	case short < p/ordinary:
		l.Work = short / p
	case short > p*ordinary:
		// What a processor does takes about the same everywhere; the rest is
		// the way between them.
		const probe = 1e-3
		l.Delay = (short - p) / (predict(shortTrial, Links{Delay: probe}) - p) * probe
	}
	base := l
	base.Byte = 1e-9 // of what Way says: as good as none
	none, all := predict(longTrial, base), predict(longTrial, l)
	if long > all/ordinary && long < all*ordinary || all <= none {
		return l
	}
	// The time is nearly a straight line over Byte, so that a few steps lead to
	// where it meets long.
	l.Byte = 1
	for range fitSteps {
		l.Byte *= max(long-none, none/fitSteps) / (predict(longTrial, l) - none)
	}
	return l
}

const (
	fitSteps   = 4
	secondsMax = 1000 // that a trial is believed to take
)
