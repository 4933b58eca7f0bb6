package handshake

import (
	"sync"
	"time"
)

// An Outbox queues encoded messages for a Conn. Post never blocks, so that a slow peer delays
// only its own messages. The protocol bounds the length of the queue.
type Outbox struct {
	wake chan struct{} // has a token when the queue has changed

	mu     sync.Mutex
	queue  [][]byte
	closed bool // nothing comes after queue
}

// NewOutbox returns an empty Outbox.
func NewOutbox() *Outbox { return &Outbox{wake: make(chan struct{}, 1)} }

// Post queues a frame.
func (o *Outbox) Post(frame []byte) { o.put(frame, false) }

// Close queues a last frame unless that is nil. The Conn ends when it is written.
func (o *Outbox) Close(frame []byte) { o.put(frame, true) }

func (o *Outbox) put(frame []byte, last bool) {
	o.mu.Lock()
	if !o.closed {
		if frame != nil {
			o.queue = append(o.queue, frame)
		}
		o.closed = last
	}
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Len returns the number of queued frames.
func (o *Outbox) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue)
}

func (o *Outbox) take() (frames [][]byte, last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	frames, o.queue = o.queue, nil
	return frames, o.closed
}

// Tick is the unit of the times of ticks. Ticks of several connections, the turns of a seed, and the heartbeats of nodes fall
// together so that an idle process wakes up once for them.
const Tick = time.Second

// untilTick returns the time until the next tick: interval, or up to Tick less such that the tick is at a multiple
// of Tick of the clock.
func untilTick(interval time.Duration) time.Duration {
	if interval < Tick {
		return interval
	}
	now := time.Now()
	d := now.Add(interval).Truncate(Tick).Sub(now)
	if d < interval/4 { // A timer may fire before the multiple when the clock is slowed down.
		d += Tick
	}
	return d
}

// Run writes posted frames until the Outbox is closed or the Conn ends, and calls tick,
// which may post, about every interval (untilTick). Then it closes the Conn.
func (c *Conn) Run(o *Outbox, lim Limits, interval time.Duration, tick func()) {
	defer c.Conn.Close()
	timer := time.NewTimer(untilTick(interval))
	defer timer.Stop()
	for {
		frames, last := o.take()
		for _, f := range frames {
			if err := c.gate.pass(c.Done(), len(f), func() error { return c.writeFrame(time.Now().Add(lim.Write), f) }); err != nil {
				return
			}
		}
		if last {
			c.Finish(lim.Linger)
			return
		}
		select {
		case <-o.wake:
		case <-timer.C:
			timer.Reset(untilTick(interval))
			tick()
		case <-c.Done():
			return
		}
	}
}
