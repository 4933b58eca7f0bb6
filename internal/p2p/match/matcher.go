// Package match pairs messages with receives.
//
// A [Matcher] holds the messages of one communicator that no receive has taken, and the receives that
// wait for a message. For a new receive, Post takes a message or lets the receive wait. For a new
// message, Take takes a waiting receive; if there is none, Keep keeps the message. Messages with the
// same source and tag are received in the order of their arrival. If several receives match a message,
// the one that was posted first gets it (MPI 4.1, section 3.5).
//
// The package is pure: it neither blocks nor locks.
package match

import "slices"

// Any stands for every source or every tag in receives and probes.
const Any = -1

type key struct {
	source int
	tag    int64
}

// takes reports whether a receive with key k takes a message with key m.
func (k key) takes(m key) bool {
	return (k.source == Any || k.source == m.source) && (k.tag == Any || k.tag == m.tag)
}

func (k key) isWildcard() bool { return k.source == Any || k.tag == Any }

// Takes reports whether a receive with source and tag (both may be [Any]) takes a message from rank
// from with msgTag.
func Takes(source int, tag int64, from int, msgTag int64) bool {
	return key{source, tag}.takes(key{from, msgTag})
}

// A Matcher pairs receives of type R with messages of type M. The zero value is empty.
type Matcher[R comparable, M any] struct {
	stamp     uint64
	exact     queues[R]  // receives without Any
	wildcards []entry[R] // receives with Any, in the order of their posts
	early     queues[M]  // messages that no receive has taken
	queued    int        // number of messages in early
}

// Post removes and returns the first message from source with tag (both may be [Any]). If there is
// none, r waits, and ok is false.
func (m *Matcher[R, M]) Post(source int, tag int64, r R) (msg M, ok bool) {
	k := key{source, tag}
	if q := m.find(k); q != nil {
		m.queued--
		return m.early.pop(q), true
	}
	m.stamp++
	e := entry[R]{k, m.stamp, r}
	if k.isWildcard() {
		m.wildcards = append(m.wildcards, e)
	} else {
		m.exact.push(e)
	}
	return msg, false
}

// find returns the queue whose first message is the first that k takes, or nil.
func (m *Matcher[R, M]) find(k key) (from *queue[M]) {
	if m.queued == 0 {
		return nil
	}
	if !k.isWildcard() {
		if q := m.early.of(k); q.len() > 0 {
			return q
		}
		return nil
	}
	for at, q := range m.early.by {
		if k.takes(at) && q.len() > 0 && (from == nil || q.first().stamp < from.first().stamp) {
			from = q
		}
	}
	return from
}

// Peek returns the message that Post would take, without removing it.
func (m *Matcher[R, M]) Peek(source int, tag int64) (msg M, ok bool) {
	q := m.find(key{source, tag})
	if q == nil {
		return msg, false
	}
	return q.first().value, true
}

// TakeMessage removes and returns the message that Post would take. If there is none, no receive waits.
func (m *Matcher[R, M]) TakeMessage(source int, tag int64) (msg M, ok bool) {
	q := m.find(key{source, tag})
	if q == nil {
		return msg, false
	}
	m.queued--
	return m.early.pop(q), true
}

// Take removes and returns the first waiting receive that takes a message from source with tag.
func (m *Matcher[R, M]) Take(source int, tag int64) (r R, ok bool) {
	k := key{source, tag}
	i := slices.IndexFunc(m.wildcards, func(e entry[R]) bool { return e.key.takes(k) })
	q := m.exact.of(k)
	switch {
	case q.len() > 0 && (i < 0 || q.first().stamp < m.wildcards[i].stamp):
		return m.exact.pop(q), true
	case i >= 0:
		r = m.wildcards[i].value
		m.wildcards = slices.Delete(m.wildcards, i, i+1)
		return r, true
	}
	return r, false
}

// Keep adds a message for which Take has found no receive.
func (m *Matcher[R, M]) Keep(source int, tag int64, msg M) {
	m.stamp++
	m.early.push(entry[M]{key{source, tag}, m.stamp, msg})
	m.queued++
}

// Remove removes a receive, and reports whether it was waiting.
func (m *Matcher[R, M]) Remove(source int, tag int64, r R) bool {
	k := key{source, tag}
	is := func(e entry[R]) bool { return e.value == r }
	if k.isWildcard() {
		n := len(m.wildcards)
		m.wildcards = slices.DeleteFunc(m.wildcards, is)
		return len(m.wildcards) < n
	}
	return m.exact.remove(k, is)
}

// Queued returns the number of messages that no receive has taken.
func (m *Matcher[R, M]) Queued() int { return m.queued }

// Receives returns the number of receives that wait.
func (m *Matcher[R, M]) Receives() int { return len(m.wildcards) + m.exact.len() }

// EachReceive calls f for every waiting receive, in no particular order.
func (m *Matcher[R, M]) EachReceive(f func(r R)) {
	for _, e := range m.wildcards {
		f(e.value)
	}
	m.exact.each(func(e entry[R]) { f(e.value) })
}

// ClearReceives removes and returns the waiting receives whose source, which may be [Any], is selected.
func (m *Matcher[R, M]) ClearReceives(selected func(source int) bool) (receives []R) {
	var rest []entry[R]
	for _, e := range m.wildcards {
		if selected(e.key.source) {
			receives = append(receives, e.value)
		} else {
			rest = append(rest, e)
		}
	}
	m.wildcards = rest
	m.exact.each(func(e entry[R]) {
		if selected(e.key.source) {
			receives = append(receives, e.value)
		}
	})
	m.exact.drop(func(k key) bool { return selected(k.source) })
	return receives
}

// ClearMessages removes and returns all messages.
func (m *Matcher[R, M]) ClearMessages() (messages []M) {
	m.early.each(func(e entry[M]) { messages = append(messages, e.value) })
	m.early, m.queued = queues[M]{}, 0
	return messages
}
