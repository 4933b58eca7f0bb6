//go:build !linux

package yield

// Hop stays where it is: it cannot be asked for another processor.
func Hop([]int) (to int, hopped bool) { return -1, false }

// Processor is not known.
func Processor() int { return -1 }
