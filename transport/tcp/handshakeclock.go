package tcp

import (
	"slices"
	"sync"
	"time"
)

// A handshakeClock knows the durations of the last handshakes.
type handshakeClock struct {
	mu     sync.Mutex
	recent [8]handshakeTime
	n      int // of all handshakes
}

// A handshakeTime is the duration of a handshake, and when it ended.
type handshakeTime struct {
	took  time.Duration
	ended time.Time
}

// handshakesLast is the time after which a handshake says nothing about the load of the hosts any more.
const handshakesLast = 30 * time.Second

func (k *handshakeClock) note(began, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.recent[k.n%len(k.recent)] = handshakeTime{now.Sub(began), now}
	k.n++
}

// usual returns the lower quartile of the last handshakes, which a few with lost packets do not change; 0 without any.
func (k *handshakeClock) usual(now time.Time) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	var last []time.Duration
	for _, h := range k.recent[:min(k.n, len(k.recent))] {
		if now.Sub(h.ended) < handshakesLast {
			last = append(last, h.took)
		}
	}
	if len(last) == 0 {
		return 0
	}
	slices.Sort(last)
	return last[len(last)/4]
}

// stalledAfter is the number of usual durations of a handshake after which a socket counts as stalled.
const stalledAfter = 8

// delays returns the times between the sockets that a race dials within timeout. The first is a tenth of timeout. On a host
// that is so busy that handshakes take long without loss, it is up to four tenths.
func (k *handshakeClock) delays(now time.Time, timeout time.Duration) (list []time.Duration) {
	d := min(max(timeout/10, stalledAfter*k.usual(now)), timeout*4/10)
	for sum := d; sum < timeout*8/10; sum += d {
		list = append(list, d)
		d *= 2
	}
	return list
}
