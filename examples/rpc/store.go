package main

import (
	"context"
	"hash/fnv"

	"github.com/nexar-go/nexar"
)

// A store is the keys of all ranks, as one rank sees them.
type store struct {
	comm  *nexar.Comm
	put   nexar.Func[entry, int]
	get   nexar.Func[string, string]
	await nexar.Func[string, string]
}

// An entry is a key and its value.
type entry struct{ Key, Value string }

// open makes the store, and this rank the owner of some of the keys. It returns when all ranks
// have called it.
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
	// A call that comes before the function is registered fails.
	return s, c.Barrier(ctx)
}

// Owner returns the rank that stores a key. All ranks compute the same one.
func (s *store) Owner(key string) int {
	hash := fnv.New32a()
	hash.Write([]byte(key))
	return int(hash.Sum32() % uint32(s.comm.Size()))
}

// Put gives a key a value.
func (s *store) Put(ctx context.Context, key, value string) error {
	_, err := s.put.Call(ctx, s.comm, s.Owner(key), entry{key, value})
	return err
}

// Get returns the value of a key. If it has none that is a nexar.HandlerError.
func (s *store) Get(ctx context.Context, key string) (string, error) {
	return s.get.Call(ctx, s.comm, s.Owner(key), key)
}

// Await returns the value of a key as soon as it has one.
func (s *store) Await(ctx context.Context, key string) (string, error) {
	return s.await.Call(ctx, s.comm, s.Owner(key), key)
}
