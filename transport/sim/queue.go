package sim

import (
	"cmp"
	"context"
	"maps"
	"slices"
)

// A queue hands what has arrived to calls that wait with a context.
type queue[T any] struct {
	items []T
	ready chan struct{} // holds a token if there are items
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

// pop takes the first item, or reports false.
func (q *queue[T]) pop() (item T, ok bool) {
	if len(q.items) == 0 {
		return item, false
	}
	item = q.items[0]
	q.items = slices.Delete(q.items, 0, 1)
	if len(q.items) > 0 {
		q.signal() // for another call that waits
	}
	return item, true
}

// wait returns when there may be an item, when done is closed, or with the
// error of ctx. It is called without Network.mu.
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

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}

// byNumber returns the keys of m in the order of their values.
func byNumber[K comparable](m map[K]uint64) []K {
	return slices.SortedFunc(maps.Keys(m), func(a, b K) int { return cmp.Compare(m[a], m[b]) })
}
