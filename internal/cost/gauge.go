package cost

import (
	"slices"

	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/transport"
)

// A Trial is an all-reduce that ranks time to learn how fast their links are.
type Trial struct {
	Bytes int // of its vector
	Index int // of its algorithm
	Times int // how often it is carried out in a row, which is timed as a whole
	Rows  int // how many rows there are; the fastest counts
}

// The lengths of the vectors of trials, in bytes. All messages of a long one have
// to be granted: they go from vector to vector, and links keep no memory for
// them.
const (
	shortTrial = 8
	longTrial  = 512 << 10
)

// Trials are a short and a long one.
func Trials() (short, long Trial) {
	index := slices.IndexFunc(plan.Algorithms(plan.AllReduce), func(a plan.Algorithm) bool {
		return a.Name == "recursive-doubling"
	})
	return Trial{shortTrial, index, 16, 3}, Trial{longTrial, index, 2, 2}
}

// Links are what the links between ranks, or between hosts, have been found to
// be, relative to the Network of their class. The zero value is no finding.
type Links struct {
	// Delay is how many seconds longer a message takes.
	Delay float64
	// Work is how many times as long its work takes, and Byte each byte; 0
	// stands for 1.
	Work, Byte float64
}

// ordinary is how many times as fast, or as slow, as predicted links may be to
// count as predicted. The figures of a Network have been tried out on
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

// Fit finds the Links with which trials of so many ranks, each on a host of its
// own, take as many seconds as they have taken. The same seconds give the same
// Links everywhere.
func Fit(c transport.Class, ranks int, short, long float64) (l Links) {
	shortTrial, longTrial := Trials()
	net, known := NetworkOf(c)
	if !known || !(short > 0 && long > 0) {
		return l
	}
	short, long = min(short, secondsMax), min(long, secondsMax)
	// One tuner for all: what plans are made of stays the same.
	tuner := New(net)
	predict := func(t Trial, l Links) float64 {
		tuner.net = l.as(net)
		need := Need{Collective: plan.AllReduce, Size: ranks, Bytes: t.Bytes}
		choice, _ := tuner.Way(need, t.Index, 1)
		return choice.Seconds
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
	base.Byte = 1e-9 // of the prediction: as good as none
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
