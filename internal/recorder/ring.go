package recorder

// A Ring keeps the last Length values. The zero Ring is empty. It allocates as it fills,
// and no more once it is full.
type Ring[T any] struct {
	entries []T
	next    int
}

// Put returns the entry for the next value. It has the content of an older value.
func (r *Ring[T]) Put() *T {
	if len(r.entries) < Length {
		r.entries = append(r.entries, *new(T))
		return &r.entries[len(r.entries)-1]
	}
	s := &r.entries[r.next]
	r.next = (r.next + 1) % Length
	return s
}

// Each calls f for every value, the oldest first.
func (r *Ring[T]) Each(f func(v *T)) {
	for i := range r.entries {
		f(&r.entries[(r.next+i)%len(r.entries)])
	}
}
