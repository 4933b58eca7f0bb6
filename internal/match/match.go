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

// An entry is a posted receive or a waiting message, in the order of stamps.
type entry[T any] struct {
	key   key
	stamp uint64
	value T
}

// A Matcher pairs receives of type R with messages of type M. Its zero value
// is empty and ready.
type Matcher[R comparable, M any] struct {
	stamp  uint64
	exact  map[key][]entry[R] // receives from one source with one tag
	wild   []entry[R]         // the other receives
	early  map[key][]entry[M] // messages
	queued int
	spare  [][]entry[R] // memory of queues in exact that have become empty
}

// spareMax is how many of them are kept, and spareCapMax how long they may be.
const (
	spareMax    = 16
	spareCapMax = 16
)

// Post asks for a message from source with tag, either of which may be Any.
// If one is waiting it is taken and returned, otherwise r waits.
func (m *Matcher[R, M]) Post(source int, tag int64, r R) (msg M, ok bool) {
	k := key{source, tag}
	if from, found := m.find(k); found {
		return m.pop(from), true
	}
	m.stamp++
	e := entry[R]{k, m.stamp, r}
	if k.wild() {
		m.wild = append(m.wild, e)
		return msg, false
	}
	if m.exact == nil {
		m.exact = make(map[key][]entry[R])
	}
	q := m.exact[k]
	if n := len(m.spare); n > 0 && q == nil {
		q, m.spare = m.spare[n-1], m.spare[:n-1]
	}
	m.exact[k] = append(q, e)
	return msg, false
}

// find returns the key of the first waiting message that k takes.
func (m *Matcher[R, M]) find(k key) (from key, found bool) {
	if !k.wild() {
		return k, len(m.early[k]) > 0
	}
	var first uint64
	for at, q := range m.early {
		if k.takes(at) && (!found || q[0].stamp < first) {
			from, found, first = at, true, q[0].stamp
		}
	}
	return from, found
}

// Peek returns the message that Post would take, and leaves it.
func (m *Matcher[R, M]) Peek(source int, tag int64) (msg M, ok bool) {
	from, found := m.find(key{source, tag})
	if !found {
		return msg, false
	}
	return m.early[from][0].value, true
}

func (m *Matcher[R, M]) pop(k key) M {
	q := m.early[k]
	msg := q[0].value
	if len(q) == 1 {
		delete(m.early, k)
	} else {
		q[0] = entry[M]{} // for the garbage collector
		m.early[k] = q[1:]
	}
	m.queued--
	return msg
}

// Take removes and returns the receive that a message from source with tag
// goes to, if one waits.
func (m *Matcher[R, M]) Take(source int, tag int64) (r R, ok bool) {
	k := key{source, tag}
	i := slices.IndexFunc(m.wild, func(e entry[R]) bool { return e.key.takes(k) })
	q := m.exact[k]
	switch {
	case len(q) > 0 && (i < 0 || q[0].stamp < m.wild[i].stamp):
		r = q[0].value
		q[0] = entry[R]{} // for the garbage collector
		if len(q) == 1 {
			m.setExact(k, q[:0])
		} else {
			m.exact[k] = q[1:]
		}
		return r, true
	case i >= 0:
		r = m.wild[i].value
		m.wild = slices.Delete(m.wild, i, i+1)
		return r, true
	}
	return r, false
}

// Keep lets a message wait, for which Take has found no receive.
func (m *Matcher[R, M]) Keep(source int, tag int64, msg M) {
	k := key{source, tag}
	m.stamp++
	if m.early == nil {
		m.early = make(map[key][]entry[M])
	}
	m.early[k] = append(m.early[k], entry[M]{k, m.stamp, msg})
	m.queued++
}

func (m *Matcher[R, M]) setExact(k key, q []entry[R]) {
	if len(q) > 0 {
		m.exact[k] = q
		return
	}
	delete(m.exact, k)
	if len(m.spare) < spareMax && cap(q) > 0 && cap(q) <= spareCapMax {
		m.spare = append(m.spare, q)
	}
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
	n := len(m.exact[k])
	q := slices.DeleteFunc(m.exact[k], is)
	m.setExact(k, q)
	return len(q) < n
}

// Queued is the number of messages that wait.
func (m *Matcher[R, M]) Queued() int { return m.queued }

// EachReceive calls f for every receive that waits, in no order.
func (m *Matcher[R, M]) EachReceive(f func(r R)) {
	for _, e := range m.wild {
		f(e.value)
	}
	for _, q := range m.exact {
		for _, e := range q {
			f(e.value)
		}
	}
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
	for k, q := range m.exact {
		if is(k.source) {
			for _, e := range q {
				receives = append(receives, e.value)
			}
			delete(m.exact, k)
		}
	}
	return receives
}

// ClearMessages removes and returns the messages that wait.
func (m *Matcher[R, M]) ClearMessages() (messages []M) {
	for _, q := range m.early {
		for _, e := range q {
			messages = append(messages, e.value)
		}
	}
	clear(m.early)
	m.queued = 0
	return messages
}
