package selector

import "testing"

// BenchmarkScheduleAgain measures the selection for a call with the shape of the previous one.
func BenchmarkScheduleAgain(b *testing.B) {
	s := newSelector(b, 4)
	shape := sum(2)
	b.ReportAllocs()
	for b.Loop() {
		s.Schedule(&shape)
	}
}
