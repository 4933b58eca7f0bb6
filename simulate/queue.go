package simulate

import "math/bits"

// An event happens at a rank. Its arg is the number of a move of that rank, or that of a message.
type event struct {
	at   picos
	rank int32
	arg  int32
	kind eventKind
}

// A queue returns events in the order of their times, and events of the same time in the order of
// their addition. It is a radix heap: no event is earlier than the last one returned.
//
// Ahuja, Mehlhorn, Orlin and Tarjan, "Faster algorithms for the shortest path problem", JACM
// 37(2), 1990.
type queue struct {
	last    picos
	buckets [65][]event // by the highest bit of the difference between the time and last
	head    int         // the first event of bucket 0 that was not returned yet
}

// add adds an event that is not earlier than the last one returned.
func (q *queue) add(e event) {
	b := bits.Len64(uint64(e.at ^ q.last))
	q.buckets[b] = append(q.buckets[b], e)
}

// next removes the earliest event. It reports false if there is none.
func (q *queue) next() (event, bool) {
	if q.head == len(q.buckets[0]) && !q.refill() {
		return event{}, false
	}
	e := q.buckets[0][q.head]
	q.head++
	return e, true
}

// refill moves the events of the next time to bucket 0. It reports false if there is none.
func (q *queue) refill() bool {
	q.head, q.buckets[0] = 0, q.buckets[0][:0]
	for b := 1; b < len(q.buckets); b++ {
		if len(q.buckets[b]) == 0 {
			continue
		}
		events := q.buckets[b]
		q.last = events[0].at
		for i := range events {
			q.last = min(q.last, events[i].at)
		}
		// All of them go to lower buckets, so events is not appended to.
		for i := range events {
			q.add(events[i])
		}
		q.buckets[b] = events[:0]
		return true
	}
	return false
}
