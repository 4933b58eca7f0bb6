package simulate

import "github.com/nexar-go/nexar/internal/plan"

// near reports whether two ranks are on the same host.
func (w *world) near(a, b int32) bool {
	return int(a)/w.machine.RanksPerHost == int(b)/w.machine.RanksPerHost
}

func (w *world) cost(msg *message) *pathCost {
	if w.near(msg.from, msg.to) {
		return &w.memory
	}
	return &w.wire
}

// post makes the message of a send. A short one is sent at once; any other is offered.
func (w *world) post(at, number int32) {
	m := w.ranks[at].move(number)
	n := int32(len(w.messages))
	if last := len(w.free) - 1; last >= 0 {
		n, w.free = w.free[last], w.free[:last]
	} else {
		w.messages = append(w.messages, message{})
	}
	bytes := w.length(m.a)
	w.messages[n] = message{from: at, to: m.peer, bytes: bytes, send: number, receive: -1}
	w.result.Messages++
	w.result.Bytes += bytes
	if bytes <= int64(w.machine.Eager) {
		w.send(n)
		return
	}
	w.messages[n].offered = true
	peer := &w.ranks[m.peer]
	peer.early = append(peer.early, early{at, n})
	w.match(m.peer, at)
}

// segment is the length in bytes of the parts of a long message that are copied and sent while
// others are.
const segment = 64 << 10

// firstPart returns the part of a duration that belongs to the first segment of a message.
func firstPart(duration picos, bytes int64) picos {
	if bytes <= segment {
		return duration
	}
	return picos(float64(duration) * segment / float64(bytes))
}

// send lets the sender copy a message.
func (w *world) send(n int32) {
	msg := &w.messages[n]
	c := w.cost(msg)
	begin, end := w.compute(msg.from, w.now, c.message+picos(c.copying*float64(msg.bytes)))
	msg.head, msg.end = begin+firstPart(end-begin, msg.bytes), end
	w.queue.add(event{at: msg.head, rank: msg.from, arg: n, kind: injected})
}

// inject sends a message over the links of its path.
func (w *world) inject(n int32) {
	msg := &w.messages[n]
	c := w.cost(msg)
	head, tail := w.net.carry(msg, w.now)
	leaves := max(msg.end, tail)
	head, tail = head+c.latency, leaves+c.latency
	msg.end = tail
	w.queue.add(event{at: head, rank: msg.to, arg: n, kind: arrived})
	if msg.bytes > int64(w.machine.Eager) {
		w.queue.add(event{at: leaves, rank: msg.from, arg: n, kind: left})
		return
	}
	from := msg.from
	w.finish(from, msg.send)
	w.open(from)
}

// arrive lets the receiver take a message, or keeps it until a receive is ready. A receiver that waits
// finds all messages that have arrived when it has its next turn.
func (w *world) arrive(n int32) {
	msg := &w.messages[n]
	r := &w.ranks[msg.to]
	if w.turn > 0 && !msg.here {
		if r.busy <= w.now && r.turn <= w.now && w.now-r.busy <= w.pollFor {
			r.turn = w.now + w.turn
		}
		if r.turn > w.now {
			msg.here = true
			w.queue.add(event{at: r.turn, rank: msg.to, arg: n, kind: arrived})
			return
		}
	}
	msg.here = true
	if msg.receive >= 0 {
		w.take(n)
		return
	}
	r.early = append(r.early, early{msg.from, n})
	w.match(msg.to, msg.from)
}

// match pairs the first receives from a peer with its first messages.
func (w *world) match(at, peer int32) {
	r := &w.ranks[at]
	for len(r.early) > 0 {
		number, ok := r.receive(peer)
		if !ok || r.move(number).state == blocked {
			return
		}
		n, ok := r.take(peer)
		if !ok {
			return
		}
		m := r.move(number)
		m.state = matched
		msg := &w.messages[n]
		msg.receive = number
		if msg.offered {
			w.grant(n, m.since)
		} else {
			w.take(n)
		}
	}
}

// grant lets the sender send a long message. Its receive has been ready since a time, when the
// receiver sent the grant.
func (w *world) grant(n int32, since picos) {
	msg := &w.messages[n]
	c := w.cost(msg)
	_, sent := w.compute(msg.to, w.now, c.message)
	if since < w.now {
		sent = since + c.message
	}
	w.queue.add(event{at: max(w.now, sent+c.latency), rank: msg.from, arg: n, kind: granted})
}

// take lets the receiver copy or reduce a message that has arrived.
func (w *world) take(n int32) {
	msg := &w.messages[n]
	c := w.cost(msg)
	each := c.copying
	if w.ranks[msg.to].move(msg.receive).kind == plan.Reduce {
		each += w.reduce
	}
	begin, end := w.compute(msg.to, w.now, c.message+picos(each*float64(msg.bytes)))
	end = max(end, msg.end+firstPart(end-begin, msg.bytes))
	w.queue.add(event{at: end, rank: msg.to, arg: n, kind: taken})
}
