// Package poll lets a goroutine that waits for other ranks poll the links to them inline for a
// while. That saves waking the goroutines of the links and then the waiting one.
package poll

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/affinity"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/spin"
)

const (
	// linksMax is the largest number of links that are polled. A round over more links
	// takes longer than waking a goroutine.
	linksMax = 8
	// busyPolls is the number of polls before the processor is yielded, and before
	// the time is taken, where polls are cheap.
	busyPolls = 50
	// waitMax caps the length of a wait, so that a few short waits outweigh a long
	// one.
	waitMax = 4 * spin.Time
	// trialEvery is the number of waits without polling before the next trial.
	trialEvery = 16
	// needAfter is how long a wait for a few peers with pending links lasts before these links get
	// connections, and needAllAfter a wait for any of many peers. Usually a peer that sends
	// something makes the connection sooner.
	needAfter    = 50 * time.Millisecond
	needAllAfter = 20 * needAfter
)

// A pace learns from the waits of a communicator whether polling pays. The zero pace polls.
//
// A wait is longer without polling, because a long payload then passes through several
// goroutines. So polling is tried occasionally, and a successful trial lowers the mean enough
// for another one.
type pace struct {
	mean   atomic.Int64
	asleep atomic.Uint32 // waits without polling
}

// learn records a wait. An update may get lost when two waits end at once.
func (p *pace) learn(wait time.Duration) {
	mean := p.mean.Load()
	p.mean.Store(mean + (int64(min(wait, waitMax))-mean)/4)
}

// succeeded records that a wait has ended during polling.
func (p *pace) succeeded() {
	mean := p.mean.Load()
	if less := min(mean*3/4, int64(spin.Time)); less < mean {
		p.mean.Store(less)
	}
}

func (p *pace) pays() bool {
	return p.mean.Load() <= int64(spin.Time) || p.asleep.Add(1)%trialEvery == 0
}

// A Poller waits for frames of the ranks of a communicator. Once Links and Place are set, its methods
// may be called concurrently.
type Poller struct {
	// Links has the link to each rank; some may be nil.
	Links []*link.Link
	// Place keeps this rank on a separate processor; nil if that does not matter.
	Place *affinity.Place
	// Active is the number of running collectives of this node that exchange frames.
	Active *atomic.Int64

	pace    pace
	limited atomic.Int32 // calls that sleep, and whose context has a deadline
}

// Wait blocks until the end has come or ctx ends. It reports whether the end had come. For a
// while it polls the links to peers, which must be the ranks that the end depends on.
func (p *Poller) Wait(ctx context.Context, ended Ended, peers []int) bool {
	if ended.Has() {
		return true
	}
	if len(peers) > linksMax || !p.pace.pays() {
		for _, rank := range peers {
			if l := p.Links[rank]; l != nil {
				l.Unattend()
			}
		}
		return p.sleep(ctx, ended, peers)
	}
	if len(peers) == 1 { // Most waits are for one rank and need little stack.
		var room [1]link.Polling
		return p.poll(ctx, ended, peers, room[:0])
	}
	var room [linksMax]link.Polling
	return p.poll(ctx, ended, peers, room[:0])
}

// poll is Wait with polling, if a lane can be polled. pollings has capacity for all peers.
func (p *Poller) poll(ctx context.Context, ended Ended, peers []int, pollings []link.Polling) (ok bool) {
	pollings, busy := p.start(pollings, peers)
	defer func() {
		soon := ok && p.Active.Load() == 0
		for i := range pollings {
			pollings[i].Stop(soon)
		}
	}()
	if busy && p.spin(ctx, ended, pollings) {
		return true
	}
	for i := range pollings {
		pollings[i].Pause()
	}
	return p.sleep(ctx, ended, peers)
}

// start begins to poll the link of each peer, and reports whether a lane can be polled.
func (p *Poller) start(pollings []link.Polling, peers []int) (v []link.Polling, busy bool) {
	for _, rank := range peers {
		if l := p.Links[rank]; l != nil {
			pollings = pollings[:len(pollings)+1]
			v := &pollings[len(pollings)-1]
			busy = l.StartPolling(v) || busy
		}
	}
	return pollings, busy
}

// spin handles arriving frames and writes granted payloads until polling takes too long. It reports
// whether the end has come.
func (p *Poller) spin(ctx context.Context, ended Ended, pollings []link.Polling) bool {
	p.Place.Judge()
	var turns spin.Turns
	var start time.Time
	first := busyPolls
	for i := 0; ; i++ {
		moved := false
		for k := range pollings {
			moved = pollings[k].Poll() || moved
		}
		if ended.Has() {
			p.pace.succeeded()
			return true
		}
		for k := range pollings {
			if i == 0 && !pollings[k].Cheap() {
				first = 0
			}
		}
		switch {
		case i < first:
			continue
		case i == first:
			start = time.Now()
			p.Place.Settle()
		case moved:
			start = time.Now()
			if ctx.Err() != nil {
				return false
			}
		case i%4 == 3:
			if time.Since(start) > spin.Time || ctx.Err() != nil {
				return false
			}
		}
		turns.Yield()
	}
}

// sleep is Wait without polling.
func (p *Poller) sleep(ctx context.Context, ended Ended, peers []int) bool {
	start := time.Now()
	defer func() { p.pace.learn(time.Since(start)) }()
	h := p.Hold(ctx, peers)
	defer p.Release(peers, h)
	return ended.Await(ctx)
}

// A Held is a call that waits; see [Poller.Hold].
type Held struct {
	pending *time.Timer // nil without pending links
	limited bool        // counted in Poller.limited
}

// Limited reports whether a call sleeps whose context has a deadline.
func (p *Poller) Limited() bool { return p.limited.Load() > 0 }

// Hold says that a call with ctx waits for peers until Release is called with the result. Meanwhile their links keep their connections. Links that are still
// pending after a while get a connection: a peer may have nothing to send, and only its link shows that it has gone or has
// closed the communicator.
func (p *Poller) Hold(ctx context.Context, peers []int) (h Held) {
	if _, h.limited = ctx.Deadline(); h.limited {
		p.limited.Add(1)
	}
	p.wait(peers, 1)
	if !p.isPending(peers) {
		return h
	}
	after := needAfter
	if len(peers) > linksMax {
		after = needAllAfter
	}
	h.pending = time.AfterFunc(after, func() { p.need(peers) })
	return h
}

// Release ends a Hold.
func (p *Poller) Release(peers []int, h Held) {
	if h.pending != nil {
		h.pending.Stop()
	}
	if h.limited {
		p.limited.Add(-1)
	}
	p.wait(peers, -1)
}

// wait counts this goroutine as one that waits for peers, so that their links keep their connections.
func (p *Poller) wait(peers []int, n int) {
	for _, rank := range peers {
		if l := p.Links[rank]; l != nil {
			l.Wait(n)
		}
	}
}

// isPending reports whether the link to one of the peers is pending.
func (p *Poller) isPending(peers []int) bool {
	for _, rank := range peers {
		if l := p.Links[rank]; l != nil && l.IsPending() {
			return true
		}
	}
	return false
}

// need lets pending links to peers get connections.
func (p *Poller) need(peers []int) {
	for _, rank := range peers {
		if l := p.Links[rank]; l != nil {
			l.Need(link.Waiting)
		}
	}
}
