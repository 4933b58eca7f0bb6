package sim

import (
	"cmp"
	"context"
	"maps"
	"slices"
)

// A queue passes items to calls that wait with a context. Network.mu guards items.
type queue[T any] struct {
	items []T
	ready chan struct{} // holds a token while the queue has items
}

func newQueue[T any]() *queue[T] {
	return &queue[T]{ready: make(chan struct{}, 1)}
}

func (q *queue[T]) push(item T) {
	q.items = append(q.items, item)
	q.signal()
}

func (q *queue[T]) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// pop removes the first item. It returns false if the queue is empty.
func (q *queue[T]) pop() (item T, ok bool) {
	if len(q.items) == 0 {
		return item, false
	}
	item = q.items[0]
	q.items = slices.Delete(q.items, 0, 1)
	if len(q.items) > 0 {
		q.signal() // Another call may wait.
	}
	return item, true
}

// wait blocks until the queue may have an item, done is closed, or ctx is done; then it returns
// the error of ctx. The caller must not hold Network.mu.
func (q *queue[T]) wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-q.ready:
		return nil
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// byNumber returns the keys of m in the order of their values.
func byNumber[K comparable](m map[K]uint64) []K {
	return slices.SortedFunc(maps.Keys(m), func(a, b K) int { return cmp.Compare(m[a], m[b]) })
}
