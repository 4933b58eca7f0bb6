package board

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/yield"
)

const (
	// placeEvery is in how many waits a rank looks once where it runs.
	placeEvery = 4
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

// A place is on which processor a rank runs. All ranks show that, because those
// of one processor cannot wait for each other without giving it away, which
// takes longer than most of what they wait for. A rank that finds more on its
// processor than its share of them goes to another.
type place struct {
	mu     sync.Mutex       // of all that follows; who cannot have it at once need not look
	shown  *atomic.Uint32   // the processor plus 1; 0 while the rank sleeps
	others []*atomic.Uint32 // of the other ranks
	most   int              // ranks on a processor, if all have as many
	waits  int
	on     []int // where the others are, for hop
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

// newPlace makes the place of the rank that shows its own at so many ranks'.
func newPlace(shown []*atomic.Uint32, rank, processors int) *place {
	p := &place{
		shown: shown[rank], most: (len(shown) + processors - 1) / processors, pause: hopPause, regret: regretPause,
		hop: yield.Hop, back: yield.Return, delays: yield.Delay,
	}
	for other, at := range shown {
		if other != rank {
			p.others = append(p.others, at)
		}
	}
	p.on = make([]int, len(p.others))
	return p
}

// Settle sees to it that this rank shares its processor with no more others than
// need be. Who waits for ranks of the board by other means than Run calls it when
// that takes more than a few looks, from any goroutine.
func (b *Board) Settle() {
	if b.place != nil {
		b.place.look()
	}
}

// look shows where the rank runs, and goes elsewhere if that is crowded.
func (p *place) look() {
	if !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	if p.waits++; p.waits%placeEvery == 0 {
		p.see(yield.Processor())
	}
}

// see takes note that the rank runs on a processor.
func (p *place) see(cpu int) {
	p.show(cpu)
	here := 1
	for i, other := range p.others {
		p.on[i] = int(other.Load()) - 1
		if p.on[i] == cpu {
			here++
		}
	}
	if here > p.most && cpu >= 0 {
		p.leave(cpu, time.Now())
	}
}

// leave goes from a processor to another, unless that was tried just now.
func (p *place) leave(from int, now time.Time) {
	since := now.Sub(p.last)
	if since < p.pause {
		return
	}
	if since < p.pause+hopSoon {
		p.pause = min(2*p.pause, hopPauseMax)
	} else {
		p.pause = max(min(p.pause, hopPauseMax)/2, hopPause)
	}
	p.last = now
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
// way to each other. Who waits for other ranks calls it every time.
func (b *Board) Judge() {
	if b.place != nil && b.place.onTrial.Load() {
		b.place.judge(time.Now())
	}
}

func (p *place) judge(now time.Time) {
	if !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	since := now.Sub(p.last)
	if since < trialTime || !p.onTrial.Load() {
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

// show shows where the rank runs; -1 is nowhere.
func (p *place) show(cpu int) {
	if shown := uint32(cpu + 1); p.shown.Load() != shown {
		p.shown.Store(shown)
	}
}
