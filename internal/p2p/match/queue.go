package match

import "slices"

const (
	// keptMax is how many queues are kept that have become empty, and the memory of how
	// many more.
	keptMax = 16
	// entriesMax is for how many entries an empty queue keeps its memory.
	entriesMax = 16
)

// An entry is a posted receive or a waiting message, in the order of stamps.
type entry[T any] struct {
	key   key
	stamp uint64
	value T
}

// A queue holds entries of one source and tag, the first of them at next.
type queue[T any] struct {
	entries []entry[T]
	next    int
	kept    bool // its key is in queues.kept
}

// len is how many there are; nil has none.
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

// queues are those of all sources and tags. A queue that has become empty is kept for
// a while, because the next entry is often like the last.
type queues[T any] struct {
	by    map[key]*queue[T]
	kept  []key       // of queues that have become empty, and may not be so any more
	spare []*queue[T] // memory
}

// of is the queue of a source and a tag, or nil.
func (s *queues[T]) of(k key) *queue[T] { return s.by[k] }

func (s *queues[T]) push(e entry[T]) {
	q := s.by[e.key]
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

// pop takes the first entry off a queue.
func (s *queues[T]) pop(q *queue[T]) T {
	e := *q.first()
	*q.first() = entry[T]{} // for the garbage collector
	q.next++
	s.taken(q, e.key)
	return e.value
}

// remove takes the entries off the queue of k that drop names, and reports whether
// there were any.
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

// taken looks after the queue of k, from which something was taken. When too many are
// kept those that are empty still are given up.
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

// each calls f for every entry.
func (s *queues[T]) each(f func(e entry[T])) {
	for _, q := range s.by {
		for _, e := range q.all() {
			f(e)
		}
	}
}

// drop forgets the queues that is names, with all that is in them.
func (s *queues[T]) drop(is func(k key) bool) {
	for k := range s.by {
		if is(k) {
			delete(s.by, k)
		}
	}
}
