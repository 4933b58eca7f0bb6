// Package ntstore copies data to shared memory, with non-temporal stores where these are
// faster.
//
// The readers of shared memory hold its lines in their caches. If these are far away, for
// example on another socket, an ordinary store waits long for its line. Non-temporal stores,
// which bypass the caches, are several times as fast then, and slower otherwise. A [Writer]
// compares both kinds, for copies of similar length, and again and again, since the system may move the
// process or the virtual processors below it.
//
// Keep one Writer for each ring in shared memory. A Writer is for one goroutine at a time.
package ntstore

import (
	"math"
	"math/bits"
	"time"
)

const (
	// shortest is the minimum length of copies that depend on the kind of stores.
	shortest = 4 << 10
	// A class has copies of shortest to 4·shortest bytes, of up to 16·shortest, and so on. The last one has all longer copies.
	classes = 4
	// A trial copies trialCopies times, with both kinds in turn, and compares the shortest times of both. The number of copies between two
	// trials is pauseMin, and twice as many after each trial with the same result, up to pauseMax.
	trialCopies = 6
	pauseMin    = 64
	pauseMax    = 1024
)

// A Writer copies data to shared memory.
type Writer struct {
	stream  func(dst, src []byte) // copies with non-temporal stores; nil if not available
	classes [classes]class
}

// A class has the results for copies of similar length.
type class struct {
	streams bool             // non-temporal stores are faster
	left    int              // copies before the next trial
	pause   int              // the number of copies between two trials
	tried   int              // copies of the current trial
	best    [2]time.Duration // the shortest time of a MiB in this trial, with ordinary stores and with non-temporal ones
}

// New returns a Writer. Stream copies with non-temporal stores that become visible before later
// stores; it is nil if that is not possible.
func New(stream func(dst, src []byte)) Writer { return Writer{stream: stream} }

// Always returns a Writer that uses non-temporal stores for all but short copies.
func Always(stream func(dst, src []byte)) Writer {
	w := New(stream)
	for i := range w.classes {
		w.classes[i] = class{streams: true, left: math.MaxInt}
	}
	return w
}

// Write copies src to dst, which has the same length.
func (w *Writer) Write(dst, src []byte) {
	if len(src) < shortest || w.stream == nil {
		copy(dst, src)
		return
	}
	c := &w.classes[classOf(len(src))]
	if c.left > 0 {
		c.left--
		w.copy(dst, src, c.streams)
		return
	}
	streams, began := c.tried%2 == 1, time.Now()
	w.copy(dst, src, streams)
	c.learn(streams, len(src), time.Since(began))
}

func (w *Writer) copy(dst, src []byte, streams bool) {
	if streams {
		w.stream(dst, src)
	} else {
		copy(dst, src)
	}
}

func classOf(bytes int) int { return min((bits.Len(uint(bytes/shortest))-1)/2, classes-1) }

// learn records a copy of a trial. A reader fetches from memory what was stored past the caches, so non-temporal stores are faster for both
// only if they save the writer two thirds of its time. Messages of 1 MiB took 250 µs with ordinary stores of 116 ns a KiB, and 360 µs
// with non-temporal ones of 54.
func (c *class) learn(streams bool, bytes int, took time.Duration) {
	kind := 0
	if streams {
		kind = 1
	}
	perMiB := took << 20 / time.Duration(bytes)
	if c.tried < 2 || perMiB < c.best[kind] {
		c.best[kind] = perMiB
	}
	if c.tried++; c.tried < trialCopies {
		return
	}
	if streams = 3*c.best[1] < c.best[0]; streams == c.streams {
		c.pause = min(max(2*c.pause, pauseMin), pauseMax)
	} else {
		c.pause = pauseMin
	}
	c.streams, c.left, c.tried = streams, c.pause, 0
}
