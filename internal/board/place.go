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
	hop    func(others []int) (to int, hopped bool)
	pause  time.Duration
	last   time.Time // of a hop
}

// newPlace makes the place of the rank that shows its own at so many ranks'.
func newPlace(shown []*atomic.Uint32, rank, processors int) *place {
	p := &place{shown: shown[rank], most: (len(shown) + processors - 1) / processors, pause: hopPause, hop: yield.Hop}
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
		p.leave(time.Now())
	}
}

// leave goes to another processor, unless that was tried just now.
func (p *place) leave(now time.Time) {
	since := now.Sub(p.last)
	if since < p.pause {
		return
	}
	if since < p.pause+hopSoon {
		p.pause = min(2*p.pause, hopPauseMax)
	} else {
		p.pause = max(p.pause/2, hopPause)
	}
	p.last = now
	to, _ := p.hop(p.on)
	p.show(to)
}

// show shows where the rank runs; -1 is nowhere.
func (p *place) show(cpu int) {
	if shown := uint32(cpu + 1); p.shown.Load() != shown {
		p.shown.Store(shown)
	}
}
