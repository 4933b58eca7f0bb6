package tcp

import (
	"errors"
	"time"
)

// A breakage is the failure of the socket of a pipe. A message on the control socket may explain it:
// the peer has closed the pipe, or the conn. The peer queues such a message before it closes the
// socket. So this side asks it, and when the answer arrives without an explanation before it, the
// bytes in the socket are lost, and the conn must end (ADR 28).
type breakage struct {
	at       time.Time // zero as long as the socket works
	question uint64    // the last one, see [conn.ask]
	asked    time.Time // when it was asked
	pipe     uint32
	serial   uint32 // of the subflow
}

func (b *breakage) hasBegun() bool { return !b.at.IsZero() }

// begin notes that the socket of a pipe has failed, and asks the peer. Only the first call has an effect.
func (b *breakage) begin(c *conn, pipe, serial uint32) {
	if !b.hasBegun() {
		*b = breakage{at: time.Now(), pipe: pipe, serial: serial}
		b.ask(c)
	}
}

func (b *breakage) ask(c *conn) { b.question, b.asked = c.ask(b.pipe, b.serial), time.Now() }

// isUnexplained reports whether a socket has failed and all messages that may explain that were handled. The caller looks for such a
// message only afterwards. If another subflow follows, or the control socket is dead as well, the wait takes up to causeTimeout. follows
// is called only after an answer, since that may change its result.
func (b *breakage) isUnexplained(c *conn, follows func() bool) bool {
	if !b.hasBegun() {
		return false
	}
	if c.answered.Load() >= b.question {
		if !follows() {
			return true
		}
		if time.Since(b.asked) >= migrateRetry {
			b.ask(c) // The pipe may have failed to migrate.
		}
	}
	return time.Since(b.at) > c.t.causeTimeout
}

// ask asks the peer about a pipe with a socket that has failed here, and returns the number of the
// question. The peer answers questions in order, after the messages that it has queued before.
func (c *conn) ask(pipe, serial uint32) (number uint64) {
	c.mu.Lock()
	c.asked++
	number = c.asked
	c.sendLocked(message{kind: msgAsk, pipe: pipe, n: uint64(serial)})
	c.mu.Unlock()
	c.wakeWriter()
	return number
}

// answer answers a question. If the pipe is of this side, it may have migrated to a subflow that the peer does not have yet.
func (c *conn) answer(m message) {
	m.kind = msgAnswer
	if s := c.sender(m.pipe); s != nil {
		m.n = s.newestSerial()
	}
	c.send(m)
}

func (c *conn) handleAnswer(m message) error {
	c.mu.Lock()
	isUnasked := c.answered.Load() == c.asked
	c.mu.Unlock()
	if isUnasked {
		return errors.New("the peer answered a question that was not asked")
	}
	if r := c.receiver(m.pipe); r != nil {
		r.newest.Store(m.n)
	}
	c.answered.Add(1)
	return nil
}
