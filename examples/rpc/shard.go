package main

import (
	"context"
	"fmt"
	"sync"
)

// A shard has the keys of one rank. Its methods serve the calls of all ranks, concurrently.
type shard struct {
	mu      sync.Mutex
	values  map[string]string
	changed chan struct{} // closed by the next put
}

func newShard() *shard {
	return &shard{values: make(map[string]string), changed: make(chan struct{})}
}

// put sets the value of a key, and returns the number of keys.
func (s *shard) put(_ context.Context, _ int, e entry) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[e.Key] = e.Value
	close(s.changed)
	s.changed = make(chan struct{})
	return len(s.values), nil
}

// get returns the value of a key.
func (s *shard) get(_ context.Context, _ int, key string) (string, error) {
	value, ok, _ := s.look(key)
	if !ok {
		return "", fmt.Errorf("%s has no value", key)
	}
	return value, nil
}

// await waits until a key has a value. ctx ends when the caller's deadline has passed or the caller
// has left.
func (s *shard) await(ctx context.Context, _ int, key string) (string, error) {
	for {
		value, ok, changed := s.look(key)
		if ok {
			return value, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// look returns the value of a key, if it has one, and a channel that is closed when the value
// may have changed.
func (s *shard) look(key string) (value string, ok bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, ok = s.values[key]
	return value, ok, s.changed
}
