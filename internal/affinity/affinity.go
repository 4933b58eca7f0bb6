// Package affinity spreads the ranks of a host over its processors. Two ranks on one processor
// cannot wait for each other without yielding it, which takes longer than most waits.
//
// A rank that waits for others calls Judge before each wait, and Settle when the wait takes more
// than a few reads. Both may be called by any goroutine, and do nothing on a nil [Place].
package affinity

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/spin"
)

const (
	// One wait in checkEvery checks the processor of the rank.
	checkEvery = 4
	// After a hop a rank stays for hopPause. If its processor is crowded again within
	// hopSoon after that, the system has moved it back: then the pause doubles, up to
	// hopPauseMax. Otherwise it is halved.
	hopPause    = time.Millisecond
	hopPauseMax = 1000 * hopPause
	hopSoon     = 10 * hopPause
	// A hop is on trial for trialTime. If the rank had to wait for another program for a
	// quarter of that time, it returns to its old processor, and stays there for
	// returnPause, which doubles each time this happens, up to returnPauseMax. The first pause is short: the other
	// program may have been one that starts the ranks.
	trialTime      = 20 * hopPause
	returnPause    = 50 * hopPause
	returnPauseMax = 60 * hopPauseMax
)

// Config configures a Place.
type Config struct {
	Processors int // of the host
	// Show, if not nil, shows the processor of this rank to others; -1 if it sleeps.
	Show func(cpu int)
	// Others is the number of ranks that this rank avoids. Where sets the processor of each
	// of them; -1 if it is unknown or the rank sleeps. This rank moves only to make room for the first Before of them. So of two ranks
	// that meet on a processor one moves: both would meet again on the next one.
	Others, Before int
	Where          func(on []int)
	// Sightings is the number of checks in a row that must find the processor crowded before
	// the rank moves; 0 counts as 1.
	Sightings int
}

// A Place is the processor of a rank. A rank that finds too many others before it on its processor moves
// to another one.
type Place struct {
	cfg Config

	mu          sync.Mutex // guards the fields below; only tried, never waited for, by Settle and Judge
	left        bool
	waits       int
	crowded     int   // checks in a row that found the processor crowded
	on          []int // the processors of the others
	pause       time.Duration
	last        time.Time     // the last hop
	returnPause time.Duration // the pause after the next return

	onTrial atomic.Bool // the last hop
	from    int         // the processor before the hop
	delay   time.Duration
	thread  int

	hop    func(others []int) (to int, hopped bool)
	back   func(to int)
	delays func() (d time.Duration, thread int)
}

// New returns the Place of a rank.
func New(cfg Config) *Place {
	return &Place{
		cfg: cfg, on: make([]int, cfg.Others),
		pause: hopPause, returnPause: returnPause, hop: spin.Hop, back: spin.Return, delays: spin.Delay,
	}
}

// Settle moves this rank if it shares its processor with more ranks before it than necessary.
func (p *Place) Settle() {
	if p == nil || !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	if p.waits++; p.waits%checkEvery == 0 && !p.left {
		p.check(spin.Processor())
	}
}

// check checks the current processor of the rank.
func (p *Place) check(cpu int) {
	p.show(cpu)
	p.cfg.Where(p.on)
	here, awake := 1, 1
	for _, other := range p.on[:p.cfg.Before] {
		if other >= 0 {
			awake++
		}
		if other == cpu {
			here++
		}
	}
	share := (awake + p.cfg.Processors - 1) / p.cfg.Processors
	if here <= share || cpu < 0 {
		p.crowded = 0
		return
	}
	if p.crowded++; p.crowded >= p.cfg.Sightings {
		p.move(cpu, share, time.Now())
	}
}

// move moves the rank from a processor to another one, unless it has moved recently. At most share ranks need to be on a processor.
func (p *Place) move(from, share int, now time.Time) {
	since := now.Sub(p.last)
	if since < p.pause {
		return
	}
	if since < p.pause+hopSoon {
		p.pause = min(2*p.pause, hopPauseMax)
	} else {
		p.pause = max(min(p.pause, hopPauseMax)/2, hopPause)
	}
	p.last, p.crowded = now, 0
	to, hopped := p.hop(p.on)
	p.show(to)
	// Ranks that share processors wait for others in any case.
	if hopped && share == 1 {
		p.from = from
		p.delay, p.thread = p.delays()
		p.onTrial.Store(p.thread != 0)
	}
}

// Judge ends the trial of a hop. Another program may run on the new processor, and keep it for
// longer than ranks take to yield to each other; then the rank returns.
func (p *Place) Judge() {
	if p != nil && p.onTrial.Load() {
		p.judge(time.Now())
	}
}

func (p *Place) judge(now time.Time) {
	if !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	since := now.Sub(p.last)
	if since < trialTime || !p.onTrial.Load() || p.left {
		return
	}
	p.onTrial.Store(false)
	delay, thread := p.delays()
	switch {
	case thread != p.thread: // it runs in another thread, perhaps elsewhere
	case delay-p.delay > since/4:
		p.back(p.from)
		p.show(p.from)
		p.last, p.pause = now, p.returnPause
		p.returnPause = min(2*p.returnPause, returnPauseMax)
	default:
		p.returnPause = max(p.returnPause/2, returnPause)
	}
}

// Away records that the rank sleeps, on no processor.
func (p *Place) Away() {
	if p != nil {
		p.show(-1)
	}
}

// Leave stops moving this rank. After it has returned, Place calls Where no more, and Show only in
// [Place.Away].
func (p *Place) Leave() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = true
}

func (p *Place) show(cpu int) {
	if p.cfg.Show != nil {
		p.cfg.Show(cpu)
	}
}
