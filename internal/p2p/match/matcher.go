// Package match pairs messages with the receives that ask for them.
//
// A Matcher holds the messages of one communicator that have come before
// anyone asked for them, and the receives that wait for a message. Post adds a
// receive, and Take with Keep a message, unless its counterpart is there.
// Messages with the same source and tag are received in the order in which
// they came, and receives that could take the same message get it in the order
// in which they were posted (MPI 4.1, section 3.5).
//
// The package is pure: it neither blocks nor locks.
package match

import "slices"

// Any is the source or the tag of a receive that takes every one.
const Any = -1

type key struct {
	source int
	tag    int64
}

// takes reports whether a receive for k takes a message from m.
func (k key) takes(m key) bool {
	return (k.source == Any || k.source == m.source) && (k.tag == Any || k.tag == m.tag)
}

func (k key) wild() bool { return k.source == Any || k.tag == Any }

// Takes reports whether a receive from a source with a tag, either of which may be Any,
// takes a message from another source with another tag.
func Takes(source int, tag int64, from int, with int64) bool {
	return key{source, tag}.takes(key{from, with})
}

// A Matcher pairs receives of type R with messages of type M. Its zero value
// is empty and ready.
type Matcher[R comparable, M any] struct {
	stamp  uint64
	exact  queues[R]  // receives from one source with one tag
	wild   []entry[R] // the other receives
	early  queues[M]  // messages
	queued int
}

// Post asks for a message from source with tag, either of which may be Any.
// If one is waiting it is taken and returned, otherwise r waits.
func (m *Matcher[R, M]) Post(source int, tag int64, r R) (msg M, ok bool) {
	k := key{source, tag}
	if q := m.find(k); q != nil {
		m.queued--
		return m.early.pop(q), true
	}
	m.stamp++
	e := entry[R]{k, m.stamp, r}
	if k.wild() {
		m.wild = append(m.wild, e)
	} else {
		m.exact.push(e)
	}
	return msg, false
}

// find returns the queue that begins with the first waiting message that k takes, or
// nil.
func (m *Matcher[R, M]) find(k key) (from *queue[M]) {
	if m.queued == 0 {
		return nil
	}
	if !k.wild() {
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

// Peek returns the message that Post would take, and leaves it.
func (m *Matcher[R, M]) Peek(source int, tag int64) (msg M, ok bool) {
	q := m.find(key{source, tag})
	if q == nil {
		return msg, false
	}
	return q.first().value, true
}

// TakeMessage removes and returns the message that Post would take.
func (m *Matcher[R, M]) TakeMessage(source int, tag int64) (msg M, ok bool) {
	q := m.find(key{source, tag})
	if q == nil {
		return msg, false
	}
	m.queued--
	return m.early.pop(q), true
}

// Take removes and returns the receive that a message from source with tag
// goes to, if one waits.
func (m *Matcher[R, M]) Take(source int, tag int64) (r R, ok bool) {
	k := key{source, tag}
	i := slices.IndexFunc(m.wild, func(e entry[R]) bool { return e.key.takes(k) })
	q := m.exact.of(k)
	switch {
	case q.len() > 0 && (i < 0 || q.first().stamp < m.wild[i].stamp):
		return m.exact.pop(q), true
	case i >= 0:
		r = m.wild[i].value
		m.wild = slices.Delete(m.wild, i, i+1)
		return r, true
	}
	return r, false
}

// Keep lets a message wait, for which Take has found no receive.
func (m *Matcher[R, M]) Keep(source int, tag int64, msg M) {
	m.stamp++
	m.early.push(entry[M]{key{source, tag}, m.stamp, msg})
	m.queued++
}

// Remove takes a receive back. It reports false if it does not wait.
func (m *Matcher[R, M]) Remove(source int, tag int64, r R) bool {
	k := key{source, tag}
	is := func(e entry[R]) bool { return e.value == r }
	if k.wild() {
		n := len(m.wild)
		m.wild = slices.DeleteFunc(m.wild, is)
		return len(m.wild) < n
	}
	return m.exact.remove(k, is)
}

// Queued is the number of messages that wait.
func (m *Matcher[R, M]) Queued() int { return m.queued }

// EachReceive calls f for every receive that waits, in no order.
func (m *Matcher[R, M]) EachReceive(f func(r R)) {
	for _, e := range m.wild {
		f(e.value)
	}
	m.exact.each(func(e entry[R]) { f(e.value) })
}

// ClearReceives removes and returns the receives whose source is in is, which
// is called with Any for receives from any source.
func (m *Matcher[R, M]) ClearReceives(is func(source int) bool) (receives []R) {
	var wild []entry[R]
	for _, e := range m.wild {
		if is(e.key.source) {
			receives = append(receives, e.value)
		} else {
			wild = append(wild, e)
		}
	}
	m.wild = wild
	m.exact.each(func(e entry[R]) {
		if is(e.key.source) {
			receives = append(receives, e.value)
		}
	})
	m.exact.drop(func(k key) bool { return is(k.source) })
	return receives
}

// ClearMessages removes and returns the messages that wait.
func (m *Matcher[R, M]) ClearMessages() (messages []M) {
	m.early.each(func(e entry[M]) { messages = append(messages, e.value) })
	m.early, m.queued = queues[M]{}, 0
	return messages
}
