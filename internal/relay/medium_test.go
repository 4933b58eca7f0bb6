package relay

import (
	"slices"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/transport"
)

// A medium is what the links of a network are like. Without any function they are pipes in memory.
type medium struct {
	latency   func(from, to int) time.Duration
	bandwidth func(from, to int) int // bytes a second, 0: no limit
	// pass returns the frames that arrive instead of one that a node writes to a neighbor. It is called concurrently.
	pass func(from, to int, f forward.Frame) []forward.Frame
}

// A wire is the pipe from a node to a neighbor.
type wire struct {
	transport.Sender
	medium   medium
	from, to int

	mu     sync.Mutex
	news   sync.Cond
	queue  []arrival
	last   time.Time
	closed bool
}

// An arrival is a number of frames that a neighbor reads at a time.
type arrival struct {
	at     time.Time
	frames []byte
}

// wire wraps the pipe from node i to node j.
func (n *network) wire(i, j int, s transport.Sender) transport.Sender {
	if n.medium.latency == nil && n.medium.bandwidth == nil && n.medium.pass == nil {
		return s
	}
	w := &wire{Sender: s, medium: n.medium, from: i, to: j}
	w.news.L = &w.mu
	n.mu.Lock()
	n.wires[[2]int{i, j}] = w
	n.mu.Unlock()
	n.wiring.Go(w.run)
	return w
}

// Write implements [transport.Sender]. A node writes whole frames.
func (w *wire) Write(b []byte) (int, error) {
	if w.medium.bandwidth != nil {
		if rate := w.medium.bandwidth(w.from, w.to); rate > 0 {
			time.Sleep(time.Duration(len(b)) * time.Second / time.Duration(rate))
		}
	}
	var passed []byte
	for rest := b; len(rest) > 0; {
		f, size, err := forward.ParseHeader(rest[:forward.HeaderSize])
		if err != nil {
			panic(err)
		}
		f.Payload = slices.Clone(rest[forward.HeaderSize:][:size])
		rest = rest[forward.HeaderSize+size:]
		frames := []forward.Frame{f}
		if w.medium.pass != nil {
			frames = w.medium.pass(w.from, w.to, f)
		}
		for _, f := range frames {
			passed = append(f.AppendHeader(passed), f.Payload...)
		}
	}
	w.add(passed)
	return len(b), nil
}

// add lets frames arrive after the latency.
func (w *wire) add(frames []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := time.Now()
	if w.medium.latency != nil {
		at = at.Add(w.medium.latency(w.from, w.to))
	}
	if at.Before(w.last) {
		at = w.last
	}
	w.last = at
	if len(frames) > 0 && !w.closed {
		w.queue = append(w.queue, arrival{at, frames})
		w.news.Signal()
	}
}

// run carries out the arrivals until the pipe is closed.
func (w *wire) run() {
	defer w.Sender.Close()
	for {
		w.mu.Lock()
		for len(w.queue) == 0 && !w.closed {
			w.news.Wait()
		}
		if len(w.queue) == 0 {
			w.mu.Unlock()
			return
		}
		next := w.queue[0]
		w.queue[0] = arrival{}
		w.queue = w.queue[1:]
		w.mu.Unlock()
		time.Sleep(time.Until(next.at))
		if _, err := w.Sender.Write(next.frames); err != nil {
			return
		}
	}
}

// Close implements [transport.Sender]. What was written before arrives.
func (w *wire) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.news.Signal()
	return nil
}

// inject lets node i send a forged frame to node j, after a time.
func (n *network) inject(i, j int, f forward.Frame, after time.Duration) {
	n.mu.Lock()
	w := n.wires[[2]int{i, j}]
	n.mu.Unlock()
	f.Hops = max(f.Hops, 1)
	b := append(f.AppendHeader(nil), f.Payload...)
	if after == 0 {
		w.add(b)
		return
	}
	time.AfterFunc(after, func() { w.add(b) })
}
