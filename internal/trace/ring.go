package trace

// A Ring keeps the last Length of what is put into it. Its zero value is empty. It
// takes more memory as it fills; once it is full, nothing is allocated any more.
type Ring[T any] struct {
	slots []T
	next  int
}

// Put is the place for the next value, which still has an old one.
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
