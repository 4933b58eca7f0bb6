package cost

import (
	"slices"

	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/transport"
)

// A Trial is an all-reduce that ranks time to measure the speed of their links.
type Trial struct {
	Bytes int // length of the vector
	Index int // index of the algorithm
	Times int // runs in a row, timed together
	Rows  int // number of rows; the fastest counts
}

// The lengths of the vectors of trials, in bytes. All messages of the long one need a grant, so
// that they measure bulk transfers.
const (
	shortTrial = 8
	longTrial  = 512 << 10
)

// Trials returns a short and a long trial.
func Trials() (short, long Trial) {
	index := slices.IndexFunc(plan.Algorithms(plan.AllReduce), func(a plan.Algorithm) bool {
		return a.Name == "recursive-doubling"
	})
	return Trial{shortTrial, index, 16, 3}, Trial{longTrial, index, 2, 2}
}

// Links is the measured speed of the links between ranks, or between hosts, relative to the
// Network of their class. The zero value means the Network itself.
type Links struct {
	// Delay is additional latency of a message, in seconds.
	Delay float64
	// Work scales the overhead of messages, and Byte the time per byte; 0 means 1.
	Work, Byte float64
}

// ordinary is the largest factor between measured and predicted times that leaves the Network
// unchanged. A Network was calibrated with whole collectives, which is more reliable than a few
// trials on a busy machine.
const ordinary = 5

// as returns the Network with the measured links.
func (l Links) as(n Network) Network {
	if l.Work > 0 {
		n.Latency, n.Message, n.Granted, n.Grant = n.Latency*l.Work, n.Message*l.Work, n.Granted*l.Work, n.Grant*l.Work
		n.Handshake *= l.Work
	}
	if l.Byte > 0 {
		n.Byte, n.Bulk = n.Byte*l.Byte, n.Bulk*l.Byte
	}
	n.Latency += l.Delay
	n.Granted += l.Delay
	return n
}

// Fit returns the Links with which the model predicts the measured times of both trials, in
// seconds, for ranks on separate hosts. It returns the same Links on every rank for the same
// times.
func Fit(c transport.Class, ranks int, short, long float64) (l Links) {
	shortTrial, longTrial := Trials()
	net, known := NetworkOf(c)
	if !known || !(short > 0 && long > 0) {
		return l
	}
	short, long = min(short, secondsMax), min(long, secondsMax)
	// One Tuner serves all predictions: the figures of plans do not depend on the Network.
	tuner := New(net)
	predict := func(t Trial, l Links) float64 {
		tuner.net = l.as(net)
		need := Need{Collective: plan.AllReduce, Size: ranks, Bytes: t.Bytes}
		choice, _ := tuner.ChoiceWith(need, t.Index, 1)
		return choice.Seconds
	}
	switch p := predict(shortTrial, l); {
	case short < p/ordinary:
		l.Work = short / p
	case short > p*ordinary:
		// The overhead on processors is about the same everywhere; the rest is latency of
		// the path.
		const guess = 1e-3
		l.Delay = (short - p) / (predict(shortTrial, Links{Delay: guess}) - p) * guess
	}
	base := l
	base.Byte = 1e-9 // a factor that is close to 0
	none, all := predict(longTrial, base), predict(longTrial, l)
	if long > all/ordinary && long < all*ordinary || all <= none {
		return l
	}
	// The time is nearly linear in Byte, so that a few steps converge.
	l.Byte = 1
	for range fitSteps {
		l.Byte *= max(long-none, none/fitSteps) / (predict(longTrial, l) - none)
	}
	return l
}

const (
	fitSteps   = 4
	secondsMax = 1000 // longer times of a trial are clamped
)
