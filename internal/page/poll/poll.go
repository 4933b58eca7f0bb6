// Package poll asks a seed for the state of its cluster, as long as somebody looks at it.
package poll

import (
	"context"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/page/model"
	"github.com/nexar-go/nexar/trace"
)

const (
	// Pauses between polls are as long as the last poll, so that the seed and its nodes have rest, within these bounds.
	pauseMin = 300 * time.Millisecond
	pauseMax = 5 * time.Second
	// askMax bounds a poll. A seed that is reached answers within less.
	askMax = 10 * time.Second
)

// A Poller polls while at least one viewer has entered. All viewers share its polls. Its model stays when the last one leaves.
type Poller struct {
	// Ask asks the seed.
	Ask func(context.Context) (trace.Cluster, error)
	// Show takes each view. Calls do not overlap, and none begins after Leave of the last viewer has returned.
	Show func(model.View)

	mu      sync.Mutex // held by Enter and Leave
	viewers int
	fresh   chan struct{}
	stop    func() // ends the goroutine that polls, and waits for its end
	model   model.Model
}

// Enter adds a viewer. fresh is closed when Show has been called since the first of the present viewers has entered: before, the last view may be old.
func (p *Poller) Enter() (fresh <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.viewers++; p.viewers == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		fresh := make(chan struct{})
		p.fresh = fresh
		var polling sync.WaitGroup
		polling.Go(func() { p.poll(ctx, sync.OnceFunc(func() { close(fresh) })) })
		p.stop = func() { cancel(); polling.Wait() }
	}
	return p.fresh
}

// Leave removes a viewer.
func (p *Poller) Leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.viewers--; p.viewers == 0 {
		p.stop()
	}
}

func (p *Poller) poll(ctx context.Context, shown func()) {
	for {
		began := time.Now()
		asking, cancel := context.WithTimeout(ctx, askMax)
		c, err := p.Ask(asking)
		cancel()
		if ctx.Err() != nil {
			return
		}
		now := time.Now()
		if err != nil {
			p.Show(p.model.Fail(err.Error(), now))
		} else {
			p.Show(p.model.Add(c, now))
		}
		shown()
		select {
		case <-time.After(min(max(now.Sub(began), pauseMin), pauseMax)):
		case <-ctx.Done():
			return
		}
	}
}
