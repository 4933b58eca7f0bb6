//go:build unix

package cluster

import (
	"os"
	"slices"
	"syscall"
	"time"
)

// A changeKind is a kind of change, with its relative frequency and the world sizes that
// permit it.
type changeKind struct {
	name   string
	weight int
	fits   func(n int) bool
	apply  func(w *changingWorld)
}

func changeKinds() []changeKind {
	fewer := func(by int) func(n int) bool { return func(n int) bool { return n-by >= changingMin } }
	more := func(by int) func(n int) bool { return func(n int) bool { return n+by <= changingMax } }
	always := func(int) bool { return true }
	return []changeKind{
		{"kill", 4, fewer(1), func(w *changingWorld) { w.kill(1) }},
		{"kill two", 2, fewer(2), func(w *changingWorld) { w.kill(2) }},
		{"stop for a while", 3, always, (*changingWorld).pause},
		{"join", 4, more(1), func(w *changingWorld) { w.join() }},
		{"two join", 2, more(2), func(w *changingWorld) { w.start(false); w.start(false); w.settle() }},
		{"leave", 2, fewer(1), func(w *changingWorld) { w.leave(false); w.settle() }},
		{"SIGTERM", 2, fewer(1), func(w *changingWorld) { w.leave(true); w.settle() }},
		{"spare", 2, more(1), func(w *changingWorld) { w.start(true); w.settle() }},
		{"join and kill", 3, more(1), (*changingWorld).joinAndKill},
		{"kill the joining process", 2, more(1), (*changingWorld).killJoining},
		{"stop while one joins", 2, more(1), func(w *changingWorld) { w.start(false); w.pause() }},
		{"leave and kill", 2, fewer(2), func(w *changingWorld) { w.leave(true); w.kill(1) }},
	}
}

// change makes a random change.
func (w *changingWorld) change() {
	kinds := changeKinds()
	if w.seedGroup != nil {
		kinds = append(kinds, seedChangeKinds()...)
	}
	kinds = slices.DeleteFunc(kinds, func(k changeKind) bool { return !k.fits(len(w.processes)) })
	sum := 0
	for _, k := range kinds {
		sum += k.weight
	}
	x := w.rng.IntN(sum)
	for _, k := range kinds {
		if x -= k.weight; x < 0 {
			w.stats.kinds[k.name]++
			began := time.Now()
			w.note("%s, of %d", k.name, len(w.processes))
			k.apply(w)
			w.note("  settled after %v", time.Since(began).Round(time.Millisecond))
			return
		}
	}
}

// victim removes a random unprotected process from the list of live processes and returns it.
func (w *changingWorld) victim() *process {
	for {
		i := w.rng.IntN(len(w.processes))
		if p := w.processes[i]; p != w.protected {
			w.processes = slices.Delete(w.processes, i, i+1)
			return p
		}
	}
}

// killOne kills a process and returns the time at which it did.
func (w *changingWorld) killOne(p *process) time.Time {
	w.note("  kill %s, rank %d of %d", p.name, p.last().Rank, p.last().Size)
	at := p.kill(os.Kill)
	w.workers.stop(p.worker)
	return at
}

// kill kills n processes at once.
func (w *changingWorld) kill(n int) {
	w.sleepUpTo(30 * time.Millisecond)
	var victims []*process
	waited := 0
	for range n {
		p := w.victim()
		if p.last().Number == 0 {
			waited++
		}
		victims = append(victims, p)
	}
	before := w.newestEpoch()
	var at time.Time
	for _, p := range victims {
		w.note("  kill %s, rank %d of %d", p.name, p.last().Rank, p.last().Size)
		at = p.kill(os.Kill)
	}
	for _, p := range victims {
		w.workers.stop(p.worker)
	}
	w.settle()
	if waited == 0 && w.newestEpoch() > before {
		last := time.Duration(0)
		for _, p := range w.processes {
			if i := slices.IndexFunc(p.epochs, func(e epoch) bool { return e.At.After(at) }); i >= 0 {
				last = max(last, p.epochs[i].At.Sub(at))
			}
		}
		w.stats.kills = append(w.stats.kills, last)
	}
}

// newestEpoch returns the newest epoch of any process.
func (w *changingWorld) newestEpoch() (number uint64) {
	for _, p := range w.processes {
		number = max(number, p.last().Number)
	}
	return number
}

// pause stops a process for less than the heartbeat timeout.
func (w *changingWorld) pause() {
	p := w.processes[w.rng.IntN(len(w.processes))]
	for range 1 + w.rng.IntN(2) {
		long := 10*time.Millisecond + time.Duration(w.rng.Int64N(int64(290*time.Millisecond)))
		w.note("  stop %s for %v", p.name, long)
		w.signal(p, syscall.SIGSTOP)
		time.Sleep(long)
		w.signal(p, syscall.SIGCONT)
		w.sleepUpTo(20 * time.Millisecond)
	}
	w.settle()
}

func (w *changingWorld) signal(p *process, sig os.Signal) {
	if err := p.cmd.Process.Signal(sig); err != nil {
		w.fail("%v to %s: %v", sig, p.name, err)
	}
}

// sleepUpTo sleeps for a random time below limit.
func (w *changingWorld) sleepUpTo(limit time.Duration) {
	time.Sleep(time.Duration(w.rng.Int64N(int64(limit))))
}

// join has a process join and measures the time until all have made a step in its first epoch:
// since the reconfiguration that ended the previous epoch, and since the start of the process.
func (w *changingWorld) join() {
	p := w.start(false)
	before := w.newestEpoch()
	w.settle()
	quiesced, first := time.Time{}, time.Time{}
	for _, other := range w.processes {
		for _, e := range other.epochs {
			switch {
			case e.Number == before && !e.Reconfigured.IsZero() && (quiesced.IsZero() || e.Reconfigured.Before(quiesced)):
				quiesced = e.Reconfigured
			case e.Number == p.last().Number && e.First.After(first):
				first = e.First
			}
		}
	}
	w.stats.starts = append(w.stats.starts, first.Sub(p.started))
	if !quiesced.IsZero() {
		w.stats.joins = append(w.stats.joins, first.Sub(quiesced))
	}
}

// leave has a process of the world leave at the next reconfiguration.
func (w *changingWorld) leave(term bool) {
	p := w.victim()
	for p.last().Number == 0 { // a waiting spare is not in the world and cannot call Leave
		w.processes = append(w.processes, p)
		p = w.victim()
	}
	w.note("  %s leaves, rank %d of %d", p.name, p.last().Rank, p.last().Size)
	var asked <-chan result
	if term {
		w.signal(p, syscall.SIGTERM)
	} else {
		asked = p.start(command{Do: "leave"})
	}
	for _, c := range []<-chan result{p.running, asked} {
		if c == nil {
			continue
		}
		select {
		case r := <-c:
			if r.Failure != nil || c == p.running && r.Text != "left" {
				w.fail("%s was to leave: %v", p.name, r.Failure)
			}
		case <-time.After(settleMax):
			w.processes = append(w.processes, p)
			w.fail("%s does not leave", p.name)
		}
	}
	w.workers.stop(p.worker)
}

// joinAndKill kills a process at a random moment while another one joins.
func (w *changingWorld) joinAndKill() {
	w.start(false)
	w.sleepUpTo(250 * time.Millisecond)
	w.killOne(w.victim())
	w.settle()
}

// killJoining kills a process at a random moment while it joins.
func (w *changingWorld) killJoining() {
	p := w.start(false)
	w.sleepUpTo(250 * time.Millisecond)
	w.processes = slices.DeleteFunc(w.processes, func(other *process) bool { return other == p })
	w.killOne(p)
	w.settle()
}
