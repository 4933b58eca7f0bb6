package match

import "slices"

const (
	// keptMax is the number of empty queues that are kept, and of queues without a key that
	// are kept for reuse.
	keptMax = 16
	// entriesMax is the largest capacity of an empty queue that keeps its memory.
	entriesMax = 16
	// recentMax is the number of queues that are found without the map. It is a power of two.
	recentMax = 4
)

// An entry is a receive or a message. Stamps have the order of arrival.
type entry[T any] struct {
	key   key
	stamp uint64
	value T
}

// A queue holds the entries with one source and tag. The first of them is at next.
type queue[T any] struct {
	entries []entry[T]
	next    int
	kept    bool // its key is in queues.kept
}

// len returns the number of entries; q may be nil.
func (q *queue[T]) len() int {
	if q == nil {
		return 0
	}
	return len(q.entries) - q.next
}

func (q *queue[T]) first() *entry[T] { return &q.entries[q.next] }

func (q *queue[T]) all() []entry[T] { return q.entries[q.next:] }

func (q *queue[T]) push(e entry[T]) {
	if len(q.entries) == cap(q.entries) && q.next > len(q.entries)/2 {
		n := copy(q.entries, q.all())
		clear(q.entries[n:])
		q.entries, q.next = q.entries[:n], 0
	}
	q.entries = append(q.entries, e)
}

// queues has a queue for each source and tag. Some empty queues are kept, because the next entry
// often has the same source and tag.
type queues[T any] struct {
	by     map[key]*queue[T]
	recent [recentMax]struct { // of by, looked up before
		key   key
		queue *queue[T]
	}
	kept  []key       // of queues that were empty, and may have entries again
	spare []*queue[T] // queues for reuse
}

// of returns the queue of a key, or nil.
func (s *queues[T]) of(k key) *queue[T] {
	r := &s.recent[(k.source+int(k.tag))&(recentMax-1)]
	if r.queue == nil || r.key != k {
		q := s.by[k]
		if q == nil {
			return nil
		}
		r.key, r.queue = k, q
	}
	return r.queue
}

func (s *queues[T]) push(e entry[T]) {
	q := s.of(e.key)
	if q == nil {
		q = s.add(e.key)
	}
	q.push(e)
}

func (s *queues[T]) add(k key) *queue[T] {
	q := new(queue[T])
	if n := len(s.spare); n > 0 {
		q, s.spare = s.spare[n-1], s.spare[:n-1]
	}
	if s.by == nil {
		s.by = make(map[key]*queue[T])
	}
	s.by[k] = q
	return q
}

// pop removes and returns the first entry of a queue.
func (s *queues[T]) pop(q *queue[T]) T {
	e := *q.first()
	*q.first() = entry[T]{} // for the garbage collector
	q.next++
	s.taken(q, e.key)
	return e.value
}

// remove removes the entries with key k that drop selects, and reports whether there were any.
func (s *queues[T]) remove(k key, drop func(e entry[T]) bool) bool {
	q := s.by[k]
	n := q.len()
	if n == 0 {
		return false
	}
	q.entries = q.entries[:q.next+len(slices.DeleteFunc(q.all(), drop))]
	left := q.len()
	s.taken(q, k)
	return left < n
}

// taken is called after entries of the queue of k were removed. If too many empty queues are
// kept, it removes all of them.
func (s *queues[T]) taken(q *queue[T], k key) {
	if q.len() > 0 {
		return
	}
	q.entries, q.next = q.entries[:0], 0
	if cap(q.entries) > entriesMax {
		q.entries = nil
	}
	if q.kept {
		return
	}
	q.kept = true
	if s.kept = append(s.kept, k); len(s.kept) <= keptMax {
		return
	}
	clear(s.recent[:])
	for _, k := range s.kept {
		q := s.by[k]
		if q == nil { // dropped
			continue
		}
		q.kept = false
		if q.len() > 0 {
			continue
		}
		delete(s.by, k)
		if len(s.spare) < keptMax {
			s.spare = append(s.spare, q)
		}
	}
	s.kept = s.kept[:0]
}

// len returns the number of entries.
func (s *queues[T]) len() (n int) {
	for _, q := range s.by {
		n += q.len()
	}
	return n
}

// each calls f for every entry.
func (s *queues[T]) each(f func(e entry[T])) {
	for _, q := range s.by {
		for _, e := range q.all() {
			f(e)
		}
	}
}

// drop removes the queues with selected keys, and their entries.
func (s *queues[T]) drop(selected func(k key) bool) {
	clear(s.recent[:])
	for k := range s.by {
		if selected(k) {
			delete(s.by, k)
		}
	}
}
