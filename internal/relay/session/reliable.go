package session

import (
	"encoding/binary"
	"time"

	"github.com/nexar-go/nexar/internal/relay/forward"
)

const (
	// windowFrames is the maximum number of frames after the oldest one that is not acknowledged.
	windowFrames = 256
	// windowBytes is the maximum number of bytes in flight: those after the oldest frame that is not
	// acknowledged. The peer holds at most these while a frame before them is missing.
	windowBytes = 512 << 10

	// lossThreshold is the number of later frames that must be acknowledged before a frame counts
	// as lost without a timeout (RFC 9002, section 6.1.1).
	lossThreshold = 3
	// timeoutFrames is the number of frames that are sent again after a timeout. Their
	// acknowledgements show which others are missing.
	timeoutFrames = 16
)

// An inflight is a frame that was sent and not acknowledged.
type inflight struct {
	frame    forward.Frame
	sent     time.Time
	order    uint64 // of its last transmission, among all transmissions
	received bool
	again    uint8 // number of retransmissions, at most 255
}

// An outbound sends frames until they are acknowledged.
type outbound struct {
	first   uint64      // sequence number of the oldest frame in frames
	frames  []*inflight // in order, until all before are received
	bytes   int         // of frames
	order   uint64
	highest uint64 // the latest transmission that was acknowledged
}

func (o *outbound) next() uint64 { return o.first + uint64(len(o.frames)) }

// hasRoom reports whether another frame may be sent.
func (o *outbound) hasRoom() bool {
	return len(o.frames) < windowFrames && o.bytes <= windowBytes-forward.PayloadMax
}

// add records the transmission of the next frame.
func (o *outbound) add(now time.Time, f forward.Frame) {
	o.order++
	o.frames = append(o.frames, &inflight{frame: f, sent: now, order: o.order})
	o.bytes += len(f.Payload)
}

// resend records another transmission of a frame and returns the frame.
func (o *outbound) resend(now time.Time, f *inflight, attempt uint8) forward.Frame {
	o.order++
	f.order, f.sent = o.order, now
	if f.again < 255 {
		f.again++
	}
	frame := f.frame
	frame.Attempt = attempt
	return frame
}

// acknowledge handles an acknowledgement. It returns whether any frame was acknowledged, and the
// round trip time of one that was sent once, or 0.
func (o *outbound) acknowledge(now time.Time, a acks) (news bool, rtt time.Duration) {
	if a.next > o.next() {
		return false, 0 // It names frames that were never sent.
	}
	for i, f := range o.frames {
		if f.received || !a.has(o.first+uint64(i)) {
			continue
		}
		f.received, news = true, true
		o.highest = max(o.highest, f.order)
		if f.again == 0 {
			rtt = now.Sub(f.sent)
		}
	}
	for len(o.frames) > 0 && o.frames[0].received {
		o.bytes -= len(o.frames[0].frame.Payload)
		o.frames[0] = nil
		o.frames = o.frames[1:]
		o.first++
	}
	return news, rtt
}

// lost returns the frames that count as lost because later ones have arrived.
func (o *outbound) lost() (frames []*inflight) {
	for _, f := range o.frames {
		if !f.received && f.order+lossThreshold <= o.highest {
			frames = append(frames, f)
		}
	}
	return frames
}

// oldest returns at most n frames that are not acknowledged.
func (o *outbound) oldest(n int) (frames []*inflight) {
	for _, f := range o.frames {
		if !f.received && len(frames) < n {
			frames = append(frames, f)
		}
	}
	return frames
}

// acks say which frames have arrived: all before next, and those of the bitmap from next on.
type acks struct {
	next   uint64
	bitmap [windowFrames / 8]byte
}

const acksSize = 8 + windowFrames/8

func (a *acks) has(seq uint64) bool {
	if seq < a.next {
		return true
	}
	i := seq - a.next
	return i < windowFrames && a.bitmap[i/8]>>(i%8)&1 == 1
}

func (a *acks) append(b []byte) []byte {
	return append(binary.BigEndian.AppendUint64(b, a.next), a.bitmap[:]...)
}

func parseAcks(b []byte) (a acks, ok bool) {
	if len(b) != acksSize {
		return a, false
	}
	a.next = binary.BigEndian.Uint64(b)
	copy(a.bitmap[:], b[8:])
	return a, true
}

// An inbound puts frames in order.
type inbound struct {
	next uint64
	held map[uint64][]byte // after a missing frame
	size int               // bytes held
}

// wants returns Accepted if a frame is new, or the reason to drop it.
func (i *inbound) wants(f *forward.Frame) Verdict {
	switch _, held := i.held[f.Seq]; {
	case f.Seq < i.next || held:
		return Repeated
	case f.Seq >= i.next+windowFrames || i.size+len(f.Payload) > windowBytes:
		return Unexpected
	}
	return Accepted
}

// add adds a frame that wants has accepted.
func (i *inbound) add(seq uint64, payload []byte) {
	if i.held == nil {
		i.held = make(map[uint64][]byte)
	}
	i.held[seq] = payload
	i.size += len(payload)
}

// take returns the payload of the next frame, if it has arrived.
func (i *inbound) take() (payload []byte, ok bool) {
	payload, ok = i.held[i.next]
	if ok {
		delete(i.held, i.next)
		i.size -= len(payload)
		i.next++
	}
	return payload, ok
}

// acks returns the acknowledgement of the frames that have arrived.
func (i *inbound) acks() acks {
	a := acks{next: i.next}
	for seq := range i.held {
		at := seq - i.next
		a.bitmap[at/8] |= 1 << (at % 8)
	}
	return a
}

// A timer estimates the round trip time and computes the timeout of retransmissions (RFC 6298).
type timer struct {
	smoothed, variation time.Duration
	backoff             uint
}

const (
	timeoutFirst = 500 * time.Millisecond
	timeoutMin   = 200 * time.Millisecond
	timeoutMax   = 8 * timeoutFirst
)

func (t *timer) sample(rtt time.Duration) {
	if t.smoothed == 0 {
		t.smoothed, t.variation = rtt, rtt/2
		return
	}
	t.variation = (3*t.variation + (t.smoothed - rtt).Abs()) / 4
	t.smoothed = (7*t.smoothed + rtt) / 8
}

func (t *timer) timeout() time.Duration {
	d := timeoutFirst
	if t.smoothed > 0 {
		d = max(t.smoothed+4*t.variation, timeoutMin)
	}
	return min(d<<min(t.backoff, 6), timeoutMax)
}

// soon returns the time after which an acknowledgement is overdue on a path without loss.
func (t *timer) soon() time.Duration { return max(2*t.smoothed, 4*ackDelay) }
