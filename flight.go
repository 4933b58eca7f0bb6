package nexar

import (
	"fmt"
	"slices"
	"sync"
)

// flightsMax is how many operations under way are compared with a new one.
const flightsMax = 64

// A flight is the memory of an operation under way.
type flight struct {
	name  string
	id    uint64
	write []byte
	read  []byte
}

// flights are those of a communicator.
type flights struct {
	mu   sync.Mutex
	last uint64
	list []flight
}

// enter adds an operation, or says with which other it shares memory that one of
// them writes.
func (f *flights) enter(x flight) (id uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.list) >= flightsMax {
		return 0, nil
	}
	for _, o := range f.list {
		if overlap(x.write, o.write) || overlap(x.write, o.read) || overlap(x.read, o.write) {
			return 0, fmt.Errorf("%w: with those of %s, which is under way", ErrOverlap, o.name)
		}
	}
	f.last++
	x.id = f.last
	f.list = append(f.list, x)
	return x.id, nil
}

// leave takes an operation off that has ended, if it was added.
func (f *flights) leave(id uint64) {
	if id == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = slices.DeleteFunc(f.list, func(x flight) bool { return x.id == id })
}

// flight is the memory of a task.
func (t *task) flight() flight {
	if t.reads {
		return flight{name: t.name(), read: t.data}
	}
	return flight{name: t.name(), write: t.data, read: t.input}
}
