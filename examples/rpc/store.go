package main

import (
	"context"
	"hash/fnv"

	"github.com/nexar-go/nexar"
)

// A store gives one rank access to the keys of all ranks.
type store struct {
	comm  *nexar.Comm
	put   nexar.Func[entry, int]
	get   nexar.Func[string, string]
	await nexar.Func[string, string]
}

// An entry is a key and its value.
type entry struct{ Key, Value string }

// open returns the store, with this rank as the owner of some keys. It blocks until all ranks have
// called it.
func open(ctx context.Context, c *nexar.Comm) (*store, error) {
	s := &store{
		comm:  c,
		put:   nexar.Func[entry, int]{Name: "put"},
		get:   nexar.Func[string, string]{Name: "get"},
		await: nexar.Func[string, string]{Name: "await"},
	}
	own := newShard()
	s.put.Register(c, own.put)
	s.get.Register(c, own.get)
	s.await.Register(c, own.await)
	// A call that arrives before its function is registered fails.
	return s, c.Barrier(ctx)
}

// Owner returns the rank that stores a key, the same on all ranks.
func (s *store) Owner(key string) int {
	hash := fnv.New32a()
	hash.Write([]byte(key))
	return int(hash.Sum32() % uint32(s.comm.Size()))
}

// Put sets the value of a key.
func (s *store) Put(ctx context.Context, key, value string) error {
	_, err := s.put.Call(ctx, s.comm, s.Owner(key), entry{key, value})
	return err
}

// Get returns the value of a key. A key without a value is a nexar.HandlerError.
func (s *store) Get(ctx context.Context, key string) (string, error) {
	return s.get.Call(ctx, s.comm, s.Owner(key), key)
}

// Await waits until a key has a value, and returns it.
func (s *store) Await(ctx context.Context, key string) (string, error) {
	return s.await.Call(ctx, s.comm, s.Owner(key), key)
}
