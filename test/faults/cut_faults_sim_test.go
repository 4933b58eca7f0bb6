package faults

import (
	"fmt"
	"sync"
	"time"

	"github.com/nexar-go/nexar/transport/sim"
)

// choose draws a fault. Changes of the world are rare.
func (w *cutSim) choose() cutFault {
	w.mu.Lock()
	defer w.mu.Unlock()
	made := 0
	for f := joins; f < cutFaults; f++ {
		made += w.tally.faults[f]
	}
	if w.changes && made < changesMax && w.rng.IntN(8) == 0 {
		return joins + cutFault(w.rng.IntN(int(cutFaults-joins)))
	}
	return [...]cutFault{breakOne, breakOne, breakOne, breakOne, breakOne, breakOne, breakOne, breakOne, breakPair, breakPair, breakPair, breakPair, silence, silence, silence, breakAndSilence, breakAndSilence, breakAndSilence, pauseSeed}[w.rng.IntN(19)]
}

// pick draws two nodes that work and are to stay.
func (w *cutSim) pick() (a, b *cutMember, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var here []*cutMember
	for _, m := range w.members {
		if !m.done && m.comm != nil {
			here = append(here, m)
		}
	}
	if len(here) < 2 {
		return nil, nil, len(here)
	}
	i := w.rng.IntN(len(here))
	return here[i], here[(i+1+w.rng.IntN(len(here)-1))%len(here)], len(here)
}

// cut draws where and how connections break.
func (w *cutSim) cut(all bool) sim.Cut {
	c := sim.Cut{All: all, After: [...]int{w.rng.IntN(64), w.rng.IntN(5_000), w.rng.IntN(300_000)}[w.rng.IntN(3)]}
	late := time.Duration(w.rng.IntN(1500)) * time.Millisecond
	switch w.rng.IntN(8) {
	case 0:
		c.From = late
	case 1:
		c.To = late
	case 2:
		c.From = -1
	case 3:
		c.To = -1
	}
	return c
}

// apply applies a fault.
func (w *cutSim) apply(f cutFault, outage *sync.WaitGroup) {
	switch f {
	case closes, bothLeave, readmitted:
		// Nodes wait for the next view for a short time if a node has left, and a seed that was away cannot know which of two nodes was isolated.
		outage.Wait()
	}
	a, b, n := w.pick()
	if pair := pairOf(a, b); f == silence || f == breakAndSilence {
		if time.Now().Before(w.rests[pair]) {
			f = breakPair
		} else {
			w.rests[pair] = time.Now().Add(2*outageMax + outagesBetween)
		}
	}
	if f == joins || f < joins && a != nil || n >= 4 {
		w.begin(f, a, b, n)
		w.inflict(f, a, b, outage)
	}
}

// pairOf returns a key for two members, which may be nil.
func pairOf(a, b *cutMember) (pair [2]string) {
	if a != nil && b != nil {
		pair = [2]string{min(a.host, b.host), max(a.host, b.host)}
	}
	return pair
}

// begin counts and notes a fault.
func (w *cutSim) begin(f cutFault, a, b *cutMember, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tally.faults[f]++
	if f == joins {
		w.noteLocked("%v: host%d", f, len(w.members))
		w.addLocked(fmt.Sprint("host", len(w.members)))
		return
	}
	w.noteLocked("%v: %s, %s of %d nodes", f, a.host, b.host, n)
	end := func(m *cutMember) {
		m.done = true
		w.faulty[m.node.ID()] = time.Now()
	}
	switch f {
	case leaves:
		a.done = true
	case bothLeave:
		end(a)
		end(b)
	case closes, crashes, powersOff, restarts, readmitted:
		end(a)
		a.rejoin = f == readmitted
	}
}

const (
	// outageMax is the longest silence of a direction. Two of them, and the time to connect again, are shorter than the heartbeat timeout.
	outageMax = 500 * time.Millisecond
	// outagesBetween is the time in which a pair can connect again after that.
	outagesBetween = 10 * cutBeat
)

// inflict carries out a fault.
func (w *cutSim) inflict(f cutFault, a, b *cutMember, outage *sync.WaitGroup) {
	silent := func(a, b *cutMember) {
		took := time.Duration(w.rng.Int64N(int64(outageMax)))
		w.Network.SetOneWay(a.host, b.host, sim.Link{Down: true})
		time.Sleep(took)
		w.Network.SetOneWay(a.host, b.host, w.restore)
	}
	switch f {
	case breakOne, breakPair:
		c := w.cut(f == breakPair)
		w.note("at byte %d, noticed after %v and %v", c.After, c.From, c.To)
		w.Network.CutAfter(a.host, b.host, c)
	case silence:
		silent(a, b)
	case breakAndSilence:
		w.Network.Cut(a.host, b.host)
		silent(a, b)
		silent(b, a)
	case pauseSeed:
		took := time.Second + time.Duration(w.rng.Int64N(int64(cutPauseMax-time.Second)))
		outage.Wait()
		w.Network.Partition("seed")
		outage.Go(func() {
			time.Sleep(took)
			w.Network.Heal()
			time.Sleep(took + seedPauseBetween)
		})
	case leaves:
		w.working.Go(func() { _ = a.node.Leave(w.Ctx) }) // The node ends with its own error.
	case closes:
		w.working.Go(func() { _ = a.node.Close() })
		outage.Go(func() { time.Sleep(seedPauseBetween) })
	case bothLeave:
		w.Network.Cut(a.host, b.host)
		w.working.Go(func() { _ = a.node.Close() })
		w.working.Go(func() { _ = b.node.Close() })
		outage.Go(func() { time.Sleep(seedPauseBetween) })
	case crashes:
		w.Network.Crash(a.host)
	case powersOff:
		w.Network.PowerOff(a.host)
	case restarts:
		w.Network.Crash(a.host)
		w.mu.Lock()
		w.addLocked(a.host)
		w.mu.Unlock()
	case readmitted:
		w.isolate(a, 15*cutBeat)
	}
}

// isolate separates a host from all others.
func (w *cutSim) isolate(m *cutMember, took time.Duration) {
	w.mu.Lock()
	others := []string{"seed"}
	for _, other := range w.members {
		others = append(others, other.host)
	}
	w.mu.Unlock()
	set := func(l sim.Link) {
		for _, host := range others {
			if host != m.host {
				w.Network.SetLink(m.host, host, l)
			}
		}
	}
	set(sim.Link{Down: true})
	time.Sleep(took)
	set(w.restore)
}
