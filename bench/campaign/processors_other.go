//go:build !linux

package campaign

// RoundTrip returns 0: a thread cannot be bound to a processor here.
func RoundTrip() float64 { return 0 }
