package cluster

import (
	"fmt"
	"testing"
	"time"
)

// crowdMax is the part of a processor that nodes of one process may use in all
// while nothing happens. Over QUIC alone, where each sign of life takes three
// packets, it is quicMax.
const (
	crowdMax = 0.01
	quicMax  = 0.04
)

// crowdRanks is the size of a world in one process that is measured.
func crowdRanks() int {
	if strictly() {
		return 64
	}
	return 12
}

// crowd measures the processor time of an idle world in one process: heartbeats of all its nodes and
// its seed, and the Go runtime.
func (f *footprint) crowd(t *testing.T) {
	ways := []struct {
		transports   string
		share, limit float64
	}{{"shm,tcp,quic", 0, crowdMax}, {"shm", 0, crowdMax}, {"quic", 0, quicMax}}
	for i, way := range ways {
		c := newCrew(t)
		w := c.hire(nil, "crowd", "NEXAR_TRANSPORTS="+way.transports, "NEXAR_LOG=warn")
		ok(t, []report{w.do(order{Do: "crowd", N: crowdRanks()})})
		settled, wait := time.Second, 2*time.Second
		if strictly() {
			// A seed inspects the first half minute of each joining node.
			settled, wait = 31*time.Second, time.Minute
		}
		time.Sleep(settled)
		before, began := used(t, w), time.Now()
		time.Sleep(wait)
		ways[i].share = (used(t, w) - before).Seconds() / time.Since(began).Seconds()
		c.retire(w)
	}
	for _, way := range ways {
		f.say(t, fmt.Sprintf("%d nodes in one process, %s, in all", crowdRanks(), way.transports), 100*way.share, 100*way.limit, 10, "%")
	}
}
