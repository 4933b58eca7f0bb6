// Package overlap finds memory that two operands or operations use at a time.
//
// Two compares two slices, First finds two of several that overlap, and Apart sorts
// many for repeated comparisons. Flights registers the memory of operations in
// progress, and reports the one that a new operation would conflict with.
//
// Slices are compared by address; empty ones overlap with none. All functions may be
// called by several goroutines.
package overlap

import (
	"cmp"
	"slices"
	"sort"
	"sync"
	"unsafe"
)

// Two reports whether a and b share memory.
func Two(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	return start(a) < end(b) && start(b) < end(a)
}

func start(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func end(b []byte) uintptr { return start(b) + uintptr(len(b)) }

// First finds two of several slices that share memory, i < j.
func First(list [][]byte) (i, j int, found bool) {
	order := make([]int, 0, len(list))
	for i, b := range list {
		if len(b) > 0 {
			order = append(order, i)
		}
	}
	// If a slice shares memory with any that begins later, so it does with the
	// next one.
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(start(list[i]), start(list[j])) })
	for k := 1; k < len(order); k++ {
		if i, j := order[k-1], order[k]; Two(list[i], list[j]) {
			return min(i, j), max(i, j), true
		}
	}
	return 0, 0, false
}

// Apart sorts slices by address, without the empty ones, and reports whether no two of
// them share memory.
func Apart(list [][]byte) (sorted [][]byte, apart bool) {
	for _, b := range list {
		if len(b) > 0 {
			sorted = append(sorted, b)
		}
	}
	slices.SortFunc(sorted, func(a, b []byte) int { return cmp.Compare(start(a), start(b)) })
	for i := 1; i < len(sorted); i++ {
		if Two(sorted[i-1], sorted[i]) {
			return sorted, false
		}
	}
	return sorted, true
}

// shared reports whether a slice of a and one of b share memory. Both are as Apart
// returns them, and a short one is compared with a long one in little time.
func shared(a, b [][]byte) bool {
	for len(a) > 0 && len(b) > 0 {
		if Two(a[0], b[0]) {
			return true
		}
		if start(a[0]) > start(b[0]) {
			a, b = b, a
		}
		// Slices that end before the other list begins do not overlap with it.
		a = a[sort.Search(len(a), func(i int) bool { return end(a[i]) > start(b[0]) }):]
	}
	return false
}

// within reports whether b shares memory with a slice of a list.
func within(list [][]byte, b []byte) bool {
	return len(list) > 0 && len(b) > 0 && shared(list, [][]byte{b})
}

// flightsMax limits the operations in progress with which a new one is compared.
const flightsMax = 64

// A Flight is the memory that an operation in progress writes and reads.
type Flight struct {
	Name        string
	Write, Read []byte
	More        [][]byte // written as well; sorted by Apart
}

// clashes reports whether two operations share memory, and one of them writes
// there.
func (x *Flight) clashes(o *Flight) bool {
	return Two(x.Write, o.Write) || Two(x.Write, o.Read) || Two(x.Read, o.Write) ||
		within(x.More, o.Write) || within(x.More, o.Read) ||
		within(o.More, x.Write) || within(o.More, x.Read) ||
		shared(x.More, o.More)
}

// Flights are operations in progress. The zero value has none.
type Flights struct {
	mu   sync.Mutex
	last uint64
	list []numbered // in the order of their start
}

type numbered struct {
	Flight
	number uint64
}

// Enter registers an operation and returns its number. If it shares memory with
// another one, and one of the two writes there, Enter returns the first such
// operation instead. Beyond flightsMax operations in progress, further ones are neither
// registered nor compared.
func (f *Flights) Enter(x Flight) (number uint64, other *Flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.list) >= flightsMax {
		return 0, nil
	}
	for i := range f.list {
		if o := &f.list[i].Flight; x.clashes(o) {
			found := *o // which may leave as soon as the lock is given up
			return 0, &found
		}
	}
	f.last++
	f.list = append(f.list, numbered{x, f.last})
	return f.last, nil
}

// Leave removes an operation that has ended, by the number from Enter.
func (f *Flights) Leave(number uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = slices.DeleteFunc(f.list, func(o numbered) bool { return o.number == number })
}
