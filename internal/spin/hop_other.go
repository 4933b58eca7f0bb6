//go:build !linux

package spin

import "time"

// Hop stays where it is: it cannot be asked for another processor.
func Hop([]int) (to int, hopped bool) { return -1, false }

// Processor is not known.
func Processor() int { return -1 }

// Return does nothing, as nobody has hopped.
func Return(int) {}

// Delay is not known.
func Delay() (d time.Duration, thread int) { return 0, 0 }
