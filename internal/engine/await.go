package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/spin"
)

const (
	// visitsMax is at how many links whoever waits looks himself: with more of
	// them the round takes longer than to be woken does.
	visitsMax = 8
	// glances are looks without giving the processor to others, and before the
	// time is taken, where they cost nothing.
	glances = 50
	// visitMax is how long a visit lasts without anything that comes or goes. To
	// go to sleep and to be woken takes the tenth of it; but where there are more
	// ranks than processors, each of them waits until others had their turn.
	visitMax = 200 * time.Microsecond
	// waitMax is what a longer wait counts for, so that a few short ones
	// outweigh it.
	waitMax = 4 * visitMax
	// trialEvery is in how many waits without a visit one is tried all the same.
	trialEvery = 16
)

// A pace learns from how long a communicator has had to wait whether visits
// pay. Its zero value is confident.
//
// A wait in which nobody visits is longer for that very reason: a long payload then
// goes through the hands of several goroutines. So a visit is tried now and then, and
// one that is worth it restores what confidence it takes for another one.
type pace struct {
	mean   atomic.Int64
	asleep atomic.Uint32 // waits without a visit
}

// learn takes note of a wait. What gets lost when two learn at once does not
// matter.
func (p *pace) learn(wait time.Duration) {
	mean := p.mean.Load()
	p.mean.Store(mean + (int64(min(wait, waitMax))-mean)/4)
}

// worth takes note of a visit that has ended with what was waited for.
func (p *pace) worth() {
	p.mean.Store(min(p.mean.Load()*3/4, int64(visitMax)))
}

func (p *pace) pays() bool {
	return p.mean.Load() <= int64(visitMax) || p.asleep.Add(1)%trialEvery == 0
}

// awaitRank is await for what comes from one rank, or any.
func (c *Comm) awaitRank(ctx context.Context, ended <-chan struct{}, rank int) bool {
	if rank == p2p.Any {
		return c.await(ctx, ended, c.ranks)
	}
	return c.await(ctx, ended, c.ranks[rank:rank+1])
}

// await waits until ended has something. It reports false if ctx ends first.
// Peers are the ranks that this depends on: for a while the caller looks itself
// for what comes from them.
func (c *Comm) await(ctx context.Context, ended <-chan struct{}, peers []int) bool {
	select {
	case <-ended:
		return true
	default:
	}
	if len(peers) > visitsMax || !c.pace.pays() {
		for _, rank := range peers {
			if l := c.links[rank]; l != nil {
				l.Wake()
			}
		}
		return c.sleep(ctx, ended)
	}
	if len(peers) == 1 { // which most waits are for, and needs little room
		var room [1]link.Visit
		return c.stay(ctx, ended, peers, room[:0])
	}
	var room [visitsMax]link.Visit
	return c.stay(ctx, ended, peers, room[:0])
}

// stay is await by one who visits, if there is anything to look at. There is room
// for the visits.
func (c *Comm) stay(ctx context.Context, ended <-chan struct{}, peers []int, room []link.Visit) (well bool) {
	visits, busy := c.visit(room, peers)
	defer func() {
		soon := well && c.engine.active.Load() == 0
		for i := range visits {
			visits[i].End(soon)
		}
	}()
	if busy && c.look(ctx, ended, visits) {
		return true
	}
	for i := range visits {
		visits[i].Rest()
	}
	return c.sleep(ctx, ended)
}

// visit begins a visit at the links of each peer, and reports whether there is
// anything to look at.
func (c *Comm) visit(visits []link.Visit, peers []int) (v []link.Visit, busy bool) {
	for _, rank := range peers {
		if l := c.links[rank]; l != nil {
			visits = visits[:len(visits)+1]
			v := &visits[len(visits)-1]
			l.Visit(v)
			busy = busy || v.Busy()
		}
	}
	return visits, busy
}

// look handles what comes, and sends what can be sent, for as long as a visit
// lasts. It reports whether ended has something.
func (c *Comm) look(ctx context.Context, ended <-chan struct{}, visits []link.Visit) bool {
	c.place.Judge()
	var turns spin.Turns
	var start time.Time
	first := glances
	for i := range visits {
		if !visits[i].Cheap() {
			first = 0
		}
	}
	for i := 0; ; i++ {
		some := false
		for k := range visits {
			some = visits[k].Poll() || some
		}
		select {
		case <-ended:
			c.pace.worth()
			return true
		default:
		}
		switch {
		case i < first:
			continue
		case i == first:
			start = time.Now()
			c.place.Settle()
		case some:
			start = time.Now()
			if ctx.Err() != nil {
				return false
			}
		case i%4 == 3:
			if time.Since(start) > visitMax || ctx.Err() != nil {
				return false
			}
		}
		turns.Yield()
	}
}

// sleep waits until ended has something. It reports false if ctx ends first.
func (c *Comm) sleep(ctx context.Context, ended <-chan struct{}) bool {
	start := time.Now()
	defer func() { c.pace.learn(time.Since(start)) }()
	select {
	case <-ended:
		return true
	case <-ctx.Done():
		return false
	}
}
