//go:build unix

package cluster

import (
	"os"
	"slices"
	"syscall"
	"time"
)

// A kindOfChange has a weight, which is how likely it is, and fits a world of so many
// processes, or does not.
type kindOfChange struct {
	name   string
	weight int
	fits   func(n int) bool
	make   func(w *changing)
}

func kindsOfChanges() []kindOfChange {
	fewer := func(by int) func(n int) bool { return func(n int) bool { return n-by >= changingMin } }
	more := func(by int) func(n int) bool { return func(n int) bool { return n+by <= changingMax } }
	always := func(int) bool { return true }
	return []kindOfChange{
		{"kill", 4, fewer(1), func(w *changing) { w.kill(1) }},
		{"kill two", 2, fewer(2), func(w *changing) { w.kill(2) }},
		{"stop for a while", 3, always, (*changing).pause},
		{"join", 4, more(1), func(w *changing) { w.join() }},
		{"two join", 2, more(2), func(w *changing) { w.hire(false); w.hire(false); w.settle() }},
		{"leave", 2, fewer(1), func(w *changing) { w.depart(false); w.settle() }},
		{"SIGTERM", 2, fewer(1), func(w *changing) { w.depart(true); w.settle() }},
		{"spare", 2, more(1), func(w *changing) { w.hire(true); w.settle() }},
		{"join and kill", 3, more(1), (*changing).joinAndKill},
		{"kill who joins", 2, more(1), (*changing).killJoining},
		{"stop while one joins", 2, more(1), func(w *changing) { w.hire(false); w.pause() }},
		{"leave and kill", 2, fewer(2), func(w *changing) { w.depart(true); w.kill(1) }},
	}
}

// change makes a change at random.
func (w *changing) change() {
	kinds := kindsOfChanges()
	if w.council != nil {
		kinds = append(kinds, kindsOfSeedChanges()...)
	}
	kinds = slices.DeleteFunc(kinds, func(k kindOfChange) bool { return !k.fits(len(w.hands)) })
	sum := 0
	for _, k := range kinds {
		sum += k.weight
	}
	x := w.rng.IntN(sum)
	for _, k := range kinds {
		if x -= k.weight; x < 0 {
			w.counts.kinds[k.name]++
			began := time.Now()
			w.note("%s, of %d", k.name, len(w.hands))
			k.make(w)
			w.note("  settled after %v", time.Since(began).Round(time.Millisecond))
			return
		}
	}
}

// victim takes one out of those that are to be alive.
func (w *changing) victim() *hand {
	for {
		i := w.rng.IntN(len(w.hands))
		if h := w.hands[i]; h != w.eldest {
			w.hands = slices.Delete(w.hands, i, i+1)
			return h
		}
	}
}

// strike kills a process.
func (w *changing) strike(h *hand) time.Time {
	w.note("  kill %s, rank %d of %d", h.name, h.last().Rank, h.last().Size)
	at := h.kill(os.Kill)
	w.crew.retire(h.worker)
	return at
}

// kill kills processes at once.
func (w *changing) kill(n int) {
	w.wait(30 * time.Millisecond)
	var victims []*hand
	waited := 0
	for range n {
		h := w.victim()
		if h.last().Number == 0 {
			waited++
		}
		victims = append(victims, h)
	}
	before := w.newest()
	var at time.Time
	for _, h := range victims {
		w.note("  kill %s, rank %d of %d", h.name, h.last().Rank, h.last().Size)
		at = h.kill(os.Kill)
	}
	for _, h := range victims {
		w.crew.retire(h.worker)
	}
	w.settle()
	if waited == 0 && w.newest() > before {
		last := time.Duration(0)
		for _, h := range w.hands {
			if i := slices.IndexFunc(h.epochs, func(e epoch) bool { return e.At.After(at) }); i >= 0 {
				last = max(last, h.epochs[i].At.Sub(at))
			}
		}
		w.counts.kills = append(w.counts.kills, last)
	}
}

// newest is the epoch of all.
func (w *changing) newest() (number uint64) {
	for _, h := range w.hands {
		number = max(number, h.last().Number)
	}
	return number
}

// pause stops a process for less than the heartbeat timeout.
func (w *changing) pause() {
	h := w.hands[w.rng.IntN(len(w.hands))]
	for range 1 + w.rng.IntN(2) {
		long := 10*time.Millisecond + time.Duration(w.rng.Int64N(int64(290*time.Millisecond)))
		w.note("  stop %s for %v", h.name, long)
		w.signal(h, syscall.SIGSTOP)
		time.Sleep(long)
		w.signal(h, syscall.SIGCONT)
		w.wait(20 * time.Millisecond)
	}
	w.settle()
}

func (w *changing) signal(h *hand, sig os.Signal) {
	if err := h.cmd.Process.Signal(sig); err != nil {
		w.fail("%v to %s: %v", sig, h.name, err)
	}
}

// wait waits for a random time below limit.
func (w *changing) wait(limit time.Duration) {
	time.Sleep(time.Duration(w.rng.Int64N(int64(limit))))
}

// join has a process join, and takes the time until it has made a step with the
// others: since these had come to rest, and since it was started.
func (w *changing) join() {
	h := w.hire(false)
	before := w.newest()
	w.settle()
	rested, first := time.Time{}, time.Time{}
	for _, other := range w.hands {
		for _, e := range other.epochs {
			switch {
			case e.Number == before && !e.Rested.IsZero() && (rested.IsZero() || e.Rested.Before(rested)):
				rested = e.Rested
			case e.Number == h.last().Number && e.First.After(first):
				first = e.First
			}
		}
	}
	w.counts.starts = append(w.counts.starts, first.Sub(h.hired))
	if !rested.IsZero() {
		w.counts.joins = append(w.counts.joins, first.Sub(rested))
	}
}

// depart has a process leave that is in the world, at the next checkpoint.
func (w *changing) depart(term bool) {
	h := w.victim()
	for h.last().Number == 0 { // a spare that waits; Leave is for those in the world
		w.hands = append(w.hands, h)
		h = w.victim()
	}
	w.note("  %s leaves, rank %d of %d", h.name, h.last().Rank, h.last().Size)
	var asked <-chan report
	if term {
		w.signal(h, syscall.SIGTERM)
	} else {
		asked = h.start(order{Do: "leave"})
	}
	for _, c := range []<-chan report{h.running, asked} {
		if c == nil {
			continue
		}
		select {
		case r := <-c:
			if r.Failure != nil || c == h.running && r.Text != "left" {
				w.fail("%s was to leave: %v", h.name, r.Failure)
			}
		case <-time.After(settleMax):
			w.hands = append(w.hands, h)
			w.fail("%s does not leave", h.name)
		}
	}
	w.crew.retire(h.worker)
}

// joinAndKill kills one at some moment while another one joins.
func (w *changing) joinAndKill() {
	w.hire(false)
	w.wait(250 * time.Millisecond)
	w.strike(w.victim())
	w.settle()
}

// killJoining kills one at some moment while it joins.
func (w *changing) killJoining() {
	h := w.hire(false)
	w.wait(250 * time.Millisecond)
	w.hands = slices.DeleteFunc(w.hands, func(other *hand) bool { return other == h })
	w.strike(h)
	w.settle()
}
