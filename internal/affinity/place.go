// Package affinity spreads ranks of one machine over its processors. Those on one
// processor cannot wait for each other without giving it away, which takes longer
// than most of what they wait for.
//
// Who waits for other ranks calls Judge every time, and Settle when the wait takes
// more than a few looks. Both may be called from any goroutine, and do nothing on a
// nil Place.
package affinity

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/spin"
)

const (
	// lookEvery is in how many waits a rank looks once where it runs.
	lookEvery = 4
	// After a hop a rank stays for hopPause. If it is on a crowded processor
	// again within hopSoon after that, somebody moves it back: then the pause
	// doubles, up to hopPauseMax, and otherwise it is halved.
	hopPause    = time.Millisecond
	hopPauseMax = time.Second
	hopSoon     = 10 * time.Millisecond
	// For so long a hop is on trial. If the rank had to wait for another program
	// for a quarter of that, it goes back where it was, and stays there for
	// regretPause, and for twice as long every time this happens again.
	trialTime      = 20 * time.Millisecond
	regretPause    = time.Second
	regretPauseMax = time.Minute
)

// Config says who shares processors.
type Config struct {
	// Ranks is how many there are on Processors, this one among them.
	Ranks, Processors int
	// Show, if not nil, shows others on which processor this rank runs; -1 is on none.
	Show func(cpu int)
	// Others is to how many of them this rank gives way, and Where says on which
	// processor each of those runs; -1 is not known.
	Others int
	Where  func(on []int)
	// Sightings is how often in a row this rank has to find its processor crowded
	// before it leaves; 0 counts as 1.
	Sightings int
}

// A Place is on which processor a rank runs. A rank that finds more on its
// processor than its share of them goes to another.
type Place struct {
	cfg  Config
	most int // ranks on a processor, if all have as many

	mu     sync.Mutex // of all that follows; who cannot have it at once need not look
	left   bool
	waits  int
	seen   int   // how often in a row it was crowded here
	on     []int // where the others are
	pause  time.Duration
	last   time.Time     // of a hop
	regret time.Duration // the next pause after a hop that was no good

	onTrial atomic.Bool // the last hop is,
	from    int         // which was from there
	delay   time.Duration
	thread  int

	hop    func(others []int) (to int, hopped bool)
	back   func(to int)
	delays func() (d time.Duration, thread int)
}

// New makes the Place of a rank.
func New(cfg Config) *Place {
	return &Place{
		cfg: cfg, most: (cfg.Ranks + cfg.Processors - 1) / cfg.Processors, on: make([]int, cfg.Others),
		pause: hopPause, regret: regretPause, hop: spin.Hop, back: spin.Return, delays: spin.Delay,
	}
}

// Settle sees to it that this rank shares its processor with no more others than
// need be.
func (p *Place) Settle() {
	if p == nil || !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	if p.waits++; p.waits%lookEvery == 0 && !p.left {
		p.see(spin.Processor())
	}
}

// see takes note that the rank runs on a processor.
func (p *Place) see(cpu int) {
	p.show(cpu)
	p.cfg.Where(p.on)
	here := 1
	for _, other := range p.on {
		if other == cpu {
			here++
		}
	}
	if here <= p.most || cpu < 0 {
		p.seen = 0
		return
	}
	if p.seen++; p.seen >= p.cfg.Sightings {
		p.leave(cpu, time.Now())
	}
}

// leave goes from a processor to another, unless that was tried just now.
func (p *Place) leave(from int, now time.Time) {
	since := now.Sub(p.last)
	if since < p.pause {
		return
	}
	if since < p.pause+hopSoon {
		p.pause = min(2*p.pause, hopPauseMax)
	} else {
		p.pause = max(min(p.pause, hopPauseMax)/2, hopPause)
	}
	p.last, p.seen = now, 0
	to, hopped := p.hop(p.on)
	p.show(to)
	// Where ranks share processors each waits for others in any case.
	if hopped && p.most == 1 {
		p.from = from
		p.delay, p.thread = p.delays()
		p.onTrial.Store(p.thread != 0)
	}
}

// Judge looks whether it was a good idea to go to another processor: another
// program may run there, that keeps it for longer than it takes ranks to give
// way to each other.
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
	case thread != p.thread: // It has lost its place anyway.
	case delay-p.delay > since/4:
		p.back(p.from)
		p.show(p.from)
		p.last, p.pause = now, p.regret
		p.regret = min(2*p.regret, regretPauseMax)
	default:
		p.regret = max(p.regret/2, regretPause)
	}
}

// Away says that the rank sleeps, on no processor.
func (p *Place) Away() {
	if p != nil {
		p.show(-1)
	}
}

// Leave says that this rank is no longer one of them. When it has returned neither Show nor
// Where is called any more, but by Away.
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
