package recorder

// A Ring keeps the last Length values. The zero Ring is empty. It allocates as it fills,
// and no more once it is full.
type Ring[T any] struct {
	slots []T
	next  int
}

// Put returns the slot for the next value. It has the content of an older value.
func (r *Ring[T]) Put() *T {
	if len(r.slots) < Length {
		r.slots = append(r.slots, *new(T))
		return &r.slots[len(r.slots)-1]
	}
	s := &r.slots[r.next]
	r.next = (r.next + 1) % Length
	return s
}

// Each calls f for every value, the oldest first.
func (r *Ring[T]) Each(f func(v *T)) {
	for i := range r.slots {
		f(&r.slots[(r.next+i)%len(r.slots)])
	}
}
