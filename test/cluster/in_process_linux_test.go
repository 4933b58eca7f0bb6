package cluster

import (
	"fmt"
	"testing"
	"time"
)

// Limits for the part of a processor that the idle nodes of a process use in all: in general,
// and over QUIC alone, where each heartbeat takes three packets.
const (
	inProcessMax     = 0.008
	inProcessQUICMax = 0.04
)

// inProcessRanks is the size of the world in one process.
func inProcessRanks() int {
	if isStrict() {
		return 64
	}
	return 12
}

// inProcess measures the processor time of an idle world in one process: heartbeats of all its
// nodes and its seed, and the Go runtime.
func (f *footprint) inProcess(t *testing.T) {
	ways := []struct {
		transports   string
		share, limit float64
	}{{"shm,tcp,quic", 0, inProcessMax}, {"shm", 0, inProcessMax}, {"quic", 0, inProcessQUICMax}}
	for i, way := range ways {
		c := newWorkerSet(t)
		w := c.start(nil, "world", "NEXAR_TRANSPORTS="+way.transports, "NEXAR_LOG=warn")
		mustSucceed(t, []result{w.do(command{Do: "form-in-process", N: inProcessRanks()})})
		settled, wait := time.Second, 2*time.Second
		if isStrict() {
			// QUIC watches a new connection more closely for half a minute.
			settled, wait = 31*time.Second, time.Minute
		}
		time.Sleep(settled)
		before, began := cpuTime(t, w), time.Now()
		time.Sleep(wait)
		ways[i].share = (cpuTime(t, w) - before).Seconds() / time.Since(began).Seconds()
		c.stop(w)
	}
	for _, way := range ways {
		f.check(t, fmt.Sprintf("%d nodes in one process, %s, in all", inProcessRanks(), way.transports), 100*way.share, 100*way.limit, 10, "%")
	}
}
