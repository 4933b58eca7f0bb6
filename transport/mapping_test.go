package transport

import (
	"testing"
)

// TestMapping: slices within a mapping belong to it, and Free notifies owners before the memory ends.
func TestMapping(t *testing.T) {
	a, err := Map(5000)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Map(100)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*Mapping{a, b} {
		all := m.Bytes()
		for _, s := range [][]byte{all, all[:1], all[len(all)-1:], all[50:90]} {
			if got := MappingOf(s); got != m {
				t.Errorf("MappingOf(%d bytes of a mapping of %d) = %p, want %p", len(s), len(all), got, m)
			}
		}
	}
	if m := MappingOf(make([]byte, 100)); m != nil {
		t.Errorf("memory of the heap belongs to mapping %p", m)
	}
	if m := MappingOf(a.Bytes()[:0]); m != nil {
		t.Errorf("an empty slice belongs to mapping %p", m)
	}
	calls := 0
	for range 2 { // The later function of an owner replaces the earlier one.
		a.OnFree("owner", func() { calls++; a.Bytes()[0] = 1 })
	}
	first := a.Bytes()
	a.Free()
	if calls != 1 {
		t.Errorf("Free made %d calls, want 1", calls)
	}
	if m := MappingOf(first); m == a {
		t.Error("freed memory belongs to its mapping")
	}
	if m := MappingOf(b.Bytes()); m != b {
		t.Errorf("after the end of another mapping, MappingOf = %p, want %p", m, b)
	}
	b.Free()
}
